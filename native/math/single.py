"""Elementary functions of f32 lanes. Polynomials are least-squares fits on Chebyshev nodes, or classic ones."""

from __future__ import annotations

import math
from collections.abc import Callable

from llvmlite import ir

from shardc.native.math import double
from shardc.native.math.common import (
    copysign,
    fma,
    is_nan,
    logistic_from,
    magnitude,
    polynomial,
    power_cases,
    power_of_two,
    scaled,
    unless_huge,
    whole,
)
from shardc.native.math.vector import F64, I32, constant, with_scalar

__all__ = [
    "LN2_HIGH", "LN2_LOW", "cos", "erf", "exp", "exp_minus_one", "expm1", "in_double", "log", "log1p", "logistic",
    "power", "sin", "tan", "tanh",
]  # fmt: skip

_EXP = (1.9899285e-4, 1.393365e-3, 8.3332985e-3, 4.1666465e-2, 1.66666667e-1, 0.5)
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
_ERF_SMALL = (
    8.218382663e-5, -8.106569891e-4, 5.1978386952e-3, -2.68581144515e-2, 1.128367256511e-1,
    -3.761263227213e-1, 1.2837916649121e-1,
)  # fmt: skip
_ERF_LARGE = (
    1.12832796865e-7, 1.998345269527e-5, -4.303650326710e-4, 4.165165276113e-3, -2.512194606719e-2,
    1.083003711852e-1, 6.333187889784e-1, 1.129532177413, -1.787780244142e-4,
)  # fmt: skip
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2, -0.5)
#: ln 2 in two parts: a whole number of up to 15 bits times the first is exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
#: Arguments up to here are reduced by pi/2 in double precision; larger ones are libm's.
_REDUCIBLE = 2.0**19


