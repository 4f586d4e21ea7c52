"""Ten models of Hugging Face's kinds, made from small configurations with random weights; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from shardc import P

__all__ = ["MODELS", "Case", "case"]

WIDTH, HEADS, LAYERS, VOCABULARY = 32, 4, 2, 64
#: Linear layers by their names: first those split by what they give, then those split by what they take.
COLUMNS = (
    "query", "key", "value", "q_proj", "k_proj", "v_proj", "up_proj", "gate_proj", "fc1", "intermediate.dense",
    "q", "k", "v", "wi", "mixer.in_proj", "c_attn_", "mlp.0", "qkv",
)  # fmt: skip
ROWS = ("o_proj", "out_proj", "down_proj", "fc2", "wo", "o", "output.dense", "mlp.2", "mixed")


@dataclass(frozen=True)
class Case:
    """A module in evaluation mode, its arguments by name, and where its weights and its batch lie on data x model."""

    module: nn.Module
    inputs: Mapping[str, Any]
    specs: Mapping[str, P]


class Only(nn.Module):
    """A model of which one result counts, without a cache."""

    def __init__(self, model: nn.Module, result: str) -> None:
        super().__init__()
        self.model, self.result = model, result

    def forward(self, **inputs: Any) -> torch.Tensor:
        return getattr(self.model(**inputs), self.result)


class DiffusionTransformer(nn.Module):
    """A small DiT: patches of an image, a time that scales and shifts every norm, and the noise as its result."""

    def __init__(self, width: int = WIDTH, side: int = 8, patch: int = 2) -> None:
        super().__init__()
        self.side, self.patch = side, patch
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.place = nn.Parameter(torch.randn((side // patch) ** 2, width) * 0.02)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(DiffusionBlock(width) for _ in range(LAYERS))
        self.head = nn.Linear(width, 3 * patch * patch)

    def forward(self, image: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        half = self.place.shape[1] // 2
        waves = time[:, None] * torch.exp(-torch.arange(half, device=time.device) / half * 6.0)
        condition = self.time(torch.cat([waves.sin(), waves.cos()], -1))
        x = self.embed(image).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            x = block(x, condition)
        n, count = self.patch, self.side // self.patch
        made = self.head(x).view(-1, count, count, 3, n, n)
        return torch.einsum("bhwcpq->bchpwq", made).reshape(image.shape)


class DiffusionBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.modulation = nn.Linear(width, 6 * width)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.o_proj = nn.Linear(width, width)
        self.up_proj, self.down_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        a, b, c, d, e, f = self.modulation(functional.silu(condition))[:, None].chunk(6, -1)
        y = self.norm(x) * (1 + a) + b
        q, k, v = (p(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + c * self.o_proj(mixed)
        y = self.norm(x) * (1 + d) + e
        return x + f * self.down_proj(functional.gelu(self.up_proj(y), approximate="tanh"))


def _transformers() -> Any:
    import transformers

    return transformers


def _ids(length: int = 8) -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (4, length))


def _bert() -> tuple[nn.Module, dict[str, Any]]:
    t = _transformers()
    config = t.BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH, max_position_embeddings=16,
    )  # fmt: skip
    mask = torch.ones(4, 8, dtype=torch.int64)
    mask[0, 5:] = 0
    return Only(t.BertModel(config), "last_hidden_state"), {"input_ids": _ids(), "attention_mask": mask}


def _gpt2() -> tuple[nn.Module, dict[str, Any]]:
    t = _transformers()
    config = t.GPT2Config(
        vocab_size=VOCABULARY, n_positions=16, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, use_cache=False,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return Only(t.GPT2LMHeadModel(config), "logits"), {"input_ids": _ids()}


def _decoder(kind: str, **more: Any) -> tuple[nn.Module, dict[str, Any]]:
    t = _transformers()
    config = getattr(t, f"{kind}Config")(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=2, max_position_embeddings=16, use_cache=False, **more,
    )  # fmt: skip
    return Only(getattr(t, f"{kind}ForCausalLM")(config), "logits"), {"input_ids": _ids()}


def _vit() -> tuple[nn.Module, dict[str, Any]]:
    t = _transformers()
    config = t.ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=4 * WIDTH,
        image_size=16, patch_size=4,
    )  # fmt: skip
    return Only(t.ViTModel(config), "last_hidden_state"), {"pixel_values": torch.randn(4, 3, 16, 16)}


def _resnet() -> tuple[nn.Module, dict[str, Any]]:
    t = _transformers()
    config = t.ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[1, 2], layer_type="bottleneck")
    return Only(t.ResNetModel(config), "last_hidden_state"), {"pixel_values": torch.randn(4, 3, 32, 32)}


def _t5() -> tuple[nn.Module, dict[str, Any]]:
    t = _transformers()
    config = t.T5Config(
        vocab_size=VOCABULARY, d_model=WIDTH, d_kv=WIDTH // HEADS, d_ff=2 * WIDTH, num_layers=LAYERS, num_heads=HEADS,
        use_cache=False, decoder_start_token_id=0,
    )  # fmt: skip
    return Only(t.T5ForConditionalGeneration(config), "logits"), {"input_ids": _ids(), "decoder_input_ids": _ids(6)}


def _whisper() -> tuple[nn.Module, dict[str, Any]]:
    t = _transformers()
    config = t.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=8, encoder_layers=LAYERS, encoder_attention_heads=HEADS,
        decoder_layers=LAYERS, decoder_attention_heads=HEADS, decoder_ffn_dim=2 * WIDTH, encoder_ffn_dim=2 * WIDTH,
        d_model=WIDTH, max_source_positions=16, max_target_positions=16, use_cache=False, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    inputs = {"input_features": torch.randn(4, 8, 32), "decoder_input_ids": _ids(6)}
    return Only(t.WhisperModel(config), "last_hidden_state"), inputs


def _dit() -> tuple[nn.Module, dict[str, Any]]:
    return DiffusionTransformer(), {"image": torch.randn(4, 3, 8, 8), "time": torch.rand(4)}


def _mamba() -> tuple[nn.Module, dict[str, Any]]:
    t = _transformers()
    config = t.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, state_size=4, num_hidden_layers=LAYERS, use_cache=False,
        pad_token_id=0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return Only(t.MambaModel(config), "last_hidden_state"), {"input_ids": _ids()}


MODELS: Mapping[str, Callable[[], tuple[nn.Module, dict[str, Any]]]] = {
    "BERT": _bert,
    "GPT-2": _gpt2,
    "Llama": lambda: _decoder("Llama"),
    "Mixtral": lambda: _decoder("Mixtral", num_local_experts=4),
    "ViT": _vit,
    "ResNet": _resnet,
    "T5": _t5,
    "Whisper": _whisper,
    "DiT": _dit,
    "Mamba": _mamba,
}


def case(name: str) -> Case:
    torch.manual_seed(11)
    module, inputs = MODELS[name]()
    return Case(module.eval(), inputs, {**_weights(module), **{i: P("data") for i in inputs}})


def _weights(module: nn.Module) -> dict[str, P]:
    """Columns and rows of linear layers, output channels of convolutions, and experts over ``model``."""
    specs = {}
    for name, tensor in module.named_parameters():
        layer = name.removesuffix(".weight")
        if (tensor.ndim == 3 and "experts" in name) or tensor.ndim == 4:
            specs[name] = P("model")
        elif tensor.ndim == 2 and layer.endswith(tuple(f".{c}" for c in COLUMNS)):
            specs[name] = P("model", None)
        elif tensor.ndim == 2 and layer.endswith(tuple(f".{r}" for r in ROWS)):
            specs[name] = P(None, "model")
    return specs
