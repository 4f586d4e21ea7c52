"""Pieces that the elementary functions share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from llvmlite import ir

from shardc.native.math.vector import F32, I1, I32, constant, intrinsic, lanes_of, scalar_of, undef

__all__ = [
    "by_lane",
    "copysign",
    "fma",
    "is_nan",
    "magnitude",
    "polynomial",
    "power_cases",
    "power_of_two",
    "square_root",
    "unless_huge",
]


def unless_huge(b: ir.IRBuilder, name: str, x: ir.Value, huge: ir.Value, fast: Callable[[], ir.Value]) -> ir.Value:
    """``fast()`` where no lane of ``x`` is ``huge``, libm's ``name`` for the whole vector otherwise."""
    if lanes_of(x.type) > 1:
        huge = intrinsic(b, "llvm.vector.reduce.or", I1, [huge])
    value = fast()
    start = b.block
    with b.if_then(huge, likely=False):
        exact = by_lane(b, name, x)
        end = b.block
    result = b.phi(x.type)
    result.add_incoming(value, start)
    result.add_incoming(exact, end)
    return result


def by_lane(b: ir.IRBuilder, name: str, *arguments: ir.Value) -> ir.Value:
    """libm's function on each lane; in modules that may not call libm, code of the same meaning."""
    t = arguments[0].type
    scalar = scalar_of(t)
    symbol = name + ("f" if scalar == F32 else "")
    function = _library_function(b.module, symbol, scalar, len(arguments))
    if lanes_of(t) == 1:
        return b.call(function, arguments)
    result: ir.Value = undef(t)
    for lane in range(lanes_of(t)):
        at = constant(I32, lane)
        value = b.call(function, [b.extract_element(a, at) for a in arguments])
        result = b.insert_element(result, value, at)
    return result


def _library_function(module: ir.Module, symbol: str, scalar: ir.Type, arity: int) -> ir.Function:
    if not getattr(module, "has_libm", True):
        from shardc.native.math.large import library_function

        return library_function(module, symbol)
    function = module.globals.get(symbol)
    return function or ir.Function(module, ir.FunctionType(scalar, [scalar] * arity), symbol)


def polynomial(b: ir.IRBuilder, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """Horner's rule, highest power first."""
    total: ir.Value = constant(x.type, coefficients[0])
    for c in coefficients[1:]:
        total = fma(b, total, x, constant(x.type, c))
    return total


def fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """x * y + z, fused where the target can."""
    return intrinsic(b, "llvm.fmuladd", x.type, [x, y, z])


def power_of_two(b: ir.IRBuilder, n: ir.Value, real: ir.Type) -> ir.Value:
    """2**n in lanes of type ``real`` for integer lanes of the same width, n in the range of normal exponents."""
    bias, mantissa = (127, 23) if scalar_of(real) == F32 else (1023, 52)
    bits = b.shl(b.add(n, constant(n.type, bias)), constant(n.type, mantissa))
    return b.bitcast(bits, real)


def whole(b: ir.IRBuilder, x: ir.Value, factor: float) -> ir.Value:
    """x * factor rounded to a whole number, for small ones: by a sum that has no room for fractions.

    Plain SSE2 has no instruction for it, and would call libm for each lane.
    """
    magic = constant(x.type, 1.5 * 2.0 ** (23 if scalar_of(x.type) == F32 else 52))
    return b.fsub(fma(b, x, constant(x.type, factor), magic), magic)


def is_nan(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return b.fcmp_unordered("uno", x, x)


def magnitude(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return intrinsic(b, "llvm.fabs", x.type, [x])


def copysign(b: ir.IRBuilder, x: ir.Value, sign: ir.Value) -> ir.Value:
    return intrinsic(b, "llvm.copysign", x.type, [x, sign])


def square_root(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return intrinsic(b, "llvm.sqrt", x.type, [x])


def logistic_from(b: ir.IRBuilder, x: ir.Value, e: ir.Value) -> ir.Value:
    """1 / (1 + exp(-x)) given ``e = exp(-|x|)``, so that neither tail overflows or loses its denormals."""
    one = constant(x.type, 1.0)
    above = b.fdiv(one, b.fadd(one, e))
    return b.select(b.fcmp_ordered("<", x, constant(x.type, 0.0)), b.fmul(e, above), above)


def scaled(b: ir.IRBuilder, p: ir.Value, n: ir.Value) -> ir.Value:
    """p * 2**n in two factors, so that results become denormal or infinite in one rounding."""
    half = b.ashr(n, constant(n.type, 1))
    return b.fmul(b.fmul(p, power_of_two(b, half, p.type)), power_of_two(b, b.sub(n, half), p.type))


def power_cases(b: ir.IRBuilder, x: ir.Value, y: ir.Value, value: ir.Value) -> ir.Value:
    """IEEE 754's pow(x, y) given ``value = exp(y log|x|)``: its sign, and what is no such product."""
    t = x.type
    c = partial(constant, t)
    whole = b.fcmp_ordered("==", intrinsic(b, "llvm.trunc", t, [y]), y)
    half = b.fmul(y, c(0.5))
    odd = b.and_(whole, b.fcmp_unordered("!=", intrinsic(b, "llvm.trunc", t, [half]), half))
    negative = b.fcmp_ordered("<", x, c(0.0))
    value = b.select(b.and_(odd, b.fcmp_ordered("<", copysign(b, c(1.0), x), c(0.0))), b.fneg(value), value)
    infinite = b.fcmp_ordered("==", magnitude(b, y), c(math.inf))
    a = magnitude(b, x)
    finite_base = b.fcmp_ordered("<", a, c(math.inf))
    bad = b.and_(b.and_(negative, finite_base), b.and_(b.not_(whole), b.not_(infinite)))
    value = b.select(bad, c(math.nan), value)
    value = b.select(b.and_(infinite, b.fcmp_ordered("==", a, c(1.0))), c(1.0), value)
    value = b.select(b.fcmp_unordered("uno", x, y), b.fadd(x, y), value)
    unit = b.or_(b.fcmp_ordered("==", x, c(1.0)), b.fcmp_ordered("==", y, c(0.0)))
    return b.select(unit, c(1.0), value)
