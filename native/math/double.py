"""Elementary functions of f64 lanes.

`exp` and `logistic` are good to about an ulp of f64. The others serve f32 (rounded once at the end): their error is
some 1e-12 relative, which is far below half an ulp there, and their range is that of f32 arguments.
"""

from __future__ import annotations

import math
from functools import partial

from llvmlite import ir

from shardc.native.math.common import (
    copysign,
    fma,
    is_nan,
    logistic_from,
    magnitude,
    polynomial,
    scaled,
    square_root,
    whole,
)
from shardc.native.math.vector import I64, constant, with_scalar

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan2",
    "atanh",
    "cbrt",
    "cosh",
    "exp",
    "log",
    "log1p",
    "logistic",
    "sinh",
]

_EXP = (
    2.0918136198258855e-9, 2.5105215165649368e-8, 2.755726328311978e-7, 2.75572554044176e-6, 2.480158733643862e-5,
    1.9841269874817515e-4, 1.3888888888879075e-3, 8.333333333326136e-3, 4.166666666666668e-2, 0.1666666666666667, 0.5,
)  # fmt: skip
_ATANH = (
    7.308610050851845e-2, 7.665827264432241e-2, 9.0914456571345e-2, 0.11111105550939514, 0.14285714313099557,
    0.19999999999949475, 0.3333333333333335,
)  # fmt: skip
_ATAN = (
    -2.7265540351420346e-2, 5.1710930815793185e-2, -6.551541869850165e-2, 7.681138094302704e-2, -9.090263489867731e-2,
    0.11111089981549986, -0.14285713937581804, 0.19999999997784446, -0.33333333333331006,
)  # fmt: skip
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10


