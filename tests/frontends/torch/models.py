"""Small modules that the tests of this folder share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Causal self-attention with separate projections."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            p(x).view(batch, length, self.heads, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a network of two layers, both residual."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.self_attn = Attention(width)
        self.norm = nn.LayerNorm(width)
        self.up_proj, self.down_proj = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.norm(x))
        return x + self.down_proj(functional.gelu(self.up_proj(x)))


class Transformer(nn.Module):
    """A decoder with tied embeddings."""

    def __init__(self, vocabulary: int = 32, width: int = 16, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Counting(nn.Module):
    """Batch normalisation, a buffer that counts calls, and nested arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, scale: float = 1.0, *, extra: dict[str, Any]) -> dict[str, Any]:
        self.calls += 1
        return {"out": (self.norm(x) * scale, None), "sum": [extra["a"] + extra["b"], 3]}


def seeded(module: type[nn.Module], *args: Any) -> nn.Module:
    torch.manual_seed(7)
    return module(*args)


def worst(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest distance, relative to the largest value."""
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))
