"""Elementary functions of f64 lanes to 1-3 ulp over their whole range, without calls.

Polynomials are least-squares fits on Chebyshev nodes. Whole numbers become integers and back by adding 1.5 * 2**52,
which every target does in vectors. Where one rounding too many would show, values go in two parts, high and low.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from llvmlite import ir

from shardc.native.math.common import power_cases, unless_huge
from shardc.native.math.real_lanes import Real, on_values
from shardc.native.math.vector import I64, constant, with_scalar

__all__ = [
    "acos", "acosh", "angle_in_parts", "asin", "asinh", "atan2", "atanh", "cbrt", "cos", "cosh", "erf", "exp", "expm1",
    "log", "log1p", "log_in_parts", "logistic", "power", "sin", "sine_and_cosine", "sinh", "tan", "tangent", "tanh",
    "turned",
]  # fmt: skip

_EXP = (
    2.092167017912071e-09, 2.5109274173665046e-08, 2.7557251632877626e-07, 2.755724351568636e-06,
    2.4801587350404538e-05, 0.0001984126988683637, 0.001388888888887175, 0.008333333333321336, 0.04166666666666669,
    0.16666666666666677, 0.5,
)  # fmt: skip
#: 2 atanh(s) = 2 s + s z P(z), z = s * s.
_LOG = (
    0.13252504781131633, 0.13249970917577605, 0.15387098314735934, 0.1818177546121267, 0.22222222649899273,
    0.28571428569059876, 0.4000000000000636, 0.6666666666666666,
)  # fmt: skip
#: The same behind its first term: 2 atanh(s) = 2 s + s z (2/3 + z P(z)).
_LOG_REST = (
    0.13200827483707797, 0.13256294193332574, 0.1538678184535029, 0.18181783779891086, 0.22222222527447527,
    0.2857142857005125, 0.4000000000000238,
)  # fmt: skip
_SIN = (
    -7.578529360761738e-13, 1.605836303346496e-10, -2.5052104881338594e-08, 2.7557319214063435e-06,
    -0.00019841269841254793, 0.008333333333333323, -0.16666666666666666,
)  # fmt: skip
_COS = (
    -1.1359008380327242e-11, 2.087571033195669e-09, -2.755731425151997e-07, 2.4801587289107406e-05,
    -0.0013888888888873466, 0.041666666666666595,
)  # fmt: skip
_ATAN = (
    0.01517887326092796, -0.03345692184094852, 0.04502723186080743, -0.05218180689996858, 0.058769833677107655,
    -0.0666622239224242, 0.07692282427404952, -0.09090908127946254, 0.1111111108765027, -0.1428571428537809,
    0.19999999999997572, -0.33333333333333326,
)  # fmt: skip
#: The same behind its first two terms: atan(s) = s + s z (-1/3 + z P(z)).
_ATAN_REST = (
    -0.01500286979558186, 0.03173043254866724, -0.04152658752398962, 0.04731561984423428, -0.052599814055351746,
    0.05882128640388442, -0.06666656167486167, 0.07692307379278106, -0.09090909085383425, 0.11111111111060581,
    -0.14285714285714105, 0.2,
)  # fmt: skip
_ERF_SMALL = (
    -8.770641399144368e-10, 1.416405823651501e-08, -1.6296278921049325e-07, 1.6457283806027307e-06,
    -1.492542745055963e-05, 0.00012055326096249239, -0.0008548326883143268, 0.005223977623627247,
    -0.026866170644992606, 0.11283791670954578, -0.3761263890318374, 0.1283791670955126,
)  # fmt: skip
#: -log(erfc(x)) on [0.85, 6].
_ERF_LARGE = (
    7.937165256869797e-12, -3.18848795683211e-10, 5.94870511822565e-09, -6.826484802056224e-08, 5.36550963878729e-07,
    -3.0281967175132235e-06, 1.2363296113887364e-05, -3.466525757694911e-05, 4.999034877055499e-05,
    7.627405788883725e-05, -0.0006790645721109378, 0.0018041390181794184, -0.000304967497027553,
    -0.019065866844526623, 0.10274313517021184, 0.6366292614327671, 1.1283772939760657, 1.7107730108268394e-07,
)  # fmt: skip
#: ln 2 and pi / 2 in parts; products of the short ones with whole numbers below 2**20 are exact.
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
_THIRD_BELOW = (-0.3333333333333333, -1.850371707708594e-17)
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
#: What pi / 4, pi / 2 and pi lose as f64.
_QUARTER_PI_LOW, _HALF_PI_LOW, _PI_LOW = 3.061616997868383e-17, 6.123233995736766e-17, 1.2246467991473532e-16
#: No, one, two, three and four eighths of a turn.
_EIGHTHS = (
    (0.0, 0.0), (math.pi / 4, _QUARTER_PI_LOW), (math.pi / 2, _HALF_PI_LOW), (2.356194490192345, 9.184850993605148e-17),
    (math.pi, _PI_LOW),
)  # fmt: skip

_MAGIC = 1.5 * 2.0**52
#: Arguments up to here are reduced by pi / 2 in parts; vectors with larger ones are libm's.
_REDUCIBLE = 2.0**20
_ROOT_HALF = 0x3FE6A09E667F3BCD


def _bits(x: Real) -> ir.Value:
    return x.b.bitcast(x.value, with_scalar(x.value.type, I64))


def _whole(x: Real, factor: float) -> Real:
    """x * factor rounded to a whole number below 2**51."""
    return x.times_plus(factor, _MAGIC) - _MAGIC


def _power_of_two(n: Real) -> Real:
    """2**n for whole n in the range of normal exponents."""
    bits = _bits(n + (_MAGIC + 1023))
    return Real(n.b, n.b.bitcast(n.b.shl(bits, constant(bits.type, 52)), n.value.type))


def _scaled(p: Real, n: Real) -> Real:
    """p * 2**n in two factors, so that results become denormal or infinite in one rounding."""
    half = _whole(n, 0.5)
    return p * _power_of_two(half) * _power_of_two(n - half)


def _reduced(x: Real) -> tuple[Real, Real]:
    """(n, r) with x = n ln 2 + r."""
    n = _whole(x, 1 / math.log(2))
    return n, n.times_plus(-_LN2_LOW, n.times_plus(-_LN2_HIGH, x))


def _exp_minus_one(r: Real) -> Real:
    return (r * r).times_plus(r.polynomial(_EXP), r)


def _exp(x: Real, low: Real | None = None, shift: float = 0.0) -> Real:
    """exp(x + low) * 2**shift."""
    n, r = _reduced(x.clamped(-747.0, 711.0))
    p = _exp_minus_one(r if low is None else r + low) + 1.0
    return x.is_nan().choose(x, _scaled(p, n + shift if shift else n))


def _moderate_expm1(x: Real) -> Real:
    """2**n (exp(r) - 1) + (2**n - 1), for |x| up to 40."""
    n, r = _reduced(x)
    s = _power_of_two(n)
    return s.times_plus(_exp_minus_one(r), s - 1.0)


def _expm1(x: Real) -> Real:
    """Beyond 40, exp is as good."""
    near = x.is_(0.0).choose(x, _moderate_expm1(x.clamped(-40.0, 40.0)))
    return (abs(x) < 39.0).choose(near, (x < 0.0).choose(x.full(-1.0), _exp(x)))


def _parts(x: Real) -> tuple[Real, Real]:
    """(m, e) with x = m 2**e, m in [sqrt(1/2), sqrt(2)), for positive finite x."""
    b, t = x.b, with_scalar(x.value.type, I64)
    tiny = x < 2.0**-1022
    shifted = b.sub(_bits(tiny.choose(x * 2.0**54, x)), constant(t, _ROOT_HALF))
    exponent = b.ashr(shifted, constant(t, 52))
    e = Real(b, b.bitcast(b.add(exponent, _bits(x.full(_MAGIC))), x.value.type)) - _MAGIC
    mantissa = b.add(b.and_(shifted, constant(t, (1 << 52) - 1)), constant(t, _ROOT_HALF))
    return Real(b, b.bitcast(mantissa, x.value.type)), tiny.choose(e - 54.0, e)


def _log_cases(x: Real, y: Real) -> Real:
    """``y`` for positive finite x; the others' logarithms."""
    y = x.is_(math.inf).choose(x, y)
    y = x.is_(0.0).choose(x.full(-math.inf), y)
    return (x >= 0.0).choose(y, x.is_nan().choose(x, math.nan))


