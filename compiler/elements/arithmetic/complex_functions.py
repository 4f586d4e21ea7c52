"""Functions of complex numbers, accurate in both parts over f64 lanes (`exponential` and `product` over f32 too).

Special values follow C's Annex G as far as NumPy does. `excess` and `difference` hold what one rounding would lose,
so that neither log near the unit circle nor division cancels. Rough lanes come from f32: their squares neither
overflow nor vanish in f64, and products of f32 numbers are exact there, so that much of this is not needed.
"""

from __future__ import annotations

import math

from shardc.compiler.elements.arithmetic.lanes import Lane, Test
from shardc.native.math.vector import I64, constant, intrinsic, with_scalar

__all__ = [
    "Pair", "acos", "acosh", "asin", "asinh", "atan2", "atanh", "cbrt", "cosh", "cosine", "divide", "expm1",
    "exponential", "inverse_scale", "log", "log1p", "logistic", "order_magnitudes", "product", "rsqrt", "sign", "sine",
    "sinh", "size", "sqrt", "tan", "tanh", "two_sum",
]  # fmt: skip

Pair = tuple[Lane, Lane]


def times_i(z: Pair) -> Pair:
    return -z[1], z[0]


def over_i(z: Pair) -> Pair:
    return z[1], -z[0]


def product(x: Pair, y: Pair) -> Pair:
    """One product of each part is fused with the sum, as LLVM does with XLA's multiplications."""
    return x[0].fma(y[0], -(x[1] * y[1])), x[1].fma(y[0], x[0] * y[1])


def order_magnitudes(z: Pair) -> Pair:
    """The magnitudes of the parts, larger first (a NaN goes through)."""
    u, v = abs(z[0]), abs(z[1])
    more = u > v
    return more.choose(u, v), more.choose(v, u)


def size(z: Pair) -> Lane:
    """|z|; squares neither overflow nor vanish."""
    if z[0].rough:
        value = (z[0] * z[0] + z[1] * z[1]).sqrt()
    else:
        large, small = order_magnitudes(z)
        ratio = small.is_(0.0).choose(small, small / large)
        value = large * (ratio * ratio + 1.0).sqrt()
    return (z[0].is_infinite() | z[1].is_infinite()).choose(value.full(math.inf), value)


