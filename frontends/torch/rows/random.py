"""Operators that draw random numbers, by JAX's counter-based generator.

Each takes a key before its arguments. A number depends on the key and on its place in the whole array, so a program
draws the same numbers on every mesh. They are not those that PyTorch's own generator gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["ROWS"]


def _float(dtype: Any) -> Any:
    return jnp.dtype(dtype if dtype is not None else "float32")


def _uniform(key: Any, size: Sequence[int], dtype: Any) -> Any:
    """Numbers of [0, 1), drawn in 32 bits at least."""
    wide = jnp.promote_types(dtype, jnp.float32)
    return jax.random.uniform(key, tuple(size), wide).astype(dtype)


def _normal(key: Any, size: Sequence[int], dtype: Any) -> Any:
    wide = jnp.promote_types(dtype, jnp.float32)
    return jax.random.normal(key, tuple(size), wide).astype(dtype)


def _rand(key: Any, size: Sequence[int], *, dtype: Any = None, **_: Any) -> Any:
    return _uniform(key, size, _float(dtype))


def _randn(key: Any, size: Sequence[int], *, dtype: Any = None, **_: Any) -> Any:
    return _normal(key, size, _float(dtype))


def _like(draw: Callable[..., Any]) -> Callable[..., Any]:
    return lambda key, x, *, dtype=None, **_: draw(key, x.shape, jnp.dtype(dtype or x.dtype))


def _bernoulli(key: Any, x: Any, p: Any = None, **_: Any) -> Any:
    """One with the probability ``p``, or with those that ``x`` has."""
    limit = x if p is None else p
    return (jax.random.uniform(key, x.shape, jnp.float32) < limit).astype(x.dtype)


def _integers(key: Any, size: Sequence[int], low: int, high: int, dtype: Any) -> Any:
    return jax.random.randint(key, tuple(size), low, high, jnp.int64).astype(dtype or jnp.int64)


def _dropout(key: Any, x: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    if train is False or p == 0:
        return x, jnp.ones(x.shape, bool)
    if p == 1:
        return jnp.zeros_like(x), jnp.zeros(x.shape, bool)
    keep = jax.random.uniform(key, x.shape, jnp.float32) >= p
    return jnp.where(keep, x * (1 / (1 - p)), jnp.zeros_like(x)), keep


_TABLE: dict[str, Callable[..., Any]] = {
    "rand": _rand,
    "randn": _randn,
    "rand_like": _like(_uniform),
    "randn_like": _like(_normal),
    "bernoulli": _bernoulli,
    "native_dropout": _dropout,
    "randint": lambda key, high, size, *, dtype=None, **_: _integers(key, size, 0, high, dtype),
    "randint.low": lambda key, low, high, size, *, dtype=None, **_: _integers(key, size, low, high, dtype),
    "randint_like": lambda key, x, high, *, dtype=None, **_: _integers(key, x.shape, 0, high, dtype or x.dtype),
    "randint_like.low_dtype": lambda key, x, low, high, *, dtype=None, **_: _integers(
        key, x.shape, low, high, dtype or x.dtype
    ),
    "randperm": lambda key, n, *, dtype=None, **_: jax.random.permutation(key, n).astype(dtype or jnp.int64),
    "uniform": lambda key, x, low=0.0, high=1.0, **_: low + (high - low) * _uniform(key, x.shape, x.dtype),
    "normal_functional": lambda key, x, mean=0.0, std=1.0, **_: mean + std * _normal(key, x.shape, x.dtype),
    "exponential": lambda key, x, rate=1.0, **_: -jnp.log1p(-_uniform(key, x.shape, x.dtype)) / rate,
}

#: The rows of this family; each function takes a key first.
ROWS: Mapping[str, Callable[..., Any]] = {f"aten.{name}": function for name, function in _TABLE.items()}