def _log(x: Real) -> Real:
    """log m = f - (f**2 / 2 - s (f**2 / 2 + z P(z))) with f = m - 1, s = f / (2 + f): f itself is exact."""
    m, e = _parts(x)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    inner = s.times_plus(z.times_plus(z.polynomial(_LOG), half), e * _LN2_LOW)
    return _log_cases(x, e.times_plus(_LN2_HIGH, f - (half - inner)))


def _log1p(x: Real) -> Real:
    """log(u) with u = 1 + x rounded, corrected by what the rounding lost."""
    u = x + 1.0
    usual = (u > 0.0) & (u < math.inf)
    lost = usual.choose((x - (u - 1.0)) / u, 0.0)
    return (abs(x) < 2.0**-54).choose(x, _log(u) + lost)


def log_in_parts(x: Real) -> tuple[Real, Real]:
    """log x to about 2**-66 relative, for positive finite x."""
    m, e = _parts(x)
    f, below = m - 1.0, m + 1.0
    below_low = m - (below - 1.0)
    s = f / below
    s_low = ((-s).fused(below, f) - s * below_low) / below
    z = s * s
    z_low = s.fused(s, -z) + s * s_low * 2.0
    third = z * _TWO_THIRDS[0]
    third_low = z.fused(_TWO_THIRDS[0], -third) + z * _TWO_THIRDS[1] + z_low * _TWO_THIRDS[0]
    third_low = third_low + z * z * z.polynomial(_LOG_REST)
    factor = third + 2.0
    factor_low = third - (factor - 2.0) + third_low
    high = s * factor
    low = s.fused(factor, -high) + s * factor_low + s_low * factor
    whole = e * _LN2_HIGH
    total = whole + high
    return total, high - (total - whole) + (low + e * _LN2_LOW)


