"""Operators that draw random numbers: rows that take a key of JAX's first.

The bits are ThreeFry's of key and position, so they are the same on every mesh. They are not those of PyTorch's
generators; the distributions are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["ROWS"]

Row = Callable[..., Any]


def _uniform(key: Any, size: Sequence[int], dtype: Any, low: float = 0.0, high: float = 1.0) -> Any:
    dtype = jnp.dtype(dtype or jnp.float32)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        real = jnp.float64 if dtype == jnp.complex128 else jnp.float32
        return jax.lax.complex(*(jax.random.uniform(k, tuple(size), real) for k in jax.random.split(key)))
    return jax.random.uniform(key, tuple(size), dtype, low, high)


def _normal(key: Any, size: Sequence[int], dtype: Any, mean: Any = 0.0, std: Any = 1.0) -> Any:
    return jax.random.normal(key, tuple(size), jnp.dtype(dtype or jnp.float32)) * std + mean


def _whole(key: Any, size: Sequence[int], dtype: Any, low: int, high: int) -> Any:
    return jax.random.randint(key, tuple(size), low, high, jnp.int64).astype(jnp.dtype(dtype or jnp.int64))


def _any_whole(key: Any, x: Any) -> Any:
    """From 0 to what the type counts to."""
    if x.dtype == bool:
        return _whole(key, x.shape, x.dtype, 0, 2)
    whole = jnp.issubdtype(x.dtype, jnp.integer)
    most = int(jnp.iinfo(x.dtype).max) if whole else 2 ** (int(jnp.finfo(x.dtype).nmant) + 1)
    return _whole(key, x.shape, x.dtype, 0, min(most, 2**63 - 2) + 1)


def _bernoulli(key: Any, x: Any, p: float) -> Any:
    return jax.random.bernoulli(key, p, x.shape).astype(x.dtype)


def _multinomial(key: Any, weights: Any, count: int, replacement: bool = False) -> Any:
    logarithms = jnp.log(weights)
    if replacement:
        made = jax.random.categorical(key, logarithms, axis=-1, shape=(count, *weights.shape[:-1]))
        return jnp.moveaxis(made, 0, -1)
    order = jnp.argsort(-(logarithms + jax.random.gumbel(key, weights.shape, weights.dtype)), axis=-1)
    return order[..., :count]


def _random_relu(
    key: Any, x: Any, noise: Any, lower: float = 0.125, upper: float = 1 / 3, training: bool = False
) -> tuple[Any, Any]:
    """Negative numbers times slopes that are drawn, and the slopes; outside of training, times the mean slope."""
    if not training:
        return jnp.where(x > 0, x, x * ((lower + upper) / 2)), noise
    slopes = jnp.where(x > 0, jnp.ones((), x.dtype), jax.random.uniform(key, x.shape, x.dtype, lower, upper))
    return x * slopes, slopes


_TABLE: dict[str, Row] = {
    "aten.rand": lambda key, size, *, dtype=None, **_: _uniform(key, size, dtype),
    "aten.rand_like": lambda key, x, *, dtype=None, **_: _uniform(key, x.shape, dtype or x.dtype),
    "aten.randn": lambda key, size, *, dtype=None, **_: _normal(key, size, dtype),
    "aten.randn_like": lambda key, x, *, dtype=None, **_: _normal(key, x.shape, dtype or x.dtype),
    "aten.randint.default": lambda key, high, size, *, dtype=None, **_: _whole(key, size, dtype, 0, high),
    "aten.randint.low": lambda key, low, high, size, *, dtype=None, **_: _whole(key, size, dtype, low, high),
    "aten.randint_like.default": lambda key, x, high, *, dtype=None, **_: _whole(
        key, x.shape, dtype or x.dtype, 0, high
    ),
    "aten.randint_like.low_dtype": lambda key, x, low, high, *, dtype=None, **_: _whole(
        key, x.shape, dtype or x.dtype, low, high
    ),
    "aten.randperm.default": lambda key, n, *, dtype=None, **_: jax.random.permutation(key, n),
    "aten.random.default": _any_whole,
    "aten.random.to": lambda key, x, to: _whole(key, x.shape, x.dtype, 0, to),
    "aten.random.from": lambda key, x, low, to: _whole(key, x.shape, x.dtype, low, to),
    "aten.geometric": lambda key, x, p: jax.random.geometric(key, p, x.shape, jnp.int64).astype(x.dtype),
    "aten.bernoulli.p": _bernoulli,
    "aten.normal_functional": lambda key, x, mean=0.0, std=1.0: _normal(key, x.shape, x.dtype, mean, std),
    "aten.multinomial": _multinomial,
    "aten.poisson": lambda key, x: jax.random.poisson(key, x, dtype=jnp.int64).astype(x.dtype),
    "aten.rrelu_with_noise_functional": _random_relu,
    "prims.normal": lambda key, size, *, mean, std, dtype, **_: _normal(key, size, dtype, mean, std),
    "prims.uniform": lambda key, size, *, low, high, dtype, **_: _uniform(key, size, dtype, low, high),
}

#: The rows of this family.
ROWS: Mapping[str, Row] = _TABLE
