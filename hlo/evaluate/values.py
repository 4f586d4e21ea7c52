"""Run-time values of the evaluator and the NumPy types they are held in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.ir.types import DTYPES, DType, Shape

__all__ = ["COMPUTE", "Array", "Value", "cast", "flatten", "saturate", "unflatten", "wrap_bits"]

Array: TypeAlias = NDArray[Any]
#: An array, a tuple of values, or None for a token.
Value: TypeAlias = Any


def _compute_types() -> dict[np.dtype[Any], np.dtype[Any]]:
    out: dict[np.dtype[Any], np.dtype[Any]] = {}
    for d in DTYPES.values():
        if d.is_float and d.bits <= 16:
            out[d.numpy] = np.dtype(np.float32)
        elif d.is_integer and d.bits < 8:
            out[d.numpy] = np.dtype(np.int8 if d.kind == "signed" else np.uint8)
        elif d.bits:
            out[d.numpy] = d.numpy
    return out


#: The type that arithmetic on an array is done in: f32 for smaller floats, 8 bits for sub-byte integers, else its own.
COMPUTE: Mapping[np.dtype[Any], np.dtype[Any]] = MappingProxyType(_compute_types())
#: XLA makes NaN -0 in these.
_WITHOUT_NAN = frozenset(DTYPES[name].numpy for name in ("f4e2m1fn", "f6e2m3fn", "f6e3m2fn"))
_SUB_BYTE: Mapping[np.dtype[Any], DType] = MappingProxyType(
    {d.numpy: d for d in DTYPES.values() if d.is_integer and d.bits < 8}
)


def wrap_bits(values: Array, dtype: DType) -> Array:
    """Integers reduced to the width of ``dtype``, two's complement, in ``dtype``'s NumPy type."""
    if dtype.bits >= 8:
        return values.astype(dtype.numpy, copy=False)
    low = values.astype(np.uint8) & np.uint8(2**dtype.bits - 1)
    if dtype.kind == "unsigned":
        return low.astype(dtype.numpy)
    sign = np.uint8(1 << (dtype.bits - 1))
    return ((low ^ sign).view(np.int8) - np.int8(sign)).astype(dtype.numpy)


def saturate(values: Array, dtype: DType) -> Array:
    """Floats converted to integers: rounded towards zero, clamped to the range, NaN gives 0."""
    signed = dtype.kind == "signed"
    low = -(2 ** (dtype.bits - 1)) if signed else 0
    high = 2 ** (dtype.bits - signed) - 1
    wide = np.int64 if signed else np.uint64
    values = np.trunc(values.astype(np.float64, copy=False))
    above, below = values >= float(high + 1), values < float(low)
    whole = np.where(above | below | np.isnan(values), 0.0, values).astype(wide)
    whole = np.where(above, wide(high), np.where(below, wide(low), whole))
    return wrap_bits(whole, dtype)


def cast(values: Array, target: np.dtype[Any]) -> Array:
    """Results of arithmetic brought to the type they are stored in; no copy when they have it already."""
    if values.dtype == target:
        return values
    if target in _SUB_BYTE:
        return wrap_bits(values, _SUB_BYTE[target])
    if target in _WITHOUT_NAN:
        values = np.where(np.isnan(values), values.dtype.type(-0.0), values)
    return values.astype(target)


def flatten(value: Value) -> Iterator[Array]:
    """The arrays of a value, depth first; tokens are left out."""
    if isinstance(value, tuple):
        for v in value:
            yield from flatten(v)
    elif value is not None:
        yield value


def unflatten(shape: Shape, leaves: Iterator[Array]) -> Value:
    """A value of ``shape`` from its arrays, depth first."""
    if shape.is_tuple:
        return tuple(unflatten(e, leaves) for e in shape.elements)
    return next(leaves) if shape.is_array else None