def _power(x: Real, y: Real) -> Real:
    """exp(y log|x|) with the product in two parts, then the cases of IEEE 754's pow."""
    a = abs(x)
    high, low = log_in_parts(a)
    usual = (a > 0.0) & (a < math.inf)
    high = usual.choose(high, a.is_(0.0).choose(a.full(-math.inf), a))
    product = y * high
    rest = y.fused(high, -product) + y * low
    value = _exp(product, (usual & (abs(product) < 800.0)).choose(rest, 0.0))
    return Real(x.b, power_cases(x.b, x.value, y.value, value.value))


def _sinh(x: Real) -> Real:
    """By expm1, whose quotient does not cancel near zero; half of exp where that could overflow."""
    a = abs(x)
    t = _moderate_expm1(a.clamped(0.0, 20.0))
    near = (t + t / (t + 1.0)) * 0.5
    value = (a < 20.0).choose(near, _exp(a, shift=-1.0))
    return x.is_nan().choose(x, value.signed(x))


def _cosh(x: Real) -> Real:
    e = _exp(abs(x), shift=-1.0)
    return e + 0.25 / e


def _tanh(x: Real) -> Real:
    """t / (t + 2) with t = exp(2 x) - 1."""
    t = _moderate_expm1((abs(x) * 2.0).clamped(0.0, 40.0))
    value = (t / (t + 2.0)).signed(x)
    return (abs(x) < 1e-8).choose(x, x.is_nan().choose(x, value))


def _logistic(x: Real) -> Real:
    e = _exp(-abs(x))
    above = 1.0 / (e + 1.0)
    return (x < 0.0).choose(e * above, above)


def _asinh(x: Real) -> Real:
    a = abs(x)
    large = a > 2.0**28
    near = large.choose(a.full(0.0), a)
    value = _log1p(near + near * near / ((near * near + 1.0).sqrt() + 1.0))
    return large.choose(_log(a) + math.log(2), x.is_nan().choose(x, value)).signed(x)


def _acosh(x: Real) -> Real:
    large = x > 2.0**28
    t = large.choose(x.full(0.0), x - 1.0)
    value = _log1p(t + (t * (t + 2.0)).sqrt())
    return large.choose(_log(x) + math.log(2), (x < 1.0).choose(x.full(math.nan), value))


def _atanh(x: Real) -> Real:
    """log1p(2 a / (1 - a)) / 2, its argument as 2 a + 2 a a / (1 - a) where that rounds less."""
    a = abs(x)
    twice, left = a + a, 1.0 - a
    argument = (a < 0.5).choose(twice + twice * a / left, twice / left)
    return x.is_nan().choose(x, (_log1p(argument) * 0.5).signed(x))


