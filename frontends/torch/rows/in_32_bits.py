"""Rows that compute 16-bit floats in 32 bits, as PyTorch's kernels on the CPU do.

Their results have 32 bits. `Operators.checked` converts them to the type that PyTorch says, so each is rounded once.
Operators that only move or choose elements, or round once by themselves, need none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["computes_wide", "in_32_bits", "is_narrow", "unless_exact", "widened"]

Row = Callable[..., Any]


def is_narrow(dtype: Any) -> bool:
    """Whether a type is a float of fewer than 32 bits."""
    return bool(jnp.issubdtype(dtype, jnp.floating)) and jnp.finfo(dtype).bits < 32


def widened(value: Any) -> Any:
    """An argument of a row, the arrays of narrow floats in it as float32."""
    if isinstance(value, (list, tuple)):
        return [widened(v) for v in value]
    return value.astype(jnp.float32) if isinstance(value, jax.Array) and is_narrow(value.dtype) else value


def in_32_bits(rows: Mapping[str, Row]) -> dict[str, Row]:
    """The rows of a table, each computing narrow floats in 32 bits."""
    return {name: partial(_in_32_bits, row) for name, row in rows.items()}


def unless_exact(rows: Mapping[str, Row]) -> dict[str, Row]:
    """The rows of a table that round once, in 32 bits where a plain number of theirs would be rounded before."""
    return {name: partial(_unless_exact, row) for name, row in rows.items()}


def computes_wide(row: Row) -> bool:
    """Whether a row may compute narrow floats in 32 bits."""
    return isinstance(row, partial) and row.func in (_in_32_bits, _unless_exact)


def _in_32_bits(row: Row, *args: Any, **kwargs: Any) -> Any:
    return row(*map(widened, args), **{name: widened(v) for name, v in kwargs.items()})


def _unless_exact(row: Row, *args: Any, **kwargs: Any) -> Any:
    types = [a.dtype for a in args if isinstance(a, jax.Array) and is_narrow(a.dtype)]
    numbers = [a for a in args if isinstance(a, (int, float))]
    inexact = "alpha" in kwargs or any(float(np.asarray(n).astype(t)) != n for n in numbers for t in types)
    return _in_32_bits(row, *args, **kwargs) if inexact else row(*args, **kwargs)
