"""What is measured on a GPU: kernels that only move memory, plain products, and training steps.

A program is a function of JAX arrays; one that ``donates`` gives its first result back as its first argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

__all__ = ["BOUND_BY_MEMORY", "PRODUCTS", "STEP", "TINY", "Program", "build"]


@dataclass(frozen=True)
class Program:
    """``moved_bytes``: what a kernel bound by memory must read and write; 0 for programs that compute."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    moved_bytes: int = 0
    donates: bool = False


def _normal(seed: int, *dims: int, scale: float = 1.0, dtype: Any = np.float32) -> Any:
    return (np.random.default_rng(seed).standard_normal(dims, np.float32) * np.float32(scale)).astype(dtype)


def _moving(function: Callable[..., Any], arrays: float, *arguments: Any) -> Program:
    """``arrays``: how many times the first argument is moved."""
    return Program(function, arguments, int(arrays * arguments[0].nbytes))


def _chain(x: Any, y: Any) -> Any:
    return jnp.maximum(x * 2 + y, 0) * y


def _layer_norm(x: Any, gain: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * gain + bias


def _train(width: int, length: int, batch: int, layers: int, vocabulary: int, heads: int) -> Program:
    """A decoder-only transformer in bf16 with the loss in f32, one step of gradient descent."""
    size = width // heads

    def block(w: Any, x: Any) -> Any:
        h = _layer_norm(x, w["n1"], 0)
        q, k, v = (jnp.einsum("btd,dhk->bhtk", h, w[n]) for n in "qkv")
        scores = jnp.einsum("bhtk,bhsk->bhts", q, k).astype(jnp.float32) * np.float32(size**-0.5)
        causal = jnp.tril(jnp.ones((length, length), bool))
        weights = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1).astype(x.dtype)
        x = x + jnp.einsum("bhts,bhsk,hkd->btd", weights, v, w["o"])
        return x + jax.nn.gelu(_layer_norm(x, w["n2"], 0) @ w["up"]) @ w["down"]

    def loss(w: Any, tokens: Any) -> Any:
        x = w["embed"][tokens[:, :-1]] + w["place"]
        for layer in w["layers"]:
            x = block(layer, x)
        logits = (_layer_norm(x, w["n"], 0) @ w["embed"].T).astype(jnp.float32)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1).mean()

    def step(w: Any, tokens: Any) -> Any:
        value, g = jax.value_and_grad(loss)(w, tokens)
        return jax.tree.map(lambda p, d: p - 0.01 * d, w, g), value

    bf16 = ml_dtypes.bfloat16

    def layer(seed: int) -> dict[str, Any]:
        wide = {n: _normal(seed + i, width, heads, size, scale=0.02, dtype=bf16) for i, n in enumerate("qkv")}
        return {
            **wide,
            "o": _normal(seed + 3, heads, size, width, scale=0.02, dtype=bf16),
            "up": _normal(seed + 4, width, 4 * width, scale=0.02, dtype=bf16),
            "down": _normal(seed + 5, 4 * width, width, scale=0.02, dtype=bf16),
            "n1": np.ones(width, bf16),
            "n2": np.ones(width, bf16),
        }

    w = {
        "embed": _normal(0, vocabulary, width, scale=0.02, dtype=bf16),
        "place": _normal(1, length, width, scale=0.02, dtype=bf16),
        "n": np.ones(width, bf16),
        "layers": [layer(10 * n) for n in range(1, layers + 1)],
    }
    tokens = np.random.default_rng(5).integers(0, vocabulary, (batch, length + 1), np.int32)
    return Program(step, (w, tokens), donates=True)


#: Kernels by name, with the share of a copy's bandwidth that is wanted.
BOUND_BY_MEMORY = {
    "loop f32": 0.92,
    "loop bf16": 0.92,
    "row reduction": 0.90,
    "softmax": 0.88,
    "layer norm": 0.88,
    "column reduction": 0.85,
    "transpose": 0.85,
}
PRODUCTS = ("product bf16", "product f32")
STEP = "transformer step"
#: A step so small that the host is what takes time.
TINY = "small step"


def build(name: str, small: bool = False) -> Program:
    """The program ``name``; ``small``: of sizes that an emulation gets through."""
    rows, columns = (24, 40) if small else (16384, 8192)
    side = 48 if small else 4096
    makers: dict[str, Callable[[], Program]] = {
        "loop f32": lambda: _moving(_chain, 3, _normal(0, rows, columns), _normal(1, rows, columns)),
        "loop bf16": lambda: _moving(
            _chain, 3, *(_normal(n, rows, 2 * columns, dtype=ml_dtypes.bfloat16) for n in (0, 1))
        ),
        "row reduction": lambda: _moving(lambda x: x.sum(-1), 1, _normal(0, rows, columns)),
        "softmax": lambda: _moving(lambda x: jax.nn.softmax(x, -1), 2, _normal(0, rows, columns)),
        "layer norm": lambda: _moving(
            _layer_norm, 2, _normal(0, rows, columns), _normal(1, columns), _normal(2, columns)
        ),
        "column reduction": lambda: _moving(lambda x: x.sum(0), 1, _normal(0, rows, columns)),
        "transpose": lambda: _moving(lambda x: x.T, 2, _normal(0, rows, columns)),
        "product bf16": lambda: Program(
            jnp.matmul, tuple(_normal(n, side, side, dtype=ml_dtypes.bfloat16) for n in (0, 1))
        ),
        "product f32": lambda: Program(jnp.matmul, (_normal(0, side, side), _normal(1, side, side))),
        STEP: lambda: _train(32, 8, 2, 1, 64, 2) if small else _train(1024, 512, 16, 8, 32768, 16),
        TINY: lambda: _train(32, 8, 2, 1, 64, 2),
    }
    return makers[name]()
