"""Programs for one device: training steps, many small operations, and kernels that only move memory.

Every program is a function of (state, *rest) that returns (state, value); the state is donated on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from cpu_networks import NETWORKS, Network

__all__ = ["PROGRAMS", "Program"]


@dataclass(frozen=True)
class Program:
    """``moved_bytes`` is what a kernel bound by memory must read and write; 0 for programs that compute."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    moved_bytes: int = 0


def _normal(seed: int, *dims: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(seed).standard_normal(dims) * scale).astype(np.float32)


def perceptron() -> Program:
    """The MLP of the goal: 512 x 1024 - 4096 - 1024, one step of gradient descent."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        hidden = jax.nn.gelu(x @ w["up"] + w["a"])
        return jnp.mean((hidden @ w["down"] + w["b"] - y) ** 2)

    def step(w: Any, x: Any, y: Any) -> Any:
        value, g = jax.value_and_grad(loss)(w, x, y)
        return jax.tree.map(lambda p, d: p - 0.1 * d, w, g), value

    w = {
        "up": _normal(0, 1024, 4096, scale=1 / 32),
        "a": np.zeros(4096, np.float32),
        "down": _normal(1, 4096, 1024, scale=1 / 64),
        "b": np.zeros(1024, np.float32),
    }
    return Program("MLP 512x1024-4096-1024", step, (w, _normal(2, 512, 1024), _normal(3, 512, 1024)))


def transformer() -> Program:
    """Two layers, width 512, sequences of 256, batch 8, vocabulary 8192, Adam-free gradient descent."""
    layers, width, length, batch, vocabulary, heads = 2, 512, 256, 8, 8192, 8

    def norm(x: Any, g: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        centred = x - mean
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * g

    def block(w: Any, x: Any) -> Any:
        h = norm(x, w["n1"])
        q, k, v = (jnp.einsum("btd,dhk->bhtk", h, w[n]) for n in "qkv")
        scores = jnp.einsum("bhtk,bhsk->bhts", q, k) / np.float32(np.sqrt(width // heads))
        causal = jnp.tril(jnp.ones((length, length), bool))
        weights = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
        x = x + jnp.einsum("bhts,bhsk,hkd->btd", weights, v, w["o"])
        return x + jax.nn.gelu(norm(x, w["n2"]) @ w["up"]) @ w["down"]

    def loss(w: Any, tokens: Any) -> Any:
        x = w["embed"][tokens[:, :-1]] + w["place"]
        for layer in w["layers"]:
            x = block(layer, x)
        logits = norm(x, w["n"]) @ w["embed"].T
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
        return -picked.mean()

    def step(w: Any, tokens: Any) -> Any:
        value, g = jax.value_and_grad(loss)(w, tokens)
        return jax.tree.map(lambda p, d: p - 0.01 * d, w, g), value

    head = (width, heads, width // heads)

    def layer(seed: int) -> dict[str, Any]:
        return {
            **{n: _normal(seed + k, *head, scale=0.04) for k, n in enumerate("qkv")},
            "o": _normal(seed + 3, *head[1:], width, scale=0.04),
            "up": _normal(seed + 4, width, 4 * width, scale=0.04),
            "down": _normal(seed + 5, 4 * width, width, scale=0.02),
            "n1": np.ones(width, np.float32),
            "n2": np.ones(width, np.float32),
        }

    w = {
        "embed": _normal(0, vocabulary, width, scale=0.02),
        "place": _normal(1, length, width, scale=0.02),
        "n": np.ones(width, np.float32),
        "layers": [layer(10 * n) for n in range(1, layers + 1)],
    }
    tokens = np.random.default_rng(5).integers(0, vocabulary, (batch, length + 1), np.int32)
    return Program("transformer 2x512, sequence 256, batch 8, vocabulary 8192", step, (w, tokens))


def convnet() -> Program:
    """Three convolutions with batch statistics and pooling on 32 x 32 images, batch 64."""

    def convolve(x: Any, k: Any) -> Any:
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def pool(x: Any) -> Any:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss(w: Any, x: Any, labels: Any) -> Any:
        for k in w["kernels"]:
            x = convolve(x, k)
            x = (x - x.mean((0, 1, 2))) * jax.lax.rsqrt(x.var((0, 1, 2)) + 1e-5)
            x = pool(jax.nn.relu(x))
        logits = x.reshape(x.shape[0], -1) @ w["out"]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1).mean()

    def step(w: Any, x: Any, labels: Any) -> Any:
        value, g = jax.value_and_grad(loss)(w, x, labels)
        return jax.tree.map(lambda p, d: p - 0.05 * d, w, g), value

    sizes = (3, 32, 64, 128)
    kernels = [_normal(k, 3, 3, a, b, scale=(9 * a) ** -0.5) for k, (a, b) in enumerate(pairwise(sizes))]
    w = {"kernels": kernels, "out": _normal(9, 4 * 4 * 128, 10, scale=0.02)}
    labels = np.random.default_rng(8).integers(0, 10, 64, np.int32)
    return Program("convnet 3-32-64-128, 32x32, batch 64", step, (w, _normal(7, 64, 32, 32, 3), labels))


def _network(name: str, make: Callable[[], Network]) -> Program:
    return Program(f"{name} network, 32x32, batch 32", *make())


def small_layers() -> Program:
    """A hundred small products with an activation each, unrolled."""

    def run(x: Any, ws: Any) -> Any:
        for k in range(100):
            x = jnp.tanh(x @ ws[k])
        return x, x.sum()

    return Program("100 layers of 8x32, unrolled", run, (_normal(0, 8, 32), _normal(1, 100, 32, 32, scale=0.2)))


def small_cells() -> Program:
    """A recurrent network in a scan: 200 steps of a few small operations."""

    def run(h: Any, w: Any, u: Any, xs: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            z = jax.nn.sigmoid(h @ w + x @ u)
            return z * h + (1 - z) * jnp.tanh(h), h.mean()

        h, means = jax.lax.scan(cell, h, xs)
        return h, means.sum()

    return Program(
        "recurrent cell 4x32, scan of 200", run,
        (_normal(0, 4, 32), _normal(1, 32, 32, scale=0.2), _normal(2, 16, 32, scale=0.2), _normal(3, 200, 4, 16)),
    )  # fmt: skip


def small_mixed() -> Program:
    """Some 300 small operations that do not fuse into one: sorts, cumulative sums, gathers, reductions, products."""

    def run(x: Any, order: Any) -> Any:
        for k in range(30):
            y = jnp.cumsum(x, axis=0)
            y = y - y.mean(axis=1, keepdims=True)
            y = y / (1 + jnp.abs(y).max())
            y = y[order] @ (x.T @ y / 16)
            x = jnp.roll(x, k, axis=1) + jnp.where(y > 0, y, 0.1 * y)
        return x, x.sum()

    return Program(
        "30 rounds of mixed small operations", run, (_normal(0, 16, 24), np.arange(16, dtype=np.int32)[::-1].copy())
    )


def _kernel(name: str, f: Callable[[Any], Any], x: Any, written: int) -> Program:
    return Program(name, lambda state, x: (state, f(x)), (np.zeros((), np.float32), x), x.nbytes + written)


def kernels() -> dict[str, Callable[[], Program]]:
    """Kernels bound by memory: 64 MiB each way."""
    n, m = 4096, 4096
    whole = 4 * n * m
    square = lambda: _normal(0, n, m)  # noqa: E731

    def layer_norm(x: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)

    return {
        "softmax": lambda: _kernel("softmax of rows", lambda x: jax.nn.softmax(x, -1), square(), whole),
        "layer-norm": lambda: _kernel("layer norm of rows", layer_norm, square(), whole),
        "transpose": lambda: _kernel("transpose", lambda x: x.T, square(), whole),
        "transpose-heads": lambda: _kernel(
            "transpose of heads", lambda x: x.transpose(0, 2, 1, 3), _normal(0, 16, 1024, 16, 64), whole
        ),
        "sum-all": lambda: _kernel("sum of all", jnp.sum, square(), 0),
        "sum-rows": lambda: _kernel("sum of rows", lambda x: x.sum(1), square(), 0),
        "sum-columns": lambda: _kernel("sum of columns", lambda x: x.sum(0), square(), 0),
        "sum-small-rows": lambda: _kernel("sums of 16", lambda x: x.sum(1), _normal(0, n * m // 16, 16), whole // 16),
        "chain": lambda: _kernel("gelu(x * 2 + 1)", lambda x: jax.nn.gelu(x * 2 + 1), square(), whole),
        "copy": lambda: _kernel("x + 1", lambda x: x + 1, square(), whole),
    }


PROGRAMS: dict[str, Callable[[], Program]] = {
    "perceptron": perceptron,
    "transformer": transformer,
    "convnet": convnet,
    **{name: partial(_network, name, make) for name, make in NETWORKS.items()},
    "small-layers": small_layers,
    "small-cells": small_cells,
    "small-mixed": small_mixed,
    **kernels(),
}
