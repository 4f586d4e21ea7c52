"""Image, volume and audio programs of the comparison with XLA's partitioner: convolutions, windows, resampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from partitioning_programs import Made, Places, Program, convolve

__all__ = ["VISION"]


def _descend(w: Any, g: Any) -> Any:
    return jax.tree.map(lambda w, g: w - 0.1 * g, w, g)


def _group_norm(x: Any, groups: int) -> Any:
    parts = x.reshape(*x.shape[:-1], groups, -1)
    axes = (*range(1, x.ndim - 1), x.ndim)
    mean, var = parts.mean(axes, keepdims=True), parts.var(axes, keepdims=True)
    return ((parts - mean) * lax.rsqrt(var + 1e-5)).reshape(x.shape)


def _average(x: Any, size: int) -> Any:
    window = (1, size, size, 1)
    return lax.reduce_window(x, 0.0, lax.add, window, window, "VALID") / size**2


def _residual(spec: tuple[Any, ...], weights: tuple[Any, ...] = ()) -> Callable[[Places], Made]:
    """Training of a residual network: strides, group norms, average pooling, a classifier's cross entropy."""

    def make(at: Places) -> Made:
        def step(w: Any, x: Any, labels: Any) -> Any:
            def loss(w: Any) -> Any:
                h = jax.nn.relu(convolve(x, w["stem"], 2))
                r = convolve(jax.nn.relu(_group_norm(convolve(h, w["a"]), 4)), w["b"])
                h = jax.nn.relu(h + r)
                r = convolve(jax.nn.relu(_group_norm(convolve(h, w["c"], 2), 4)), w["d"])
                h = jax.nn.relu(convolve(h, w["skip"], 2) + r)
                logits = h.mean((1, 2)) @ w["head"]
                return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(labels.shape[0]), labels])

            value, g = jax.value_and_grad(loss)(w)
            return value, _descend(w, g)

        shapes = {
            "stem": (7, 7, 3, 8),
            "a": (3, 3, 8, 8),
            "b": (3, 3, 8, 8),
            "c": (3, 3, 8, 16),
            "d": (3, 3, 16, 16),
            "skip": (1, 1, 8, 16),
            "head": (16, 10),
        }
        specs = {n: (() if n == "head" else (None, None, *weights)) for n in shapes}
        w = {n: at.array(s, *specs[n]) for n, s in shapes.items()}
        args = (w, at.array((8, 32, 32, 3), *spec), at.array((8,), spec[0], dtype=np.int32))
        return jax.jit(step, out_shardings=(at(), {n: at(*specs[n]) for n in shapes})), args

    return make


def _transposed(spec: tuple[Any, ...]) -> Callable[[Places], Made]:
    """U-Net training, upwards by transposed convolutions."""

    def make(at: Places) -> Made:
        def up(x: Any, w: Any) -> Any:
            return lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

        def step(w: Any, x: Any, y: Any) -> Any:
            def loss(w: Any) -> Any:
                a = jax.nn.relu(convolve(x, w[0]))
                b = jax.nn.relu(convolve(a, w[1], 2))
                c = jax.nn.relu(convolve(b, w[2], 2))
                d = jax.nn.relu(jnp.concatenate([b, up(c, w[3])], -1))
                e = convolve(jnp.concatenate([a, up(d, w[4])], -1), w[5])
                return jnp.mean((e - y) ** 2)

            value, g = jax.value_and_grad(loss)(w)
            return value, _descend(w, g)

        shapes = ((3, 3, 2, 4), (3, 3, 4, 8), (3, 3, 8, 8), (2, 2, 8, 8), (4, 4, 16, 4), (3, 3, 8, 2))
        image = at.array((4, 32, 48, 2), *spec)
        return jax.jit(step, out_shardings=(at(), [at()] * 6)), ([at.array(s) for s in shapes], image, image)

    return make


def _separable(at: Places) -> Made:
    """Depthwise and pointwise convolutions, channels split."""

    def f(x: Any, w: Any) -> Any:
        for k in range(2):
            d = lax.conv_general_dilated(
                x, w["deep"][k], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=16
            )
            x = jax.nn.relu(convolve(jax.nn.relu(d), w["point"][k]))
        return x

    w = {
        "deep": at.array((2, 3, 3, 1, 16), None, None, None, None, "y"),
        "point": at.array((2, 1, 1, 16, 16), None, None, None, None, "y"),
    }
    return jax.jit(f, out_shardings=at("x", None, None, "y")), (at.array((4, 16, 16, 16), "x", None, None, "y"), w)