def exp(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    t = x.type
    clamped = b.select(b.fcmp_ordered(">", x, constant(t, -746.0)), x, constant(t, -746.0))
    clamped = b.select(b.fcmp_ordered("<", clamped, constant(t, 710.0)), clamped, constant(t, 710.0))
    n = whole(b, clamped, 1 / math.log(2))
    r = fma(b, n, constant(t, -_LN2_HIGH), clamped)
    r = fma(b, n, constant(t, -_LN2_LOW), r)
    p = b.fadd(fma(b, b.fmul(r, r), polynomial(b, r, _EXP), r), constant(t, 1.0))
    return b.select(is_nan(b, x), x, scaled(b, p, b.fptosi(n, with_scalar(t, I64))))


def logistic(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return logistic_from(b, x, exp(b, b.fneg(magnitude(b, x))))


def log(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Of zero, positive normal numbers, infinity and NaN; negative numbers give NaN."""
    t = x.type
    integer = with_scalar(t, I64)
    root_half = 0x3FE6A09E667F3BCD
    shifted = b.sub(b.bitcast(x, integer), constant(integer, root_half))
    e = b.sitofp(b.ashr(shifted, constant(integer, 52)), t)
    mantissa = b.add(b.and_(shifted, constant(integer, (1 << 52) - 1)), constant(integer, root_half))
    m = b.bitcast(mantissa, t)
    one = constant(t, 1.0)
    s = b.fdiv(b.fsub(m, one), b.fadd(m, one))
    z = b.fmul(s, s)
    y = fma(b, b.fmul(polynomial(b, z, _ATANH), z), s, s)
    y = fma(b, e, constant(t, math.log(2)), b.fadd(y, y))
    infinity = constant(t, math.inf)
    y = b.select(b.fcmp_ordered("==", x, infinity), infinity, y)
    y = b.select(b.fcmp_ordered("==", x, constant(t, 0.0)), constant(t, -math.inf), y)
    return b.select(b.fcmp_unordered("<", x, constant(t, 0.0)), constant(t, math.nan), y)


def log1p(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """2 atanh(x / (2 + x)) where the series for `log` goes as far, log(1 + x) elsewhere."""
    t = x.type
    s = b.fdiv(x, b.fadd(x, constant(t, 2.0)))
    z = b.fmul(s, s)
    y = fma(b, b.fmul(polynomial(b, z, _ATANH), z), s, s)
    near = b.and_(b.fcmp_ordered(">", x, constant(t, -0.29)), b.fcmp_ordered("<", x, constant(t, 0.41)))
    return b.select(near, b.fadd(y, y), log(b, b.fadd(x, constant(t, 1.0))))


def _odd(b: ir.IRBuilder, x: ir.Value, value: ir.Value, cube: float) -> ir.Value:
    """``value`` (of |x|) with x's sign, and x + cube x**3 near zero, where ``value`` cancels."""
    t = x.type
    near = fma(b, b.fmul(b.fmul(x, x), x), constant(t, cube), x)
    return copysign(b, b.select(b.fcmp_ordered("<", magnitude(b, x), constant(t, 1e-3)), near, value), x)


def sinh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    e = exp(b, magnitude(b, x))
    half = constant(x.type, 0.5)
    value = b.fmul(half, b.fsub(e, b.fdiv(constant(x.type, 1.0), e)))
    return _odd(b, x, value, 1 / 6)


def cosh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    e = exp(b, magnitude(b, x))
    return b.fmul(constant(x.type, 0.5), b.fadd(e, b.fdiv(constant(x.type, 1.0), e)))


def asinh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    a = magnitude(b, x)
    value = log(b, b.fadd(a, square_root(b, fma(b, a, a, constant(x.type, 1.0)))))
    return _odd(b, x, value, -1 / 6)


def acosh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    one = constant(x.type, 1.0)
    root = square_root(b, b.fmul(b.fsub(x, one), b.fadd(x, one)))
    value = log(b, b.fadd(x, root))
    return b.select(b.fcmp_unordered("<", x, one), constant(x.type, math.nan), value)


def atanh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    one = constant(x.type, 1.0)
    a = magnitude(b, x)
    value = b.fmul(constant(x.type, 0.5), log(b, b.fdiv(b.fadd(one, a), b.fsub(one, a))))
    return _odd(b, x, value, 1 / 3)


def atan2(b: ir.IRBuilder, y: ir.Value, x: ir.Value) -> ir.Value:
    """The angle from the smaller over the larger magnitude, unfolded by octant."""
    t = x.type
    c = partial(constant, t)
    u, v = magnitude(b, x), magnitude(b, y)
    steep = b.fcmp_ordered(">", v, u)
    large, small = b.select(steep, v, u), b.select(steep, u, v)
    ratio = b.fdiv(small, large)
    ratio = b.select(b.fcmp_ordered("==", small, large), c(1.0), ratio)
    ratio = b.select(b.fcmp_ordered("==", large, c(0.0)), c(0.0), ratio)
    wide = b.fcmp_ordered(">", ratio, c(math.tan(math.pi / 8)))
    s = b.select(wide, b.fdiv(b.fsub(ratio, c(1.0)), b.fadd(ratio, c(1.0))), ratio)
    z = b.fmul(s, s)
    angle = fma(b, b.fmul(polynomial(b, z, _ATAN), z), s, s)
    angle = b.select(wide, b.fadd(angle, c(math.pi / 4)), angle)
    angle = b.select(steep, b.fsub(c(math.pi / 2), angle), angle)
    left = b.fcmp_ordered("<", copysign(b, c(1.0), x), c(0.0))
    angle = b.select(left, b.fsub(c(math.pi), angle), angle)
    return b.select(b.fcmp_unordered("uno", x, y), b.fadd(x, y), copysign(b, angle, y))


def _leg(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """sqrt(1 - x**2)."""
    one = constant(x.type, 1.0)
    return square_root(b, b.fmul(b.fsub(one, x), b.fadd(one, x)))


def asin(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return atan2(b, x, _leg(b, x))


def acos(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return atan2(b, _leg(b, x), x)


def cbrt(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    third = b.fmul(log(b, magnitude(b, x)), constant(x.type, 1 / 3))
    return b.select(is_nan(b, x), x, copysign(b, exp(b, third), x))
