"""bitcast-convert between types of different widths: a dimension of parts appears or disappears."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from llvmlite import ir

from shardc.compiler.elements.affine import Expr, Mask
from shardc.compiler.elements.arithmetic.registers import decode, encode, memory_type
from shardc.compiler.elements.elements import Elements, Index
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DTYPES, DType, array_shape
from shardc.native.math.vector import F64, constant, scalar_of, with_scalar

__all__ = ["bitcast_element", "scalar_op"]


@lru_cache(maxsize=4096)
def scalar_op(opcode: str, result: DType, *operands: DType) -> Instruction:
    """An elementwise instruction over scalars, for rules that need arithmetic of their own."""
    parameters = [Instruction("parameter", array_shape(d), attrs={"index": n}) for n, d in enumerate(operands)]
    return Instruction(opcode, array_shape(result), parameters)


def bitcast_element(e: Elements, i: Instruction, index: Index, mask: Mask) -> Any:
    """The element of a bitcast-convert; the least significant part comes first."""
    operand = i.operands[0]
    source, target = operand.shape.dtype, i.shape.dtype
    if source.bits == target.bits:
        return e.compute(lambda b, x: _read(b, _bits(b, x, source), target), [e.value(operand, index, mask)])
    if source.bits > target.bits:
        distance = e.iota(index[-1] * target.bits, DTYPES["u64"])

        def part(b: ir.IRBuilder, x: Any, by: ir.Value) -> Any:
            whole = _bits(b, x, source)
            shifted = b.lshr(whole, _resize(b, by, scalar_of(whole.type).width))
            return _read(b, _resize(b, shifted, target.bits), target)

        return e.compute(part, [e.value(operand, index[:-1], mask), distance])

    def join(b: ir.IRBuilder, *parts: Any) -> Any:
        wide = [_resize(b, _bits(b, x, source), target.bits) for x in parts]
        total = wide[0]
        for k, x in enumerate(wide[1:], 1):
            total = b.or_(total, b.shl(x, constant(x.type, k * source.bits)))
        return _read(b, total, target)

    return e.compute(join, [e.value(operand, (*index, Expr(k)), mask) for k in range(target.bits // source.bits)])


def _resize(b: ir.IRBuilder, x: ir.Value, bits: int) -> ir.Value:
    goal = with_scalar(x.type, ir.IntType(bits))
    have = scalar_of(x.type).width
    return x if have == bits else b.trunc(x, goal) if have > bits else b.zext(x, goal)


def _bits(b: ir.IRBuilder, x: Any, dtype: DType) -> ir.Value:
    """Register form as an integer of exactly the type's width; the real part of a complex number is the low half."""
    if dtype.is_complex:
        low, high = (_resize(b, _integer(b, p), dtype.bits) for p in x)
        return b.or_(low, b.shl(high, constant(high.type, dtype.bits // 2)))
    return _resize(b, _integer(b, encode(b, x, dtype)), dtype.bits)


def _integer(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    scalar = scalar_of(x.type)
    if isinstance(scalar, ir.IntType):
        return x
    return b.bitcast(x, with_scalar(x.type, ir.IntType(64 if scalar == F64 else 32)))


def _read(b: ir.IRBuilder, bits: ir.Value, dtype: DType) -> Any:
    """The inverse of `_bits`."""
    if dtype.is_complex:
        half = dtype.bits // 2
        real = with_scalar(bits.type, memory_type(dtype))
        parts = (bits, b.lshr(bits, constant(bits.type, half)))
        return tuple(b.bitcast(_resize(b, p, half), real) for p in parts)
    if dtype.is_integer:
        return bits
    stored = with_scalar(bits.type, memory_type(dtype))
    if isinstance(scalar_of(stored), ir.IntType):
        return decode(b, _resize(b, bits, scalar_of(stored).width), dtype)
    return b.bitcast(bits, stored)
