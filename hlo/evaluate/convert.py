"""Conversions between element types, of values and of bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

import ml_dtypes
import numpy as np

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.evaluate.arithmetic import view_unsigned
from shardc.hlo.evaluate.interpreter import Interpreter
from shardc.hlo.evaluate.values import COMPUTE, Array, Value, cast, saturate, wrap_bits
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DTYPES, DType

__all__ = ["bitcast_convert", "convert", "convert_values", "read_bits", "reduce_precision", "stochastic_convert"]

#: Where the bits of small types are rounded: in f16, or in f32 where f16 lacks their values.
_CARRIER = MappingProxyType(
    {
        d.numpy: np.float32 if d.name == "f8e8m0fnu" else np.float16
        for d in DTYPES.values()
        if d.is_float and d.bits <= 8
    }
)


def convert_values(m: Interpreter, x: Array, target: DType) -> Array:
    """Values of ``x`` in another element type: floats saturate to integers, integers wrap, pred is "not zero"."""
    x = x.astype(COMPUTE[x.dtype], copy=False)
    if x.dtype.kind == "c" and not target.is_complex:
        x = x.real
    if target.kind == "pred":
        return np.asarray(x != 0)
    if target.is_integer:
        return saturate(x, target) if x.dtype.kind == "f" else wrap_bits(x, target)
    return cast(x, m.storage_type(target))


def convert(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    if operands[0].dtype == m.storage_type(i.shape.dtype):
        return operands[0]  # type: ignore[no-any-return]
    return convert_values(m, operands[0], i.shape.dtype)


def read_bits(x: Array, source: DType, target: DType, dims: tuple[int, ...]) -> Array:
    """The bits of ``x`` as elements of another width; the lowest bits come first."""
    if source.bits >= 8 and target.bits >= 8:
        flat = np.ascontiguousarray(x).reshape(-1)
        return flat.view(target.numpy).reshape(dims)
    bits = _to_bits(x, source)
    size = math.prod(dims)
    return _from_bits(bits.reshape(size, -1), target).reshape(dims)


def _to_bits(x: Array, dtype: DType) -> Array:
    """One row of 0/1 per element, lowest bit first."""
    values = np.ascontiguousarray(x).reshape(-1).view(f"u{dtype.numpy.itemsize}")
    shifts = np.arange(dtype.bits, dtype=values.dtype)
    return np.asarray(((values[:, None] >> shifts) & values.dtype.type(1)).astype(np.uint8))


def _from_bits(bits: Array, dtype: DType) -> Array:
    unsigned = np.dtype(f"u{dtype.numpy.itemsize}")
    weights = np.left_shift(unsigned.type(1), np.arange(dtype.bits, dtype=unsigned))
    values = (bits.astype(unsigned) * weights).sum(axis=1, dtype=unsigned)
    return wrap_bits(values, dtype) if dtype.is_integer and dtype.bits < 8 else values.view(dtype.numpy)


def bitcast_convert(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    source, target = i.operands[0].shape.dtype, i.shape.dtype
    if source is not target and "pred" in (source.kind, target.kind):
        raise UnsupportedError(
            f"bitcast-convert from {source} to {target} is not supported", where=f"%{i.name}", fix="use convert"
        )
    x = operands[0].astype(source.numpy, copy=False)
    dims = x.shape
    if target.bits < source.bits:
        dims = (*dims, source.bits // target.bits)
    elif target.bits > source.bits:
        dims = dims[:-1]
    return read_bits(x, source, target, dims).astype(m.storage_type(target), copy=False)


def reduce_precision(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    """Round to a float of the given exponent and mantissa width; what is too small becomes zero.

    As in XLA, types of 8 bits and less take their exponent's range from f16.
    """
    x: Array = operands[0]
    carrier = _CARRIER.get(x.dtype)
    if carrier is None:
        return _reduce_precision(i, x)
    return cast(_reduce_precision(i, x.astype(carrier)).astype(np.float32), x.dtype)


def _reduce_precision(i: Instruction, x: Array) -> Array:
    exponent, mantissa = i.attrs["exponent_bits"], i.attrs["mantissa_bits"]
    info = ml_dtypes.finfo(x.dtype)
    bits = view_unsigned(x)
    kind = bits.dtype.type
    if mantissa < info.nmant:
        drop = info.nmant - mantissa
        last = (bits >> kind(drop)) & kind(1)
        bits = (bits + (kind((1 << (drop - 1)) - 1) + last)) & ~kind((1 << drop) - 1)
    if exponent < info.nexp:
        sign = bits & kind(1 << (8 * x.dtype.itemsize - 1))
        field = bits & kind(((1 << info.nexp) - 1) << info.nmant)
        full, small = (1 << (info.nexp - 1)) - 1, (1 << (exponent - 1)) - 1
        infinity = kind(((1 << info.nexp) - 1) << info.nmant)
        bits = np.where(field > kind((full + small) << info.nmant), sign | infinity, bits)
        bits = np.where(field <= kind((full - small) << info.nmant), sign, bits)
    return np.where(np.isnan(x), x, bits.view(x.dtype))


def stochastic_convert(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    """To integers: round up in magnitude when the random bits are less than the fraction."""
    x, random = operands
    target = i.shape.dtype
    if not target.is_integer:
        return convert_values(m, x, target)
    x = x.astype(np.float64)
    size = np.trunc(np.abs(x))
    fraction = np.where(np.isfinite(x), np.abs(x) - size, 0.0)
    up = random < np.ldexp(fraction, i.operands[1].shape.dtype.bits).astype(np.uint64)
    return saturate(np.copysign(size + up, x), target)
