"""Convolutional networks as people train them: residual, separable by channels, and channels first with pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["NETWORKS"]

Array = Any
#: A training step, and its arguments: the weights, a batch of 32 images of 32 x 32, their labels.
Network = tuple[Callable[..., Any], tuple[Any, ...]]

LAST = ("NHWC", "HWIO", "NHWC")
FIRST = ("NCHW", "OIHW", "NCHW")


def _convolve(x: Array, k: Array, stride: int = 1, groups: int = 1, order: tuple[str, str, str] = LAST) -> Array:
    return jax.lax.conv_general_dilated(
        x, k, (stride, stride), "SAME", dimension_numbers=order, feature_group_count=groups
    )


def _normalised(x: Array) -> Array:
    return (x - x.mean((0, 1, 2))) * jax.lax.rsqrt(x.var((0, 1, 2)) + 1e-5)


class _Draw:
    """Kernels from seeded normal numbers."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def __call__(self, *dims: int, depth: int) -> Array:
        return (self._random.standard_normal(dims) * depth**-0.5).astype(np.float32)

    def square(self, side: int, inputs: int, outputs: int) -> Array:
        return self(side, side, inputs, outputs, depth=side * side * inputs)


def _step(logits: Callable[[Any, Array], Array], weights: Any, image: tuple[int, ...]) -> Network:
    def loss(w: Any, x: Array, labels: Array) -> Array:
        chances = jax.nn.log_softmax(logits(w, x))
        return -jnp.take_along_axis(chances, labels[:, None], axis=-1).mean()

    def step(w: Any, x: Array, labels: Array) -> Any:
        value, g = jax.value_and_grad(loss)(w, x, labels)
        return jax.tree.map(lambda p, d: p - 0.05 * d, w, g), value

    draw = np.random.default_rng(7)
    x = draw.standard_normal((32, *image)).astype(np.float32)
    return step, (weights, x, draw.integers(0, 10, 32, np.int32))


def residual() -> Network:
    """Three residual blocks of 32, 64 and 128 channels; the last two halve the image, with 1x1 shortcuts."""
    draw = _Draw(1)
    sizes = ((32, 32), (32, 64), (64, 128))
    blocks = [{"a": draw.square(3, i, o), "b": draw.square(3, o, o), "short": draw.square(1, i, o)} for i, o in sizes]
    weights = {"stem": draw.square(3, 3, 32), "blocks": blocks, "out": draw(128, 10, depth=128)}

    def logits(w: Any, x: Array) -> Array:
        x = jax.nn.relu(_normalised(_convolve(x, w["stem"])))
        for n, block in enumerate(w["blocks"]):
            stride = 1 if n == 0 else 2
            inner = jax.nn.relu(_normalised(_convolve(x, block["a"], stride)))
            x = jax.nn.relu(_normalised(_convolve(inner, block["b"])) + _convolve(x, block["short"], stride))
        return x.mean((1, 2)) @ w["out"]

    return _step(logits, weights, (32, 32, 3))


def separable() -> Network:
    """Depthwise 3x3 and pointwise convolutions in turn, 32 to 256 channels."""
    draw = _Draw(2)
    sizes = ((32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2))
    blocks = [{"each": draw(3, 3, 1, i, depth=9), "mix": draw.square(1, i, o)} for i, o, _ in sizes]
    weights = {"stem": draw.square(3, 3, 32), "blocks": blocks, "out": draw(256, 10, depth=256)}

    def logits(w: Any, x: Array) -> Array:
        x = jax.nn.relu(_normalised(_convolve(x, w["stem"])))
        for block, (channels, _, stride) in zip(w["blocks"], sizes, strict=True):
            x = jax.nn.relu(_normalised(_convolve(x, block["each"], stride, channels)))
            x = jax.nn.relu(_normalised(_convolve(x, block["mix"])))
        return x.mean((1, 2)) @ w["out"]

    return _step(logits, weights, (32, 32, 3))


def channels_first() -> Network:
    """Channels before rows, a 5x5 stem, overlapping 3x3 pooling with stride 2."""
    draw = _Draw(3)
    weights = {
        "a": draw(32, 3, 5, 5, depth=75),
        "b": draw(64, 32, 3, 3, depth=288),
        "c": draw(64, 64, 3, 3, depth=576),
        "out": draw(64, 10, depth=64),
    }

    def pooled(x: Array) -> Array:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME")

    def logits(w: Any, x: Array) -> Array:
        x = pooled(jax.nn.relu(_convolve(x, w["a"], order=FIRST)))
        x = pooled(jax.nn.relu(_convolve(x, w["b"], order=FIRST)))
        return jax.nn.relu(_convolve(x, w["c"], 2, order=FIRST)).mean((2, 3)) @ w["out"]

    return _step(logits, weights, (3, 32, 32))


NETWORKS: dict[str, Callable[[], Network]] = {
    "residual": residual,
    "separable": separable,
    "channels-first": channels_first,
}
