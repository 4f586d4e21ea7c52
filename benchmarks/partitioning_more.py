"""More programs of the comparison with XLA's partitioner: other sizes, meshes, idioms and optimisers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from partitioning_programs import Made, Places, Program, convolve

__all__ = ["MORE"]


def _adam(at: Places) -> Made:
    """FSDP in mixed precision with Adam, states donated."""

    def step(w: Any, m: Any, v: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            h = x.astype(jnp.bfloat16)
            for a in w:
                h = jax.nn.gelu(h @ a.astype(jnp.bfloat16))
            return jnp.mean((h.astype(np.float32) - y) ** 2)

        value, g = jax.value_and_grad(loss)(w)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        w = jax.tree.map(lambda w, m, v: w - 0.01 * m / (jnp.sqrt(jnp.abs(v)) + 1e-6), w, m, v)
        return value, w, m, v

    w = [at.array((128, 512), "x"), at.array((512, 128), "x")]
    parts, data = [at("x")] * 2, at.array((256, 128), "x")
    return jax.jit(step, out_shardings=(at(), parts, parts, parts), donate_argnums=(0, 1, 2)), (w, w, w, data, data)


def _batch_norm(at: Places) -> Made:
    """Statistics over a split batch, gradients clipped by their norm."""

    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            h = x
            for a in w:
                h = h @ a
                mean = h.mean(0)
                h = jax.nn.relu((h - mean) * lax.rsqrt(((h - mean) ** 2).mean(0) + 1e-5))
            return jnp.mean(h**3)

        value, g = jax.value_and_grad(loss)(w)
        norm = jnp.sqrt(sum(jnp.sum(a * a) for a in g))
        return value, [a - 0.1 * b / jnp.maximum(norm, 1) for a, b in zip(w, g, strict=True)]

    w = [at.array((64, 128)), at.array((128, 64))]
    return jax.jit(step, out_shardings=(at(), [at()] * 2)), (w, at.array((512, 64), "x"))


def _lstm_training(at: Places) -> Made:
    def step(w: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            def cell(carry: Any, x: Any) -> Any:
                h, c = carry
                i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ w, 4, -1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

            zero = jnp.zeros((x.shape[1], 32))
            return jnp.mean((lax.scan(cell, (zero, zero), x)[0][0] - y) ** 2)

        value, gradient = jax.value_and_grad(loss)(w)
        return value, w - 0.1 * gradient

    args = (at.array((64, 128)), at.array((12, 64, 32), None, "x"), at.array((64, 32), "x"))
    return jax.jit(step, out_shardings=(at(), at())), args


def _unet_training(at: Places) -> Made:
    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            a = jax.nn.relu(convolve(x, w[0]))
            b = lax.reduce_window(a, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
            c = jax.nn.relu(convolve(b, w[1]))
            up = jax.image.resize(c, (*a.shape[:-1], c.shape[-1]), "nearest")
            return jnp.mean(convolve(jnp.concatenate([a, up], -1), w[2]) ** 2)

        value, g = jax.value_and_grad(loss)(w)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, w, g)

    w = [at.array(s) for s in ((3, 3, 4, 8), (3, 3, 8, 8), (3, 3, 16, 4))]
    return jax.jit(step, out_shardings=(at(), [at()] * 3)), (w, at.array((2, 64, 32, 4), None, "x"))


def _life(at: Places) -> Made:
    """The game of life: a nine-point stencil over wrapped borders."""

    def f(g: Any) -> Any:
        def one(_: Any, g: Any) -> Any:
            p = jnp.pad(g, 1, mode="wrap")
            around = [(i, j) for i in range(3) for j in range(3) if (i, j) != (1, 1)]
            n = sum(p[i : i + 64, j : j + 64] for i, j in around)
            return ((n == 3) | ((g == 1) & (n == 2))).astype(g.dtype)

        return lax.fori_loop(0, 5, one, g)

    return jax.jit(f, out_shardings=at("x", "y")), (at.array((64, 64), "x", "y"),)


def _grid_gradients(at: Places) -> Made:
    """Conjugate gradients without a matrix, on a grid split in both directions."""

    def f(b: Any) -> Any:
        def apply(u: Any) -> Any:
            p = jnp.pad(u, 1)
            return 5 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]

        def one(_: Any, c: Any) -> Any:
            x, r, p, rr = c
            q = apply(p)
            alpha = rr / jnp.vdot(p, q)
            x, r = x + alpha * p, r - alpha * q
            new = jnp.vdot(r, r)
            return x, r, r + new / rr * p, new

        return lax.fori_loop(0, 10, one, (jnp.zeros_like(b), b, b, jnp.vdot(b, b)))[0]

    return jax.jit(f, out_shardings=at("x", "y")), (at.array((64, 64), "x", "y"),)


def _transform(at: Places) -> Made:
    def f(u: Any) -> Any:
        return jnp.real(jnp.fft.ifftn(jnp.fft.fftn(u) * 0.5))

    return jax.jit(f, out_shardings=at("x", "y")), (at.array((32, 32, 32), "x", "y"),)


def _nodes(at: Places) -> Made:
    def f(w: Any, h: Any, source: Any, target: Any) -> Any:
        for k in range(2):
            h = h + jax.ops.segment_sum(jnp.tanh(h[source] @ w[k]), target, 64)
        return h

    edges = at.array((1024,), "x", dtype=np.int32)
    return jax.jit(f, out_shardings=at("x")), (at.array((2, 16, 16)), at.array((64, 16), "x"), edges, edges)


def _bags(at: Places) -> Made:
    """Sums of rows of a table split by vocabulary."""

    def f(table: Any, tokens: Any) -> Any:
        return jnp.take(table, tokens, axis=0).sum(1)

    return jax.jit(f, out_shardings=at("x")), (at.array((4096, 64), "y"), at.array((64, 8), "x", dtype=np.int32))


def _order(at: Places) -> Made:
    def f(x: Any) -> Any:
        return jnp.cumsum(x, 0), jnp.sort(x, 0)

    return jax.jit(f, out_shardings=(at("x"), at("x"))), (at.array((256, 16), "x"),)


def _product(at: Places) -> Made:
    square = at.array((256, 256), "x", "y")
    return jax.jit(lambda a, b: a @ b, out_shardings=at("x", "y")), (square, square)


def _power(at: Places) -> Made:
    """Subspace iteration with QR."""

    def f(a: Any, q: Any) -> Any:
        return lax.scan(lambda q, _: (jnp.linalg.qr(a @ q)[0], None), q, None, length=3)[0]

    return jax.jit(f, out_shardings=at("x")), (at.array((128, 128), "x"), at.array((128, 8), "x"))


def _bodies(at: Places) -> Made:
    def f(p: Any, v: Any) -> Any:
        def one(_: Any, c: Any) -> Any:
            p, v = c
            d = p[None] - p[:, None]
            v = v + 0.01 * (d / ((d * d).sum(-1) + 0.1)[..., None] ** 1.5).sum(1)
            return p + 0.01 * v, v

        return lax.fori_loop(0, 4, one, (p, v))

    points = at.array((128, 3), "x")
    return jax.jit(f, out_shardings=(at("x"), at("x"))), (points, points)


_ONE = {"x": 8}
_TWO = {"x": 2, "y": 4}

MORE: tuple[Program, ...] = (
    Program("MLP, FSDP, bf16 and Adam", _ONE, _adam),
    Program("batch norm and clipping, data parallel", _ONE, _batch_norm),
    Program("LSTM training, data parallel", _ONE, _lstm_training),
    Program("U-Net training, spatial", _ONE, _unet_training),
    Program("game of life", _TWO, _life),
    Program("conjugate gradients on a grid", _TWO, _grid_gradients),
    Program("FFT in three dimensions", _TWO, _transform),
    Program("graph network, nodes split", _ONE, _nodes),
    Program("embedding bags", _TWO, _bags),
    Program("cumulative sum and sort", _ONE, _order),
    Program("matrix product, 2D", _TWO, _product),
    Program("subspace iteration with QR", _ONE, _power),
    Program("n bodies", _ONE, _bodies),
)
