"""How elements look in memory and in registers.

============== ==================== ==========================================================
element type   in memory            in registers
============== ==================== ==========================================================
pred           i8, 0 or 1           i1
s2..s64, u..   iN (sub-byte: i8)    iN of the type's own width
f32, f64       float, double        the same
f16, bf16, f8  i16, i8              float; every result is rounded to the type's values
c64, c128      two floats           two values
============== ==================== ==========================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from shardc.hlo.ir.types import DType
from shardc.native.math.small_floats import decode_float, encode_float
from shardc.native.math.vector import F32, F64, I1, I8, constant, lanes_of, with_lanes

__all__ = ["ElementOp", "decode", "encode", "is_small_float", "memory_type", "part_count", "register_type"]


@dataclass(frozen=True, slots=True)
class ElementOp:
    """What a rule may ask about its instruction; ``wide`` leaves results of small float types unrounded."""

    opcode: str
    operands: tuple[DType, ...]
    result: DType
    attrs: Mapping[str, Any]
    wide: bool = False


def is_small_float(dtype: DType) -> bool:
    """Whether arithmetic of this type is done in f32 and rounded."""
    return dtype.is_float and dtype.bits < 32


def part_count(dtype: DType) -> int:
    """LLVM values that an element takes in registers: two for complex numbers."""
    return 2 if dtype.is_complex else 1


def memory_type(dtype: DType) -> ir.Type:
    """The scalar type of one stored part."""
    if dtype.name in ("f32", "c64"):
        return F32
    if dtype.name in ("f64", "c128"):
        return F64
    return ir.IntType(dtype.nbytes * 8)


def register_type(dtype: DType, lanes: int = 1) -> ir.Type:
    """The type of one part in registers."""
    if dtype.kind == "pred":
        scalar: ir.Type = I1
    elif dtype.is_integer:
        scalar = ir.IntType(dtype.bits)
    elif is_small_float(dtype):
        scalar = F32
    else:
        scalar = memory_type(dtype)
    return with_lanes(scalar, lanes)


def decode(b: ir.IRBuilder, stored: ir.Value, dtype: DType) -> ir.Value:
    """From memory form to register form."""
    lanes = lanes_of(stored.type)
    if dtype.kind == "pred":
        return b.icmp_unsigned("!=", stored, constant(stored.type, 0))
    if dtype.is_integer and dtype.bits < 8:
        return b.trunc(stored, register_type(dtype, lanes))
    if is_small_float(dtype):
        return decode_float(b, stored, dtype)
    return stored


def encode(b: ir.IRBuilder, value: ir.Value, dtype: DType) -> ir.Value:
    """From register form to memory form; the value of a small float must be one of the type's values."""
    lanes = lanes_of(value.type)
    if dtype.kind == "pred":
        return b.zext(value, with_lanes(I8, lanes))
    if dtype.is_integer and dtype.bits < 8:
        extend = b.sext if dtype.kind == "signed" else b.zext
        return extend(value, with_lanes(I8, lanes))
    if is_small_float(dtype):
        return encode_float(b, value, dtype)
    return value
