"""Elementwise rules for integers and pred (lanes of the type's own width; signedness from the element type)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from llvmlite import ir

from shardc.compiler.elements.arithmetic.floats import COMPARISON
from shardc.compiler.elements.arithmetic.registers import ElementOp
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import F32, F64, I1, I32, constant, intrinsic, lanes_of, scalar_of, with_scalar, zero

__all__ = ["INTEGER"]


def _signed(dtype: DType) -> bool:
    return dtype.kind == "signed"


def _plain(method: str, pred: str = "") -> Callable[..., ir.Value]:
    """A builder method; ``pred`` is the method for pred operands where it differs."""

    def rule(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
        name = pred if pred and op.operands[0].kind == "pred" else method
        return getattr(b, name)(x, y)

    return rule


def _extreme(signed: str, unsigned: str) -> Callable[..., ir.Value]:
    def rule(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
        if op.operands[0].kind == "pred":
            return b.or_(x, y) if unsigned == "llvm.umax" else b.and_(x, y)
        return intrinsic(b, signed if _signed(op.operands[0]) else unsigned, x.type, [x, y])

    return rule


def _division(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(divisor is zero, a divisor that cannot trap); the lowest value over -1 divides by 1 instead."""
    none = b.icmp_unsigned("==", y, constant(y.type, 0))
    bad = none
    if _signed(op.operands[0]):
        lowest = 1 << (scalar_of(x.type).width - 1)
        minus_one = b.icmp_unsigned("==", y, constant(y.type, -1))
        bad = b.or_(none, b.and_(minus_one, b.icmp_unsigned("==", x, constant(x.type, -lowest))))
    return none, b.select(bad, constant(y.type, 1), y)


def _divide(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
    none, safe = _division(b, op, x, y)
    return b.select(none, constant(x.type, -1), _quotient(b, op, x, safe))


def _remainder(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
    none, safe = _division(b, op, x, y)
    return b.select(none, x, b.sub(x, b.mul(_quotient(b, op, x, safe), safe)))


def _quotient(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
    """x / y for divisors that cannot trap. CPUs divide floats in vectors, integers not: up to 16 bits in f32, up to 32
    in f64 the truncated quotient is exact, because a quotient below a whole number stays below it when rounded."""
    signed, width = _signed(op.operands[0]), scalar_of(x.type).width
    if lanes_of(x.type) == 1 or width > 32 or isinstance(y, ir.Constant):
        return b.sdiv(x, y) if signed else b.udiv(x, y)
    real = with_scalar(x.type, F32 if width <= 16 else F64)
    wide = with_scalar(x.type, I32)
    extend, to_real = (b.sext, b.sitofp) if signed else (b.zext, b.uitofp)
    u, v = (to_real(extend(z, wide) if width < 32 else z, real) for z in (x, y))
    quotient = (b.fptosi if signed or width < 32 else b.fptoui)(b.fdiv(u, v), wide)
    return b.trunc(quotient, x.type) if width < 32 else quotient


def _shift(method: str) -> Callable[..., ir.Value]:
    """Shifts by the width or more give 0, or all sign bits."""

    def rule(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
        width = scalar_of(x.type).width
        inside = b.icmp_unsigned("<", y, constant(y.type, width)) if width > 1 else b.not_(y)
        if method == "ashr":
            return b.ashr(x, b.select(inside, y, constant(y.type, width - 1)))
        shifted = getattr(b, method)(x, b.select(inside, y, zero(y.type)))
        return b.select(inside, shifted, zero(x.type))

    return rule


def _power(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
    """By squaring, modulo 2**width; a negative exponent leaves only what 1 and -1 give."""
    width = scalar_of(x.type).width
    one = constant(x.type, 1)
    total: ir.Value = one
    base = x
    for bit in range(width):
        chosen = b.trunc(b.lshr(y, constant(y.type, bit)), with_scalar(x.type, I1)) if width > 1 else y
        total = b.select(chosen, b.mul(total, base), total)
        base = b.mul(base, base)
    if not _signed(op.operands[1]):
        return total
    unit = b.icmp_unsigned("==", x, one)
    minus = b.icmp_unsigned("==", x, constant(x.type, -1))
    negative = b.icmp_signed("<", y, zero(y.type))
    rest = b.select(b.or_(unit, minus), total, zero(x.type))
    return b.select(negative, rest, total)


def _compare(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
    compare = b.icmp_signed if _signed(op.operands[0]) else b.icmp_unsigned
    return compare(COMPARISON[op.attrs["direction"]], x, y)


def _negate(b: ir.IRBuilder, op: ElementOp, x: ir.Value) -> ir.Value:
    return b.sub(zero(x.type), x)


def _abs(b: ir.IRBuilder, op: ElementOp, x: ir.Value) -> ir.Value:
    if not _signed(op.operands[0]):
        return x
    return b.select(b.icmp_signed("<", x, zero(x.type)), b.sub(zero(x.type), x), x)


def _sign(b: ir.IRBuilder, op: ElementOp, x: ir.Value) -> ir.Value:
    nonzero = b.zext(b.icmp_unsigned("!=", x, zero(x.type)), x.type)
    if not _signed(op.operands[0]):
        return nonzero
    return b.or_(b.ashr(x, constant(x.type, scalar_of(x.type).width - 1)), nonzero)


def _not(b: ir.IRBuilder, op: ElementOp, x: ir.Value) -> ir.Value:
    return b.xor(x, constant(x.type, 1 if scalar_of(x.type) == I1 else -1))


def _popcnt(b: ir.IRBuilder, op: ElementOp, x: ir.Value) -> ir.Value:
    return intrinsic(b, "llvm.ctpop", x.type, [x])


def _clz(b: ir.IRBuilder, op: ElementOp, x: ir.Value) -> ir.Value:
    if op.operands[0].kind == "pred":
        return constant(x.type, 1)  # 7 or 8 of its 8 bits: never zero
    return intrinsic(b, "llvm.ctlz", x.type, [x, constant(I1, 0)])


INTEGER: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add": _plain("add", "or_"),
        "subtract": _plain("sub"),
        "multiply": _plain("mul", "and_"),
        "and": _plain("and_"),
        "or": _plain("or_"),
        "xor": _plain("xor"),
        "divide": _divide,
        "remainder": _remainder,
        "maximum": _extreme("llvm.smax", "llvm.umax"),
        "minimum": _extreme("llvm.smin", "llvm.umin"),
        "power": _power,
        "shift-left": _shift("shl"),
        "shift-right-logical": _shift("lshr"),
        "shift-right-arithmetic": _shift("ashr"),
        "compare": _compare,
        "negate": _negate,
        "abs": _abs,
        "sign": _sign,
        "not": _not,
        "popcnt": _popcnt,
        "count-leading-zeros": _clz,
    }
)