def in_double(f: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    """A function computed in f64 and rounded: for what is too rare to deserve its own polynomial."""

    def rule(b: ir.IRBuilder, *operands: ir.Value) -> ir.Value:
        wide = [b.fpext(x, with_scalar(x.type, F64)) for x in operands]
        return b.fptrunc(f(b, *wide), operands[0].type)

    return rule


def _reduced(b: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(n, r) with x = n ln 2 + r, n a whole f32."""
    t = x.type
    n = whole(b, x, 1 / math.log(2))
    r = fma(b, n, constant(t, -LN2_HIGH), x)
    return n, fma(b, n, constant(t, -LN2_LOW), r)


def exp_minus_one(b: ir.IRBuilder, r: ir.Value) -> ir.Value:
    """exp(r) - 1 for r of at most ln(2) / 2."""
    return fma(b, b.fmul(r, r), polynomial(b, r, _EXP), r)


def _clamped(b: ir.IRBuilder, x: ir.Value, low: float, high: float) -> ir.Value:
    """x inside [low, high]; NaN becomes ``low``."""
    x = b.select(b.fcmp_ordered(">", x, constant(x.type, low)), x, constant(x.type, low))
    return b.select(b.fcmp_ordered("<", x, constant(x.type, high)), x, constant(x.type, high))


def exp(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """n = round(x / ln 2), a polynomial on the rest, times 2**n."""
    t = x.type
    n, r = _reduced(b, _clamped(b, x, -104.0, 89.0))
    p = b.fadd(exp_minus_one(b, r), constant(t, 1.0))
    return b.select(is_nan(b, x), x, scaled(b, p, b.fptosi(n, with_scalar(t, I32))))


def _exp_moderate(b: ir.IRBuilder, x: ir.Value, most: float) -> ir.Value:
    """exp(min(x, most)) for x >= 0, any number for NaN: 2**n goes straight into the exponent."""
    t = x.type
    integer = with_scalar(t, I32)
    n, r = _reduced(b, b.select(b.fcmp_ordered("<", x, constant(t, most)), x, constant(t, most)))
    p = b.bitcast(b.fadd(exp_minus_one(b, r), constant(t, 1.0)), integer)
    return b.bitcast(b.add(p, b.shl(b.fptosi(n, integer), constant(integer, 23))), t)


def expm1(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """2**n (exp(r) - 1) + (2**n - 1) for moderate x; beyond, exp is as good."""
    t = x.type
    n, r = _reduced(b, _clamped(b, x, -20.0, 18.0))
    s = power_of_two(b, b.fptosi(n, with_scalar(t, I32)), t)
    near = fma(b, s, exp_minus_one(b, r), b.fsub(s, constant(t, 1.0)))
    near = b.select(b.fcmp_ordered("==", x, constant(t, 0.0)), x, near)
    return b.select(b.fcmp_unordered(">", x, constant(t, 17.0)), exp(b, x), near)


def log(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """x = m 2**e with m in [sqrt(1/2), sqrt(2)), and a polynomial in m - 1."""
    t = x.type
    integer = with_scalar(t, I32)
    tiny = b.fcmp_ordered("<", x, constant(t, 2.0**-126))
    bits = b.bitcast(b.select(tiny, b.fmul(x, constant(t, 2.0**23)), x), integer)
    shifted = b.sub(bits, constant(integer, 0x3F3504F3))
    e = b.sitofp(b.ashr(shifted, constant(integer, 23)), t)
    e = b.select(tiny, b.fsub(e, constant(t, 23.0)), e)
    mantissa = b.add(b.and_(shifted, constant(integer, 0x7FFFFF)), constant(integer, 0x3F3504F3))
    f = b.fsub(b.bitcast(mantissa, t), constant(t, 1.0))
    z = b.fmul(f, f)
    y = b.fmul(b.fmul(polynomial(b, f, _LOG), f), z)
    y = fma(b, e, constant(t, LN2_LOW), y)
    y = fma(b, z, constant(t, -0.5), y)
    y = fma(b, e, constant(t, LN2_HIGH), b.fadd(f, y))
    infinity = constant(t, math.inf)
    y = b.select(b.fcmp_ordered("==", x, infinity), infinity, y)
    y = b.select(b.fcmp_ordered("==", x, constant(t, 0.0)), constant(t, -math.inf), y)
    return b.select(b.fcmp_unordered("<", x, constant(t, 0.0)), constant(t, math.nan), y)


def log1p(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """log(u) with u = 1 + x rounded, corrected by what the rounding lost."""
    t = x.type
    one = constant(t, 1.0)
    u = b.fadd(x, one)
    lost = b.fdiv(b.fsub(x, b.fsub(u, one)), u)
    y = b.fadd(log(b, u), lost)
    usual = b.fcmp_ordered(">", u, constant(t, 0.0))
    usual = b.and_(usual, b.fcmp_ordered("<", u, constant(t, math.inf)))
    y = b.select(usual, y, log(b, u))
    return b.select(b.fcmp_ordered("==", x, constant(t, 0.0)), x, y)


def tanh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    t = x.type
    a = magnitude(b, x)
    one, two = constant(t, 1.0), constant(t, 2.0)
    large = b.fsub(one, b.fdiv(two, b.fadd(_exp_moderate(b, b.fadd(a, a), 20.0), one)))
    z = b.fmul(x, x)
    small = fma(b, b.fmul(polynomial(b, z, _TANH), z), x, x)  # of NaN too
    return copysign(b, b.select(b.fcmp_ordered(">=", a, constant(t, 0.625)), large, small), x)


def logistic(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return logistic_from(b, x, exp(b, b.fneg(magnitude(b, x))))


def erf(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """An odd polynomial near zero; 1 - exp(-polynomial) beyond."""
    t = x.type
    a = magnitude(b, x)
    small = fma(b, x, polynomial(b, b.fmul(x, x), _ERF_SMALL), x)
    g = polynomial(b, _clamped(b, a, 0.9, 4.0), _ERF_LARGE)
    large = copysign(b, b.fsub(constant(t, 1.0), exp(b, b.fneg(g))), x)
    result = b.select(b.fcmp_ordered("<", a, constant(t, 0.945)), small, large)
    return b.select(is_nan(b, x), x, result)


def _quadrant(b: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """(n mod 4 in integer lanes, sin r, cos r) for x = n pi/2 + r, |x| below the limit; both in double, not rounded."""
    wide = with_scalar(x.type, F64)
    d = b.fpext(_clamped(b, x, -_REDUCIBLE, _REDUCIBLE), wide)
    n = whole(b, d, 2 / math.pi)
    r = fma(b, n, constant(wide, -1.5707963267341256), d)
    r = fma(b, n, constant(wide, -6.077100506506192e-11), r)
    z = b.fmul(r, r)
    sine = fma(b, b.fmul(polynomial(b, z, _SIN), z), r, r)
    cosine = fma(b, z, polynomial(b, z, _COS), constant(wide, 1.0))
    return b.fptosi(n, with_scalar(x.type, I32)), sine, cosine


def _trigonometric(name: str, fast: Callable[[ir.IRBuilder, ir.Value], ir.Value]) -> Callable[..., ir.Value]:
    """``fast`` where all lanes are small enough for the reduction, libm for the whole vector otherwise."""

    def rule(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
        huge = b.fcmp_ordered(">", magnitude(b, x), constant(x.type, _REDUCIBLE))
        return b.select(is_nan(b, x), x, unless_huge(b, name, x, huge, lambda: fast(b, x)))

    return rule


def _sine_of(b: ir.IRBuilder, x: ir.Value, n: ir.Value, sine: ir.Value, cosine: ir.Value) -> ir.Value:
    """sin(n pi/2 + r) in x's type, from sin r and cos r."""
    one = constant(n.type, 1)
    odd = b.icmp_unsigned("==", b.and_(n, one), one)
    value = b.fptrunc(b.select(odd, cosine, sine), x.type)
    negative = b.icmp_unsigned("==", b.and_(n, constant(n.type, 2)), constant(n.type, 2))
    return b.select(negative, b.fneg(value), value)


def _fast_sin(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    value = _sine_of(b, x, *_quadrant(b, x))
    return b.select(b.fcmp_ordered("==", x, constant(x.type, 0.0)), x, value)


def _fast_cos(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    n, sine, cosine = _quadrant(b, x)
    return _sine_of(b, x, b.add(n, constant(n.type, 1)), sine, cosine)


def _fast_tan(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    n, sine, cosine = _quadrant(b, x)
    one = constant(n.type, 1)
    odd = b.icmp_unsigned("==", b.and_(n, one), one)
    top, bottom = b.select(odd, b.fneg(cosine), sine), b.select(odd, sine, cosine)
    value = b.fptrunc(b.fdiv(top, bottom), x.type)
    return b.select(b.fcmp_ordered("==", x, constant(x.type, 0.0)), x, value)


sin = _trigonometric("sin", _fast_sin)
cos = _trigonometric("cos", _fast_cos)
tan = _trigonometric("tan", _fast_tan)


def power(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """exp(y log|x|) in double precision, then the sign and the special cases of IEEE 754's pow."""
    a = magnitude(b, x)
    value = in_double(lambda b, u, v: double.exp(b, b.fmul(v, double.log(b, u))))(b, a, y)
    return power_cases(b, x, y, value)