def _atan2(y: Real, x: Real) -> Real:
    """The angle from the smaller over the larger magnitude, unfolded by octant."""
    u, v = abs(x), abs(y)
    steep = v > u
    large, small = steep.choose(v, u), steep.choose(u, v)
    ratio = small.is_(large).choose(small.full(1.0), small / large)
    ratio = large.is_(0.0).choose(large, ratio)
    wide = ratio > math.tan(math.pi / 8)
    s = wide.choose((ratio - 1.0) / (ratio + 1.0), ratio)
    z = s * s
    rest = s * z * z.polynomial(_ATAN)
    none = s.full(0.0)
    # base + base_low + turn * (s + rest), the small parts added first.
    base, base_low = wide.choose(s.full(math.pi / 4), none), wide.choose(s.full(_QUARTER_PI_LOW), none)
    base = steep.choose(math.pi / 2 - base, base)
    base_low = steep.choose(_HALF_PI_LOW - base_low, base_low)
    left = x.full(1.0).signed(x) < 0.0
    base, base_low = left.choose(math.pi - base, base), left.choose(_PI_LOW - base_low, base_low)
    turn = steep.choose(s.full(-1.0), 1.0)
    turn = left.choose(-turn, turn)
    angle = base + (turn * s + (turn * rest + base_low))
    return (x.is_nan() | y.is_nan()).choose(x + y, angle.signed(y))


def _sum_in_parts(x: Real, y: Real) -> tuple[Real, Real]:
    """x + y and what rounding it lost."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def angle_in_parts(y: Real, x: Real) -> tuple[Real, Real]:
    """`_atan2` to about 2**-62, for finite numbers that are not both zero and whose sums do not overflow."""
    u, v = abs(x), abs(y)
    steep = v > u
    large, small = steep.choose(v, u), steep.choose(u, v)
    wide = small > large * math.tan(math.pi / 8)
    less, more = _sum_in_parts(small, -large), _sum_in_parts(small, large)
    none = small.full(0.0)
    top, top_low = wide.choose(less[0], small), wide.choose(less[1], none)
    below, below_low = wide.choose(more[0], large), wide.choose(more[1], none)
    s = top / below
    s_low = ((-s).fused(below, top) + top_low - s * below_low) / below
    z = s * s
    z_low = s.fused(s, -z) + s * s_low * 2.0
    factor = z * _THIRD_BELOW[0]
    factor_low = z.fused(_THIRD_BELOW[0], -factor) + z * _THIRD_BELOW[1] + z_low * _THIRD_BELOW[0]
    factor_low = factor_low + z * z * z.polynomial(_ATAN_REST)
    rest = s * factor
    rest_low = s.fused(factor, -rest) + s * factor_low + s_low * factor
    high, lost = _sum_in_parts(s, rest)
    left = x.full(1.0).signed(x) < 0.0

    def eighth(part: int) -> Real:
        none, one, two, three, four = (s.full(e[part]) for e in _EIGHTHS)
        ahead, back = wide.choose(one, steep.choose(two, none)), wide.choose(three, steep.choose(two, four))
        return left.choose(back, ahead)

    turn = steep.choose(s.full(-1.0), 1.0)
    turn = left.choose(-turn, turn)
    angle, more_lost = _sum_in_parts(eighth(0), turn * high)
    low = eighth(1) + more_lost + turn * (lost + rest_low + s_low)
    return angle.signed(y), low * s.full(1.0).signed(y)


def _leg(x: Real) -> Real:
    """sqrt(1 - x**2)."""
    return ((1.0 - x) * (x + 1.0)).sqrt()


def _asin(x: Real) -> Real:
    return _atan2(x, _leg(x))


def _acos(x: Real) -> Real:
    return _atan2(_leg(x), x)


def _cbrt(x: Real) -> Real:
    """exp(log|x| / 3) to some ten digits, then Newton's step."""
    a = abs(x)
    tiny = a < 2.0**-1000
    scaled = tiny.choose(a * 2.0**162, a)
    root = _exp(_log(scaled) * (1 / 3))
    square = root * root
    usual = (a > 0.0) & (a < math.inf)
    root = usual.choose(root - root.times_plus(square, -scaled) / (square * 3.0), a)
    return x.is_nan().choose(x, (tiny & usual).choose(root * 2.0**-54, root).signed(x))


