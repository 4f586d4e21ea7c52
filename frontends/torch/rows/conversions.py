"""Conversion of element types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

__all__ = ["ROWS", "converted"]

#: A type without an infinity, in which PyTorch takes its largest number for all that are larger.
_SATURATING = np.dtype(ml_dtypes.float8_e4m3fn)


def converted(x: Any, dtype: Any) -> Any:
    """``x`` as ``dtype``, with the numbers that PyTorch has for those beyond that type."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating) and not jnp.issubdtype(dtype, jnp.complexfloating):
        x = jnp.real(x)
    if dtype == _SATURATING and x.dtype != dtype:
        largest = float(ml_dtypes.finfo(_SATURATING).max)
        x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.float32)
        x = jnp.clip(x, -largest, largest) if float(jnp.finfo(x.dtype).max) > largest else x
    return x.astype(dtype)


def _to_copy(x: Any, *, dtype: Any = None, **_: Any) -> Any:
    return x if dtype is None else converted(x, dtype)


#: The rows of this family.
ROWS: Mapping[str, Callable[..., Any]] = {
    "aten._to_copy": _to_copy,
    "prims.convert_element_type": lambda x, dtype: converted(jnp.asarray(x), dtype),
}
