"""Models of Hugging Face from their configurations, with random weights: forward and training steps beside eager."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from models import worst  # noqa: E402

import shardc  # noqa: E402
import shardc.torch  # noqa: E402
from shardc import P  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
#: Name -> class of the model, configuration, shape of its images; None for token numbers.
MODELS: dict[str, tuple[str, str, dict[str, Any], tuple[int, ...] | None]] = {
    "bert": ("BertModel", "BertConfig", {**SIZES, "vocab_size": 64}, None),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64, "n_positions": 16, "use_cache": False},
        None,
    ),
    "llama": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**SIZES, "vocab_size": 64, "num_key_value_heads": 2, "use_cache": False},
        None,
    ),
    "vit": ("ViTModel", "ViTConfig", {**SIZES, "image_size": 16, "patch_size": 4}, (2, 3, 16, 16)),
    "resnet": (
        "ResNetModel",
        "ResNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
        (2, 3, 32, 32),
    ),
}


def made(name: str) -> tuple[Any, str, Any]:
    """The model, the name of its input and an input."""
    model, config, sizes, images = MODELS[name]
    torch.manual_seed(0)
    module = getattr(transformers, model)(getattr(transformers, config)(**sizes)).eval()
    if images is None:
        return module, "input_ids", torch.arange(16).reshape(2, 8)
    return module, "pixel_values", torch.randn(images)


def values(output: Any) -> Any:
    return output.logits if "logits" in output else output.last_hidden_state


@pytest.mark.parametrize("name", MODELS)
def test_forward(name: str) -> None:
    module, key, x = made(name)
    program = shardc.from_torch(module, (), {key: x})
    split = program.annotate({key: P("data")}, mesh={"data": 2, "model": 4})
    for compiled in (program.compile(), split.compile()):
        assert worst(values(compiled(**{key: x})), values(module(**{key: x}))) < 1e-6


@pytest.mark.parametrize("name", MODELS)
def test_three_steps(name: str) -> None:
    module, key, x = made(name)
    other = copy.deepcopy(module)

    def loss(model: Any, x: Any) -> Any:
        return values(model(**{key: x})).square().mean()

    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (module, other)]
    training = shardc.torch.train_step(module, loss, optimizers[0], (x,)).compile()
    for _ in range(3):
        optimizers[1].zero_grad()
        want = loss(other, x)
        want.backward()
        optimizers[1].step()
        assert worst(training(x), want.detach()) < 1e-6