def two_sum(x: Lane, y: Lane) -> Pair:
    """x + y and what rounding it lost."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _squares(start: Lane, x: Lane, y: Lane) -> Lane:
    """start + x**2 + y**2, rounded once or little more."""
    h, k = x * x, y * y
    low = x.fma(x, -h) + y.fma(y, -k)
    first, lost = two_sum(start, h)
    second, more = two_sum(first, k)
    return second + (lost + more + low)


def _log_size(z: Pair) -> Lane:
    large, small = order_magnitudes(z)
    if z[0].rough:
        return _log_root(z, large * large + small * small, large * large - 1.0 + small * small)
    return _log_near(_squares(large.full(-1.0), large, small), _log_far(large, small), z)


def _log_far(large: Lane, small: Lane) -> Lane:
    ratio = (small.is_(0.0) | large.is_infinite()).choose(large.full(0.0), small / large)
    return large.math("log") + (ratio * ratio).math("log1p") * 0.5


def _log_near(excess: Lane, far: Lane, z: Pair) -> Lane:
    """log|z| from |z|**2 - 1 where that is small."""
    near = (excess > -0.5) & (excess < 1.0)
    value = near.choose(near.choose(excess, 0.0).math("log1p") * 0.5, far)
    return (z[0].is_infinite() | z[1].is_infinite()).choose(value.full(math.inf), value)


def _log_root(z: Pair, square: Lane, excess: Lane) -> Lane:
    """log(square) / 2, by ``excess`` = square - 1 where that is small: one logarithm, of what rounds least."""
    near = abs(excess) < 0.5
    shifted = excess + 1.0
    rest = near.choose((excess - (shifted - 1.0)) / shifted, 0.0)
    value = (near.choose(shifted, square).math("log") + rest) * 0.5
    return (z[0].is_infinite() | z[1].is_infinite()).choose(value.full(math.inf), value)


def log(z: Pair) -> Pair:
    return _log_size(z), z[1].math("atan2", z[0])


def log1p(z: Pair) -> Pair:
    x, y = z
    shifted = (x + 1.0, y)
    if x.rough:
        square = shifted[0] * shifted[0] + y * y
        return _log_root(z, square, _squares(x + x, x, y)), y.math("atan2", shifted[0])
    real = _log_near(_squares(x + x, x, y), _log_far(*order_magnitudes(shifted)), z)
    return real, y.math("atan2", shifted[0])


def exponential(z: Pair) -> Pair:
    """exp x in two factors where it is large, so that it may overflow and its products with sin and cos not."""
    x, y = z
    wide = x.value.type
    step = 64.0 if "float" in str(wide) else 512.0
    large = x > step
    e = large.choose(x - step, x).math("exp")

    def scaled(part: Lane) -> Lane:
        value = e * part
        value = large.choose(value * math.exp(step), value)
        return x.is_(-math.inf).choose(e, value)

    return scaled(y.math("cos")), y.is_(0.0).choose(y, scaled(y.math("sin")))


def expm1(z: Pair) -> Pair:
    """The real part as expm1(x) cos y - 2 sin(y/2)**2, which does not cancel near zero."""
    x, y = z
    real, imaginary = exponential(z)
    half = (y * 0.5).math("sin")
    near = x.math("expm1") * y.math("cos") - half * half * 2.0
    return (x > 40.0).choose(real, near), imaginary


def logistic(z: Pair) -> Pair:
    """By exp of what is not positive, which cannot overflow."""
    left = z[0] < 0.0
    e = exponential((left.choose(z[0], -z[0]), left.choose(z[1], -z[1])))
    one = e[0].full(1.0)
    return divide((left.choose(e[0], one), left.choose(e[1], 0.0)), (e[0] + 1.0, e[1]))


def sqrt(z: Pair) -> Pair:
    """Halve |z| + |real| under the root, the other part by division: no cancellation in any quadrant."""
    x, y = z
    back = x.full(1.0)
    if not x.rough:
        large, _ = order_magnitudes(z)
        big, tiny = large > 2.0**1020, large < 2.0**-960
        scale = big.choose(large.full(2.0**-4), tiny.choose(large.full(2.0**108), 1.0))
        back = big.choose(large.full(2.0**2), tiny.choose(large.full(2.0**-54), 1.0))
        x, y = x * scale, y * scale
    root = ((size((x, y)) + abs(x)) * 0.5).sqrt()
    other = root.is_(0.0).choose(abs(y), abs(y) / (root + root))
    right = x >= 0.0
    real, imaginary = right.choose(root, other) * back, right.choose(other, root) * back
    infinite = z[1].is_infinite()
    real = infinite.choose(real.full(math.inf), real)
    return real, infinite.choose(z[1], imaginary).with_sign(z[1])


def rsqrt(z: Pair) -> Pair:
    root = sqrt(z)
    return divide((root[0].full(1.0), root[0].full(0.0)), root)


def sign(z: Pair) -> Pair:
    length = size(z)
    none = length.is_(0.0)
    return none.choose(z[0], z[0] / length), none.choose(z[1], z[1] / length)


def difference(a: Lane, b: Lane, c: Lane, d: Lane) -> Lane:
    """a b - c d without cancellation."""
    second = c * d
    lost = second.is_finite().choose((-c).fma(d, second), 0.0)
    return a.fma(b, -second) + lost


def inverse_scale(x: Lane) -> Lane:
    """A power of two that brings ``x`` to [1/4, 1/2), kept inside the normal numbers."""
    b = x.b
    integer = with_scalar(x.value.type, I64)
    exponent = b.and_(b.bitcast(x.value, integer), constant(integer, 0x7FF << 52))
    exponent = intrinsic(b, "llvm.umax", integer, [exponent, constant(integer, 1 << 52)])
    exponent = intrinsic(b, "llvm.umin", integer, [exponent, constant(integer, 2043 << 52)])
    return Lane(b, b.bitcast(b.sub(constant(integer, 2044 << 52), exponent), x.value.type), x.rough)


def divide(x: Pair, y: Pair) -> Pair:
    """Products without cancellation over |y|**2, scaled; infinities as in C's Annex G."""
    if x[0].rough:
        return _divide_unscaled(x, y)
    scale = inverse_scale(order_magnitudes(y)[0])
    c, d = y[0] * scale, y[1] * scale
    below = c.fma(c, d * d)
    real = difference(x[0], c, -x[1], d) / below * scale
    imaginary = difference(x[1], c, x[0], d) / below * scale
    return _without_lost_infinities(x, y, below, real, imaginary)


