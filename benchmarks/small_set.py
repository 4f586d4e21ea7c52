"""One-op and few-op programs as eager ``jnp`` makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["PROGRAMS", "calls"]

_F = jax.ShapeDtypeStruct((64, 32), jnp.float32)
_G = jax.ShapeDtypeStruct((32, 16), jnp.float32)
_V = jax.ShapeDtypeStruct((1000,), jnp.float32)
_S = jax.ShapeDtypeStruct((), jnp.float32)
_I = jax.ShapeDtypeStruct((1000,), jnp.int32)
_N = jax.ShapeDtypeStruct((), jnp.int32)
_B = jax.ShapeDtypeStruct((64, 32), jnp.bool_)
_H = jax.ShapeDtypeStruct((64, 32), jnp.bfloat16)
_K = jax.ShapeDtypeStruct((2,), jnp.uint32)
_SQUARE = jax.ShapeDtypeStruct((16, 16), jnp.float32)
_IMAGE = jax.ShapeDtypeStruct((2, 16, 16, 3), jnp.float32)
_FILTER = jax.ShapeDtypeStruct((3, 3, 3, 8), jnp.float32)

#: By name: the function and what it takes.
PROGRAMS: Mapping[str, tuple[Callable[..., Any], Sequence[Any]]] = {
    "add": (jnp.add, (_F, _F)),
    "add scalars": (jnp.add, (_S, _S)),
    "add a vector": (jnp.add, (_V, _V)),
    "add bf16": (jnp.add, (_H, _H)),
    "add integers": (jnp.add, (_I, _I)),
    "add a row": (jnp.add, (_F, jax.ShapeDtypeStruct((32,), jnp.float32))),
    "subtract": (jnp.subtract, (_F, _F)),
    "mul": (jnp.multiply, (_F, _F)),
    "mul by a scalar": (jnp.multiply, (_F, _S)),
    "divide": (jnp.divide, (_F, _F)),
    "integer remainder": (jnp.remainder, (_I, _N)),
    "power": (jnp.power, (_F, _F)),
    "maximum": (jnp.maximum, (_F, _F)),
    "negate": (jnp.negative, (_F,)),
    "exp": (jnp.exp, (_F,)),
    "log": (jnp.log, (_F,)),
    "sin": (jnp.sin, (_V,)),
    "tanh": (jnp.tanh, (_F,)),
    "sqrt": (jnp.sqrt, (_F,)),
    "square": (jnp.square, (_F,)),
    "abs": (jnp.abs, (_I,)),
    "isnan": (jnp.isnan, (_F,)),
    "greater": (jnp.greater, (_F, _F)),
    "equal": (jnp.equal, (_I, _I)),
    "logical and": (jnp.logical_and, (_B, _B)),
    "where": (jnp.where, (_B, _F, _F)),
    "clip": (lambda x: jnp.clip(x, 0.0, 1.0), (_F,)),
    "sum": (jnp.sum, (_F,)),
    "sum of rows": (lambda x: jnp.sum(x, axis=1), (_F,)),
    "sum of columns": (lambda x: jnp.sum(x, axis=0), (_F,)),
    "mean": (jnp.mean, (_F,)),
    "var": (jnp.var, (_F,)),
    "max": (jnp.max, (_V,)),
    "argmax": (jnp.argmax, (_V,)),
    "all": (jnp.all, (_B,)),
    "cumsum": (jnp.cumsum, (_V,)),
    "softmax": (jax.nn.softmax, (_F,)),
    "relu": (jax.nn.relu, (_F,)),
    "zeros": (lambda: jnp.zeros((64, 32)), ()),
    "broadcast": (lambda x: jnp.broadcast_to(x, (64, 32)), (_S,)),
    "arange": (lambda: lax.iota(jnp.int32, 1000), ()),
    "convert to f32": (lambda x: x.astype(jnp.float32), (_I,)),
    "convert to bf16": (lambda x: x.astype(jnp.bfloat16), (_F,)),
    "reshape": (lambda x: x.reshape(-1), (_F,)),
    "transpose": (jnp.transpose, (_F,)),
    "concatenate": (lambda x, y: jnp.concatenate([x, y]), (_F, _F)),
    "stack": (lambda x, y: jnp.stack([x, y]), (_V, _V)),
    "slice": (lambda x: x[2:20], (_V,)),
    "reverse": (lambda x: x[::-1], (_V,)),
    "x[i]": (lambda x, i: x[i], (_V, _N)),
    "dynamic slice": (lambda x, i: lax.dynamic_slice(x, (i,), (10,)), (_V, _N)),
    "dynamic update": (lambda x, i, y: lax.dynamic_update_slice(x, y[None], (i,)), (_V, _N, _S)),
    "gather": (lambda x, i: x[i], (_V, _I)),
    "scatter add": (lambda x, i, y: x.at[i].add(y), (_V, _I, _V)),
    "sort": (jnp.sort, (_V,)),
    "argsort": (jnp.argsort, (_V,)),
    "dot": (jnp.dot, (_F, _G)),
    "matrix by vector": (jnp.dot, (_F, jax.ShapeDtypeStruct((32,), jnp.float32))),
    "einsum": (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), (
        jax.ShapeDtypeStruct((4, 8, 8), jnp.float32), jax.ShapeDtypeStruct((4, 8, 8), jnp.float32),
    )),
    "convolution": (lambda x, w: lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")), (_IMAGE, _FILTER)),
    "cholesky": (jnp.linalg.cholesky, (_SQUARE,)),
    "random key": (jax.random.PRNGKey, (_N,)),
    "random split": (jax.random.split, (_K,)),
    "random bits": (lambda k: jax.random.bits(k, (64, 32)), (_K,)),
    "uniform": (lambda k: jax.random.uniform(k, (64, 32)), (_K,)),
    "normal": (lambda k: jax.random.normal(k, (64, 32)), (_K,)),
}  # fmt: skip


def calls() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Name, function and arguments with contents."""
    random = np.random.default_rng(0)
    for name, (function, shapes) in PROGRAMS.items():
        yield name, function, tuple(_content(random, s) for s in shapes)


def _content(random: np.random.Generator, shape: Any) -> np.ndarray[Any, Any]:
    dtype = np.dtype(shape.dtype)
    if dtype.kind in "iu":
        return random.integers(0, 100, shape.shape).astype(dtype)
    if dtype.kind == "b":
        return random.random(shape.shape) < 0.5
    if shape.shape == (16, 16):
        return np.eye(16, dtype=dtype) * 4
    return random.random(shape.shape).astype(dtype)
