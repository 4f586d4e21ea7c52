"""Arithmetic with cheaper or fewer operations and the same results: exact for floats, modulo 2^n for integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, scalar_value, splat_source
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import DType, Shape

__all__ = ["RULES"]

#: Their results are not element by element, or not a function of the operands.
_KEPT = frozenset({"map", "stochastic-convert", "bitcast-convert", "copy"})
#: Significand bits, and the least exponent of a normal number.
_FLOATS: Mapping[str, tuple[int, int]] = {"bf16": (8, -126), "f16": (11, -14), "f32": (24, -126), "f64": (53, -1022)}


def _splat(value: Any, shape: Shape, like: Instruction) -> Instruction:
    literal = Literal(np.array(value).astype(shape.dtype.numpy).reshape(()))
    return broadcast_scalar(constant(literal, like), shape.dims, like)


def same_operands(i: Instruction) -> Instruction | None:
    """x - x and x ^ x of integers are 0; the larger and the smaller of x and x are x."""
    a, b = i.operands
    if a is not b:
        return None
    if i.opcode in ("maximum", "minimum"):
        return a
    return _splat(0, i.shape, i) if i.shape.dtype.is_integer else None


def combine_integer_constants(i: Instruction) -> Instruction | None:
    """(x + c) + d is x + (c + d), and the same for products, modulo the integer's size."""
    dtype = i.shape.dtype
    if not dtype.is_integer or dtype.bits < 8:
        return None
    x, d = _constant_last(i)
    if d is None or x.opcode != i.opcode:
        return None
    x, c = _constant_last(x)
    if c is None:
        return None
    joined = int(c) + int(d) if i.opcode == "add" else int(c) * int(d)
    return make(i.opcode, i.shape, (x, _splat(_wrap_integer(joined, dtype), i.shape, i)), i)


def _constant_last(i: Instruction) -> tuple[Instruction, Any]:
    a, b = i.operands
    value = scalar_value(b)
    return (a, value) if value is not None else (b, scalar_value(a))


def _wrap_integer(value: int, dtype: DType) -> int:
    value %= 1 << dtype.bits
    return value - (1 << dtype.bits) if dtype.kind == "signed" and value >> (dtype.bits - 1) else value


def merge_add_negate(i: Instruction) -> Instruction | None:
    """a + (-b) is a - b."""
    a, b = i.operands
    if b.opcode == "negate":
        return make("subtract", i.shape, (a, b.operands[0]), i)
    return make("subtract", i.shape, (b, a.operands[0]), i) if a.opcode == "negate" else None


def merge_subtract_negate(i: Instruction) -> Instruction | None:
    """a - (-b) is a + b."""
    a, b = i.operands
    return make("add", i.shape, (a, b.operands[0]), i) if b.opcode == "negate" else None


def drop_both_negations(i: Instruction) -> Instruction | None:
    """(-a) * (-b) is a * b, and so for quotients; integers' lowest values divide in their own way."""
    a, b = i.operands
    if a.opcode != "negate" or b.opcode != "negate" or (i.opcode == "divide" and not i.shape.dtype.is_float):
        return None
    return make(i.opcode, i.shape, (a.operands[0], b.operands[0]), i)


def drop_negation_in_abs(i: Instruction) -> Instruction | None:
    """|-x| is |x|, and so is ||x||."""
    inner = i.operands[0]
    if inner.opcode == "negate" and not i.operands[0].shape.dtype.is_complex:
        return make("abs", i.shape, inner.operands, i)
    return inner if inner.opcode == "abs" and inner.shape == i.shape else None


def divide_by_power_of_two(i: Instruction) -> Instruction | None:
    """x / 2^n is x * 2^-n, to the bit, where 2^-n is a normal number."""
    dtype, value = i.shape.dtype, scalar_value(i.operands[1])
    if value is None or dtype.name not in _FLOATS or not math.isfinite(float(value)) or float(value) == 0:
        return None
    fraction, exponent = math.frexp(float(value))
    # value = +-2^(exponent - 1), so its inverse is +-2^(1 - exponent)
    _, least = _FLOATS[dtype.name]
    if abs(fraction) != 0.5 or not least <= 1 - exponent <= -least:
        return None
    return make("multiply", i.shape, (i.operands[0], _splat(1 / float(value), i.shape, i)), i)