def _divide_unscaled(x: Pair, y: Pair) -> Pair:
    below = y[0] * y[0] + y[1] * y[1]
    inverse = 1.0 / below
    real, imaginary = (x[0] * y[0] + x[1] * y[1]) * inverse, (x[1] * y[0] - x[0] * y[1]) * inverse
    return _without_lost_infinities(x, y, below, real, imaginary)


def _without_lost_infinities(x: Pair, y: Pair, below: Lane, real: Lane, imaginary: Lane) -> Pair:
    """Where both parts are NaN, which is rare, what Annex G says instead."""
    lost = real.is_nan() & imaginary.is_nan()
    return lost.rarely((real, imaginary), lambda: _found_infinities(x, y, below, lost, (real, imaginary)))


def _found_infinities(x: Pair, y: Pair, below: Lane, lost: Test, values: Pair) -> Pair:
    real, imaginary = values
    infinity = real.full(math.inf)
    zero = below.is_(0.0) & ~(x[0].is_nan() & x[1].is_nan())
    by_zero = infinity.with_sign(y[0])
    above = x[0].is_infinite() | x[1].is_infinite()
    above = above & y[0].is_finite() & y[1].is_finite()
    under = y[0].is_infinite() | y[1].is_infinite()
    under = under & x[0].is_finite() & x[1].is_finite()
    a, b = (above.choose(_unit(p), p) for p in x)
    c, d = (under.choose(_unit(p), p) for p in y)
    factor = above.choose(infinity, 0.0)
    far = lost & (above | under)
    results = []
    for value, top, part in ((real, a * c + b * d, x[0]), (imaginary, b * c - a * d, x[1])):
        value = far.choose(factor * top, value)
        results.append((lost & zero).choose(by_zero * part, value))
    return results[0], results[1]


def _unit(x: Lane) -> Lane:
    """One for infinities, zero for the others, signed."""
    return x.is_infinite().choose(x.full(1.0), 0.0).with_sign(x)


def _grown(x: Lane, y: Pair) -> Pair:
    """(cosh x, sinh x) times the parts of ``y``, in two factors where they are large; zero times any of it is zero."""
    size = abs(x)
    large = size > 600.0
    tail = (size - 512.0).math("exp") * 0.5
    near = large.choose(x.full(0.0), x)
    results = []
    for name, tails, part in (("cosh", tail, y[0]), ("sinh", tail.with_sign(x), y[1])):
        value = near.math(name) * part
        value = large.choose(tails * part * math.exp(512.0), value)
        none = part.is_(0.0) & ~x.is_nan()
        results.append(none.choose(part if name == "cosh" else part * x.full(1.0).with_sign(x), value))
    return results[0], results[1]


def cosh(z: Pair) -> Pair:
    return _grown(z[0], (z[1].math("cos"), z[1].math("sin")))


def sinh(z: Pair) -> Pair:
    """-i times cosh's parts a quarter turn on: sinh x cos y + i cosh x sin y."""
    swapped = _grown(z[0], (z[1].math("sin"), z[1].math("cos")))
    return swapped[1], swapped[0]