def _erf(x: Real) -> Real:
    """An odd polynomial near zero; 1 - exp(-polynomial) beyond."""
    a = abs(x)
    small = x.times_plus((x * x).polynomial(_ERF_SMALL), x)
    large = (1.0 - _exp(-a.clamped(0.85, 6.0).polynomial(_ERF_LARGE))).signed(x)
    return x.is_nan().choose(x, (a < 0.855).choose(small, large))


def _quadrant(x: Real) -> tuple[ir.Value, Real, Real]:
    """(n in integer lanes, sin r, cos r) for x = n pi / 2 + r, |x| below the limit."""
    x = x.clamped(-_REDUCIBLE, _REDUCIBLE)
    shifted = x.times_plus(2 / math.pi, _MAGIC)
    n = shifted - _MAGIC
    first = n.times_plus(-_HALF_PI[0], x)
    w, v = n * _HALF_PI[1], n * _HALF_PI[2]
    second = first - w
    third = second - v
    low = ((first - second) - w) + ((second - third) - v) - n * _HALF_PI[3]
    r = third + low
    return _bits(shifted), *sine_and_cosine(r, low - (r - third))


def sine_and_cosine(r: Real, low: Real) -> tuple[Real, Real]:
    """Of r + low, at most pi / 4."""
    z = r * r
    sine = r + (r * z).times_plus(z.polynomial(_SIN), low.times_plus(z * -0.5, low))
    half = z * 0.5
    one = 1.0 - half
    # cos(r + low) = 1 - z / 2 + z**2 P(z) - r low, with what 1 - z / 2 lost.
    cosine = one + ((1.0 - one - half) + (z * z).times_plus(z.polynomial(_COS), -(r * low)))
    return sine, cosine


def turned(n: ir.Value, sine: Real, cosine: Real) -> Real:
    """sin(n pi / 2 + r)."""
    b, one, two = sine.b, constant(n.type, 1), constant(n.type, 2)
    odd = b.icmp_unsigned("!=", b.and_(n, one), constant(n.type, 0))
    value = Real(b, b.select(odd, cosine.value, sine.value))
    negative = b.icmp_unsigned("!=", b.and_(n, two), constant(n.type, 0))
    return Real(b, b.select(negative, (-value).value, value.value))


def _fast_sin(x: Real) -> Real:
    return x.is_(0.0).choose(x, turned(*_quadrant(x)))


def _fast_cos(x: Real) -> Real:
    n, sine, cosine = _quadrant(x)
    return turned(x.b.add(n, constant(n.type, 1)), sine, cosine)


def tangent(n: ir.Value, sine: Real, cosine: Real) -> Real:
    """tan(n pi / 2 + r)."""
    b = sine.b
    odd = b.icmp_unsigned("!=", b.and_(n, constant(n.type, 1)), constant(n.type, 0))
    top = Real(b, b.select(odd, (-cosine).value, sine.value))
    return top / Real(b, b.select(odd, sine.value, cosine.value))


def _fast_tan(x: Real) -> Real:
    return x.is_(0.0).choose(x, tangent(*_quadrant(x)))


def _with_library(name: str, fast: Callable[[Real], Real]) -> Callable[..., ir.Value]:
    """``fast`` where all lanes are small enough for the reduction, libm for the whole vector otherwise."""

    def rule(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
        real = Real(b, x)
        huge = (abs(real) > _REDUCIBLE).value
        result = unless_huge(b, name, x, huge, lambda: fast(real).value)
        return real.is_nan().choose(real, Real(b, result)).value

    return rule


exp, expm1, log, log1p = on_values(_exp), on_values(_expm1), on_values(_log), on_values(_log1p)
power, cbrt, erf, logistic = on_values(_power), on_values(_cbrt), on_values(_erf), on_values(_logistic)
sinh, cosh, tanh = on_values(_sinh), on_values(_cosh), on_values(_tanh)
asinh, acosh, atanh = on_values(_asinh), on_values(_acosh), on_values(_atanh)
asin, acos, atan2 = on_values(_asin), on_values(_acos), on_values(_atan2)
sin, cos, tan = _with_library("sin", _fast_sin), _with_library("cos", _fast_cos), _with_library("tan", _fast_tan)