def _volume(at: Places) -> Made:
    """A volume split in all three directions."""

    def step(w: Any, x: Any) -> Any:
        def conv(x: Any, w: Any, stride: int) -> Any:
            n = ("NDHWC", "DHWIO", "NDHWC")
            return lax.conv_general_dilated(x, w, (stride,) * 3, "SAME", dimension_numbers=n)

        def loss(w: Any) -> Any:
            return jnp.mean(conv(jax.nn.relu(conv(x, w[0], 1)), w[1], 2) ** 2)

        value, g = jax.value_and_grad(loss)(w)
        return value, _descend(w, g)

    w = [at.array((3, 3, 3, 2, 4)), at.array((3, 3, 3, 4, 4))]
    return jax.jit(step, out_shardings=(at(), [at()] * 2)), (w, at.array((2, 16, 16, 16, 2), None, "x", "y", "z"))


def _generator(at: Places) -> Made:
    """A vector becomes an image: dense, reshape, transposed convolutions; channels split."""

    def f(z: Any, w: Any) -> Any:
        h = jax.nn.relu(z @ w[0]).reshape(-1, 4, 4, 16)
        for k in (1, 2):
            h = lax.conv_transpose(h, w[k], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            h = jax.nn.leaky_relu(h) if k == 1 else jnp.tanh(h)
        return h

    w = [at.array((32, 256), None, "y"), at.array((4, 4, 16, 8), None, None, "y"), at.array((4, 4, 8, 3))]
    return jax.jit(f, out_shardings=at("x")), (at.array((8, 32), "x"), w)


def _dilated(at: Places) -> Made:
    """Causal dilated convolutions along a split signal, gated."""

    def f(x: Any, w: Any) -> Any:
        for k in range(4):
            step = 2**k
            n = ("NTC", "TIO", "NTC")
            both = lax.conv_general_dilated(x, w[k], (1,), [(2 * step, 0)], rhs_dilation=(step,), dimension_numbers=n)
            a, b = jnp.split(both, 2, -1)
            x = x + jnp.tanh(a) * jax.nn.sigmoid(b)
        return x

    return jax.jit(f, out_shardings=at("x", "y")), (at.array((4, 128, 8), "x", "y"), at.array((4, 3, 8, 16)))


def _running(at: Places) -> Made:
    """Batch norm with running statistics, batch and height split."""

    def step(w: Any, state: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            h = convolve(x, w["conv"])
            mean, var = h.mean((0, 1, 2)), h.var((0, 1, 2))
            h = jax.nn.relu((h - mean) / jnp.sqrt(var + 1e-5) * w["scale"] + w["bias"])
            new = [0.9 * s + 0.1 * n for s, n in zip(state, (mean, var), strict=True)]
            return jnp.mean(_average(h, 4) ** 3), new

        (value, new), g = jax.value_and_grad(loss, has_aux=True)(w)
        return value, _descend(w, g), new

    w = {"conv": at.array((3, 3, 3, 8)), "scale": at.array((8,)), "bias": at.array((8,))}
    outs = (at(), {n: at() for n in w}, [at(), at()])
    return jax.jit(step, out_shardings=outs), (w, [at.array((8,))] * 2, at.array((8, 32, 32, 3), "x", "y"))


def _variational(at: Places) -> Made:
    """A variational autoencoder: noise drawn in the step, data-parallel."""

    def step(w: Any, x: Any, key: Any) -> Any:
        def loss(w: Any) -> Any:
            mean, logvar = jnp.split(jnp.tanh(x @ w[0]) @ w[1], 2, -1)
            z = mean + jnp.exp(0.5 * logvar) * jax.random.normal(key, mean.shape)
            y = jnp.tanh(z @ w[2]) @ w[3]
            divergence = -0.5 * jnp.mean(1 + logvar - mean**2 - jnp.exp(logvar))
            return jnp.mean(jax.nn.softplus(y) - x * y) + divergence

        value, g = jax.value_and_grad(loss)(w)
        return value, _descend(w, g)

    w = [at.array(s) for s in ((64, 32), (32, 16), (8, 32), (32, 64))]
    args = (w, at.array((64, 64), "x"), at.array((2,), dtype=np.uint32))
    return jax.jit(step, out_shardings=(at(), [at()] * 4)), args


def _pyramid(at: Places) -> Made:
    """Max pooling down, bilinear resampling up, sums: a feature pyramid, height and width split."""

    def f(x: Any, w: Any) -> Any:
        levels = [x]
        for _ in range(2):
            h = jax.nn.relu(convolve(levels[-1], w[0]))
            levels.append(lax.reduce_window(h, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"))
        out = levels[-1]
        for level in levels[-2::-1]:
            out = jax.image.resize(out, level.shape, "bilinear") + convolve(level, w[1])
        return out

    args = (at.array((2, 64, 32, 4), None, "x", "y"), [at.array((3, 3, 4, 4)), at.array((1, 1, 4, 4))])
    return jax.jit(f, out_shardings=at(None, "x", "y")), args


def _patches(tensor: bool) -> Callable[[Places], Made]:
    """A vision transformer's embedding, block and loss; patches by reshape and transpose."""

    def make(at: Places) -> Made:
        def step(w: Any, x: Any, labels: Any) -> Any:
            def loss(w: Any) -> Any:
                b, h, c = x.shape[0], x.shape[1] // 8, x.shape[3]
                p = x.reshape(b, h, 8, h, 8, c).transpose(0, 1, 3, 2, 4, 5).reshape(b, h * h, 64 * c)
                p = p @ w["in"] + w["place"]
                p = (p - p.mean(-1, keepdims=True)) / (p.std(-1, keepdims=True) + 1e-5)
                q, k, v = jnp.moveaxis((p @ w["qkv"]).reshape(b, -1, 3, 4, 8), 2, 0)
                a = jax.nn.softmax(jnp.einsum("bnhd,bmhd->bhnm", q, k) / 3)
                p = p + jnp.einsum("bhnm,bmhd->bnhd", a, v).reshape(b, -1, 32) @ w["o"]
                p = p + jax.nn.gelu(p @ w["up"]) @ w["down"]
                hot = jax.nn.one_hot(labels, 10)
                return -jnp.mean(jnp.sum(jax.nn.log_softmax(p.mean(1) @ w["head"]) * hot, -1))

            value, g = jax.value_and_grad(loss)(w)
            return value, _descend(w, g)

        shapes = {
            "in": (192, 32),
            "place": (16, 32),
            "qkv": (32, 96),
            "o": (32, 32),
            "up": (32, 128),
            "down": (128, 32),
            "head": (32, 10),
        }
        split: dict[str, tuple[Any, ...]] = {"qkv": (None, "y"), "o": ("y",), "up": (None, "y"), "down": ("y",)}
        specs = {n: split.get(n, ()) if tensor else () for n in shapes}
        w = {n: at.array(s, *specs[n]) for n, s in shapes.items()}
        args = (w, at.array((8, 32, 32, 3), "x"), at.array((8,), "x", dtype=np.int32))
        return jax.jit(step, out_shardings=(at(), {n: at(*specs[n]) for n in shapes})), args

    return make


def _channels(at: Places) -> Made:
    """Channels split by turns: output channels, then input channels, reduced."""

    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            h = jax.nn.relu(convolve(x, w[0]))
            return jnp.mean(convolve(h, w[1]) ** 2)

        value, g = jax.value_and_grad(loss)(w)
        return value, _descend(w, g)

    specs = ((None, None, None, "y"), (None, None, "y"))
    w = [at.array(s, *p) for s, p in zip(((3, 3, 4, 16), (3, 3, 16, 4)), specs, strict=True)]
    return jax.jit(step, out_shardings=(at(), [at(*p) for p in specs])), (w, at.array((4, 16, 16, 4), "x"))


def _valid(at: Places) -> Made:
    """Convolutions without padding: every shard count is uneven from the first layer on."""

    def f(x: Any, w: Any) -> Any:
        for k in range(3):
            x = lax.conv_general_dilated(x, w[k], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x)
        return x.sum((1, 2))

    return jax.jit(f, out_shardings=at()), (at.array((2, 64, 16, 4), None, "x"), at.array((3, 3, 3, 4, 4)))


_FOUR, _EIGHT = {"x": 4}, {"x": 8}
_TWO_FOUR, _FOUR_TWO = {"x": 2, "y": 4}, {"x": 4, "y": 2}
_CUBE = {"x": 2, "y": 2, "z": 2}

VISION: tuple[Program, ...] = (
    Program("residual network, batch", _EIGHT, _residual(("x",))),
    Program("residual network, batch x height", _FOUR_TWO, _residual(("x", "y"))),
    Program("residual network, batch x channels", _FOUR_TWO, _residual(("x",), (None, "y"))),
    Program("residual network, height x width", _CUBE, _residual(("x", "y", "z"))),
    Program("U-Net training, transposed convolutions, height", _FOUR, _transposed((None, "x"))),
    Program("U-Net training, transposed convolutions, batch x width", _TWO_FOUR, _transposed(("x", None, "y"))),
    Program("depthwise convolutions, channels split", _TWO_FOUR, _separable),
    Program("volume convolutions, three directions", _CUBE, _volume),
    Program("image generator", _TWO_FOUR, _generator),
    Program("dilated causal convolutions, time split", _TWO_FOUR, _dilated),
    Program("batch norm with running statistics", _FOUR_TWO, _running),
    Program("variational autoencoder, data parallel", _EIGHT, _variational),
    Program("feature pyramid", _FOUR_TWO, _pyramid),
    Program("vision transformer, data parallel", _EIGHT, _patches(False)),
    Program("vision transformer, data x tensor", _TWO_FOUR, _patches(True)),
    Program("convnet, channels split", _TWO_FOUR, _channels),
    Program("convolutions without padding", _EIGHT, _valid),
)
