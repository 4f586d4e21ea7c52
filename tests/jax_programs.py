# ruff: noqa: E501, PLR0124
"""Small JAX functions with arguments, by kind: what the reader, and the whole way to native code, are tested on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

Case = tuple[str, Callable[..., Any], tuple[Any, ...]]

rng = np.random.default_rng(7)
X = rng.standard_normal((4, 6)).astype(np.float32)
Y = rng.standard_normal((4, 6)).astype(np.float32)
INTS = rng.integers(-20, 20, (3, 5)).astype(np.int32)
WORDS = rng.integers(0, 2**32, (7,), dtype=np.uint32)
POSITIVE = np.abs(X) + 0.1
UNIT = np.tanh(X) * np.float32(0.99)


def layer_norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


ELEMENTWISE: list[Case] = [
    ("arithmetic", lambda x, y: (x + y, x - y, x * y, x / y, -x, jnp.abs(x), jnp.sign(x), x**3), (X, Y)),
    ("exponentials", lambda x: (jnp.exp(x), jnp.expm1(x), jnp.exp2(x), jax.nn.sigmoid(x), jnp.tanh(x)), (X,)),
    ("logarithms", lambda x: (jnp.log(x), jnp.log1p(x), jnp.log2(x), jnp.sqrt(x), lax.rsqrt(x), jnp.cbrt(x)), (POSITIVE,)),
    ("trigonometry", lambda x, y: (jnp.sin(x), jnp.cos(x), jnp.tan(x), jnp.arctan2(x, y), jnp.arctan(x)), (X, Y)),
    ("inverses", lambda x: (jnp.arcsin(x), jnp.arccos(x), jnp.arctanh(x), jnp.sinh(x), jnp.cosh(x), jnp.arcsinh(x)), (UNIT,)),
    ("rounding", lambda x: (jnp.floor(x * 3), jnp.ceil(x * 3), jnp.round(x * 3), jnp.trunc(x * 3)), (X,)),
    ("special", lambda x: (special.erf(x), special.erfc(x), special.gammaln(x + 4), special.digamma(x + 4)), (X,)),
    ("special inverses", lambda x: (special.erfinv(x), special.i1e(x), special.logit(jnp.abs(x) * 0.9 + 0.05)), (UNIT,)),
    ("compare and select", lambda x, y: (x < y, x >= y, x == x, jnp.where(x > 0, x, y), jnp.clip(x, -0.5, y)), (X, Y)),
    ("minimum, power", lambda x, y: (jnp.minimum(x, y), jnp.maximum(x, y), jnp.abs(x) ** y, jnp.nextafter(x, y)), (X, Y)),
    ("integers", lambda i: (i // 3, i % 3, i & 6, i | 9, i ^ 5, ~i, i << 2, i >> 1, lax.rem(i, jnp.int32(7))), (INTS,)),
    ("words", lambda w: (w >> 3, w << 5, lax.population_count(w), lax.clz(w), w * w, w // 11), (WORDS,)),
    ("converts", lambda x, i: (x.astype(jnp.int32), i.astype(jnp.float32), x.astype(bool), i.astype(jnp.int8)), (X, INTS)),
    ("narrow floats", lambda x: (x.astype(jnp.bfloat16), x.astype(jnp.float16), lax.reduce_precision(x, 5, 4)), (X,)),
    ("bits", lambda x: (lax.bitcast_convert_type(x, jnp.int32), jnp.isfinite(x), jnp.isnan(x), jnp.isinf(x)), (X,)),
    ("complex", lambda x, y: (lax.complex(x, y) * 2j, jnp.abs(x + 1j * y), jnp.conj(x + 1j * y).imag), (X, Y)),
    ("complex constant", lambda x: x * np.array([1 + 2j, 3 - 1j, 0.5j], np.complex64)[:, None, None], (X,)),
]  # fmt: skip

STRUCTURE: list[Case] = [
    ("reductions", lambda x: (x.sum(0), x.max(1), x.min(), x.prod(1), jnp.any(x > 2), jnp.all(x > -9)), (X,)),
    ("arg reductions", lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0), x.argmax()), (X,)),
    ("mean, variance", lambda x: (x.mean(0), x.var(1), jnp.linalg.norm(x), jax.nn.logsumexp(x, 1)), (X,)),
    ("cumulative", lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, axis=1), jnp.diff(x)), (X,)),
    ("sort", lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0), jnp.sort(x, descending=True)), (X,)),
    ("sort pairs", lambda i, x: lax.sort((i, x), num_keys=1, is_stable=True), (INTS, INTS.astype(np.float32))),
    ("top k", lambda x: lax.top_k(x, 3), (X,)),
    ("shape", lambda x: (x.T, x.reshape(2, 12), x[None, :, None], jnp.flip(x, 1), jnp.tile(x, (2, 1)), x.ravel()), (X,)),
    ("slices", lambda x: (x[1:3, ::2], jnp.pad(x, ((1, 2), (0, 1))), jnp.concatenate([x, x], 1), jnp.roll(x, 2, 1)), (X,)),
    ("negative pad", lambda x: lax.pad(x, jnp.float32(1), ((-1, 2, 1), (3, -2, 0))), (X,)),
    ("stack, split", lambda x: (jnp.stack([x, 2 * x], 1), *jnp.split(x, 3, 1)), (X,)),
    ("expand and spread", lambda x: jnp.broadcast_to(x[:, None, :1], (3, 4, 5, 6)), (X,)),
    ("iota", lambda x: (jnp.arange(6) + x, jnp.eye(4, 6) * x, jnp.tril(x), jnp.linspace(0, 1, 6)), (X,)),
    ("gather", lambda x, i: (x[i], x[:, i], x[i, i], jnp.take(x, i, axis=1, mode="clip")), (X, np.array([2, 0, 3]))),
    ("gather along", lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1), (X,)),
    ("scatter", lambda x, i: (x.at[i].add(1.0), x.at[:, i].set(0.0), x.at[i, i].max(9.0), x.at[i].mul(2.0)), (X, np.array([2, 0, 2]))),
    ("dynamic slices", lambda x, i: (lax.dynamic_slice(x, (i, 1), (2, 3)), lax.dynamic_update_slice(x, x[:2] * 2, (i, 0))), (X, np.int32(3))),
    ("one hot", lambda i: jax.nn.one_hot(i % 4, 4), (INTS,)),
    ("unique-like", lambda i: jnp.unique(i, size=10, fill_value=0), (INTS,)),
    ("segments", lambda x, i: jax.ops.segment_sum(x, i, 3), (X, np.array([0, 2, 0, 1]))),
]  # fmt: skip

CONTRACTIONS: list[Case] = [
    ("matmul", lambda x, y: (x @ y.T, x.T @ y, jnp.dot(x[0], y[1]), jnp.outer(x[0], y[0])), (X, Y)),
    ("einsum", lambda a, b: (jnp.einsum("bij,bjk->bik", a, b), jnp.einsum("bij,bkj->ikb", a, b), jnp.einsum("bij->ji", a)), (rng.standard_normal((2, 3, 3)).astype(np.float32), rng.standard_normal((2, 3, 3)).astype(np.float32))),
    ("mixed types", lambda x: lax.dot(x.astype(jnp.bfloat16), x.astype(jnp.bfloat16).T, preferred_element_type=jnp.float32), (X,)),
    ("integers", lambda i: i @ i.T, (INTS,)),
    ("precision", lambda x, y: jnp.matmul(x, y.T, precision=lax.Precision.HIGHEST), (X, Y)),
    ("convolution", lambda x, w: lax.conv_general_dilated(x, w, (2, 1), "SAME"), (rng.standard_normal((2, 3, 8, 7)).astype(np.float32), rng.standard_normal((4, 3, 3, 3)).astype(np.float32))),
    ("convolution in full", lambda x, w: lax.conv_general_dilated(x, w, (1, 2), ((1, 2), (0, 1)), lhs_dilation=(2, 1), rhs_dilation=(1, 2), dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=2), (rng.standard_normal((2, 6, 7, 4)).astype(np.float32), rng.standard_normal((3, 2, 2, 6)).astype(np.float32))),
    ("pooling", lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2), (1, 2, 1), "VALID"), lax.reduce_window(x, 0.0, lax.add, (1, 3, 3), (1, 1, 1), "SAME")), (rng.standard_normal((2, 6, 5)).astype(np.float32),)),
    ("fft", lambda x: (jnp.fft.fft(x), jnp.fft.rfft(x), jnp.fft.irfft(jnp.fft.rfft(x)), jnp.fft.ifft(x + 0j)), (X,)),
]  # fmt: skip


def loop_with_counter(x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda i, c: c * 1.5 + i, x)


def loop_while(x: Any) -> Any:
    return lax.while_loop(lambda c: c[1].sum() < 100.0, lambda c: (c[0] + 1, c[1] * 2), (0, jnp.abs(x)))


def scan_with_captures(x: Any, w: Any) -> Any:
    def body(c: Any, row: Any) -> Any:
        c = jnp.tanh(c @ w + row)
        return c, c.sum()

    return lax.scan(body, x[0], x, reverse=True)


def nested(x: Any) -> Any:
    def inner(c: Any, r: Any) -> Any:
        return lax.cond(r > 0, lambda: c + r, lambda: c - 2 * r), r

    return lax.scan(lambda c, row: lax.scan(inner, c, row), jnp.float32(0), x)


def branches(x: Any, i: Any) -> Any:
    y = x * 2
    return lax.switch(i, [lambda: (y, x.sum()), lambda: (x - 1, y.sum()), lambda: (x * 0, jnp.float32(3))])


def map_and_vmap(x: Any) -> Any:
    return lax.map(lambda r: jnp.sort(r) @ r, x), jax.vmap(jnp.convolve)(x, x)


def associative(x: Any) -> Any:
    return lax.associative_scan(jnp.add, x, axis=1)


CONTROL: list[Case] = [
    ("counted loop", loop_with_counter, (X,)),
    ("loop", loop_while, (X,)),
    ("scan", scan_with_captures, (X, rng.standard_normal((6, 6)).astype(np.float32))),
    ("nested scans", nested, (X,)),
    ("branch 0", branches, (X, np.int32(0))),
    ("branch 1", branches, (X, np.int32(1))),
    ("branch clamped", branches, (X, np.int32(7))),
    ("map", map_and_vmap, (X,)),
    ("associative scan", associative, (X,)),
]  # fmt: skip


def attention(q: Any, k: Any, v: Any) -> Any:
    mask = jnp.tril(jnp.ones((q.shape[1], k.shape[1]), bool))
    scores = jnp.where(mask, jnp.einsum("bqd,bkd->bqk", q, k), -1e9)
    return (jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), v) ** 2).mean()


def scan_of_layers(ws: Any, x: Any) -> Any:
    def layer(h: Any, w: Any) -> Any:
        return jax.nn.gelu(layer_norm(h @ w)), None

    return (lax.scan(jax.checkpoint(layer), x, ws)[0] ** 2).sum()


def cross_entropy(w: Any, x: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(x @ w), labels[:, None], 1).mean()


def convnet(w: Any, x: Any) -> Any:
    y = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME"))
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID").sum()


def normals(*shapes: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(rng.standard_normal(s).astype(np.float32) for s in shapes)


GRADIENTS: list[Case] = [
    ("attention", jax.value_and_grad(attention), normals((2, 4, 8), (2, 4, 8), (2, 4, 8))),
    ("scan of layers", jax.value_and_grad(scan_of_layers), (0.3 * normals((3, 6, 6))[0], X)),
    ("cross entropy", jax.value_and_grad(cross_entropy), (*normals((6, 5)), X, np.array([0, 4, 2, 1]))),
    ("convnet", jax.value_and_grad(convnet), normals((3, 2, 3, 3), (2, 2, 6, 6))),
]