def cosine(z: Pair) -> Pair:
    return cosh(times_i(z))


def sine(z: Pair) -> Pair:
    return over_i(sinh(times_i(z)))


def tanh(z: Pair) -> Pair:
    """Kahan's way from tan y and sinh x; beyond |x| = 20 by what is left to 1."""
    x, y = z
    far = abs(x) > 20.0
    t = y.math("tan")
    beta = t * t + 1.0
    s = far.choose(x.full(0.0), x).math("sinh")
    rho = (s * s + 1.0).sqrt()
    below = beta * s * s + 1.0
    rest = t / beta * (abs(x) * -2.0).math("exp") * 4.0
    rest = (x.is_infinite() & t.is_nan()).choose(x.full(0.0), rest)
    return far.choose(x.full(1.0).with_sign(x), beta * rho * s / below), far.choose(rest, t / below)


def tan(z: Pair) -> Pair:
    return over_i(tanh(times_i(z)))


def _roots(z: Pair) -> tuple[Pair, Pair]:
    """The roots of 1 - z and 1 + z."""
    return sqrt((1.0 - z[0], -z[1])), sqrt((z[0] + 1.0, z[1]))


def _asinh(z: Pair, x: Lane) -> Lane:
    """asinh x for a product of two roots of about z; log|2 z| where that may overflow."""
    large, small = order_magnitudes(z)
    far = _log_far(large, small) + math.log(2.0)
    return (large > 2.0**500).choose(far, x.math("asinh"))


def asin(z: Pair) -> Pair:
    """Kahan's formulas, here and below: products of roots that cannot cancel."""
    below, above = _roots(z)
    infinite = z[0].is_infinite() | z[1].is_infinite()
    real = z[0].math("atan2", infinite.choose(abs(z[1]), below[0] * above[0] - below[1] * above[1]))
    return real, _asinh(z, below[0] * above[1] - below[1] * above[0]).with_sign(z[1])


def acos(z: Pair) -> Pair:
    below, above = _roots(z)
    real = below[0].math("atan2", above[0]) * 2.0
    return real, _asinh(z, above[0] * below[1] - above[1] * below[0]).with_sign(-z[1])


def asinh(z: Pair) -> Pair:
    return over_i(asin(times_i(z)))


def acosh(z: Pair) -> Pair:
    below, above = sqrt((z[0] - 1.0, z[1])), sqrt((z[0] + 1.0, z[1]))
    real = _asinh(z, below[0] * above[0] + below[1] * above[1])
    return real, below[1].math("atan2", above[0]) * 2.0


def atanh(z: Pair) -> Pair:
    """Beyond 2**500 the rest of the series: x / |z|**2 and a quarter turn. Very near 1, log(2 / |1 - z|) / 2."""
    x, y = abs(z[0]), z[1]
    left = 1.0 - x
    real = (x * 4.0 / (left * left + y * y)).math("log1p") * 0.25
    imaginary = (y * 2.0).math("atan2", left * (x + 1.0) - y * y) * 0.5
    gap = size((left, y))
    real = (gap < 2.0**-500).choose((math.log(2.0) - gap.math("log")) * 0.5, real)
    length = size(z)
    far = length > 2.0**500
    rest = length.is_infinite().choose(x.full(0.0), x / length / length)
    return far.choose(rest, real).with_sign(z[0]), (far & ~y.is_nan()).choose(x.full(math.pi / 2), imaginary).with_sign(
        y
    )


def atan2(y: Pair, x: Pair) -> Pair:
    """-i log((x + i y) / sqrt(x**2 + y**2))."""
    square, more = product(x, x), product(y, y)
    root = sqrt((square[0] + more[0], square[1] + more[1]))
    return over_i(log(divide((x[0] - y[1], x[1] + y[0]), root)))


def cbrt(z: Pair) -> Pair:
    length, angle = size(z).math("cbrt"), z[1].math("atan2", z[0]) * (1.0 / 3.0)
    return length * angle.math("cos"), length * angle.math("sin")