def power_by_constant(i: Instruction) -> Instruction | None:
    """x to the power of 1 is x, to that of 2 it is x * x."""
    x = i.operands[0]
    value = scalar_value(i.operands[1])
    if value is None or i.shape.dtype.is_complex:
        return None
    if value == 1:
        return x
    return make("multiply", i.shape, (x, x), i) if value == 2 else None


def part_of_complex(i: Instruction) -> Instruction | None:
    """real(complex(a, b)) is a, imag of it is b."""
    inner = i.operands[0]
    return inner.operands[i.opcode == "imag"] if inner.opcode == "complex" else None


def complex_of_parts(i: Instruction) -> Instruction | None:
    """complex(real(x), imag(x)) is x."""
    a, b = i.operands
    if (a.opcode, b.opcode) != ("real", "imag") or a.operands[0] is not b.operands[0]:
        return None
    return a.operands[0] if a.operands[0].shape.plain == i.shape.plain else None


def convert_of_iota(i: Instruction) -> Instruction | None:
    """Counting in another type, where both types hold every count."""
    inner = i.operands[0]
    if inner.opcode != "iota":
        return None
    last = inner.shape.dims[inner.attrs["iota_dimension"]] - 1
    if last > _exact_up_to(inner.shape.dtype) or last > _exact_up_to(i.shape.dtype):
        return None
    return make("iota", i.shape, (), i, **inner.attrs)


def _exact_up_to(dtype: DType) -> int:
    """All whole numbers from 0 to this are values of the type."""
    if dtype.is_integer:
        return (1 << (dtype.bits - (dtype.kind == "signed"))) - 1
    return 1 << _FLOATS[dtype.name][0] if dtype.name in _FLOATS else -1


def compute_before_broadcast(i: Instruction) -> Instruction | None:
    """An operation on values that are broadcast alike is done once per value, before the broadcast."""
    wide = [o for o in i.operands if splat_source(o) is None]
    if not wide or any(o.opcode != "broadcast" for o in wide) or i.opcode in _KEPT:
        return None
    source, dimensions = wide[0].operands[0], wide[0].attrs["dimensions"]
    alike = all(o.operands[0].shape.dims == source.shape.dims and o.attrs["dimensions"] == dimensions for o in wide)
    if not alike or 2 * source.shape.size > i.shape.size or not i.shape.is_array:
        return None
    dims = source.shape.dims
    narrow = [
        o.operands[0] if o in wide else broadcast_scalar(_source(o), dims if o.shape.dims else (), i)
        for o in i.operands
    ]  # fmt: skip
    inner = make(i.opcode, i.shape.with_dims(dims), narrow, i, **i.attrs)
    return make("broadcast", i.shape, (inner,), i, dimensions=dimensions)


def _source(o: Instruction) -> Instruction:
    source = splat_source(o)
    assert source is not None
    return source


_SPECIFIC: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "add": (combine_integer_constants, merge_add_negate),
    "subtract": (same_operands, merge_subtract_negate),
    "multiply": (combine_integer_constants, drop_both_negations),
    "divide": (divide_by_power_of_two, drop_both_negations),
    "maximum": (same_operands,),
    "minimum": (same_operands,),
    "xor": (same_operands,),
    "abs": (drop_negation_in_abs,),
    "power": (power_by_constant,),
    "real": (part_of_complex,),
    "imag": (part_of_complex,),
    "complex": (complex_of_parts,),
    "convert": (convert_of_iota,),
}

RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    opcode: (*_SPECIFIC.get(opcode, ()), compute_before_broadcast)
    for opcode, row in OPS.items()
    if row.family == "elementwise"
}
