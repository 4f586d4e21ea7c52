"""Powers of complex numbers over f64 lanes.

Large exponents take the last bits of the logarithm, so that it, the product and the exponent have two parts each.
"""

from __future__ import annotations

from collections.abc import Callable

from shardc.compiler.elements.arithmetic.complex_functions import (
    Pair,
    exponential,
    inverse_scale,
    log,
    order_magnitudes,
    product,
    two_sum,
)
from shardc.compiler.elements.arithmetic.lanes import Lane
from shardc.native.math.exact import angle_in_parts, log_in_parts
from shardc.native.math.real_lanes import Real

__all__ = ["power"]


def power(x: Pair, y: Pair) -> Pair:
    """exp(y log x); zero to a power is zero, or one for the power zero."""
    length, angle = _logarithm(x)
    u, v = y
    real, real_low = _two_products(u, length, -v, angle)
    turn, turn_low = _two_products(u, angle, v, length)
    rough = product(y, log(x))
    usual = real.is_finite() & turn.is_finite() & real_low.is_finite() & turn_low.is_finite()
    value = exponential((usual.choose(real, rough[0]), usual.choose(turn, rough[1])))
    usual = usual & value[0].is_finite() & value[1].is_finite()
    more, aside = usual.choose(real_low, 0.0), usual.choose(turn_low, 0.0)
    real = value[0] + (value[0] * more - value[1] * aside)
    imaginary = value[1] + (value[1] * more + value[0] * aside)
    real, imaginary = usual.choose(real, value[0]), usual.choose(imaginary, value[1])
    base, exponent = x[0].is_(0.0) & x[1].is_(0.0), y[0].is_(0.0) & y[1].is_(0.0)
    real = exponent.choose(real.full(1.0), base.choose(real.full(0.0), real))
    return real, (base | exponent).choose(real.full(0.0), imaginary)


def _logarithm(x: Pair) -> tuple[Pair, Pair]:
    """log|x| and the angle of x, each in two parts; not a number where x is zero or infinite."""
    scale = inverse_scale(order_magnitudes(x)[0])
    a, b = x[0] * scale, x[1] * scale
    first, second = a * a, b * b
    square, lost = two_sum(first, second)
    lost = lost + a.fma(a, -first) + b.fma(b, -second)
    high, low = _lanes(log_in_parts, square)
    back, back_low = _lanes(log_in_parts, scale)
    total, more = two_sum(high * 0.5, -back)
    length = two_sum(total, more + (low * 0.5 - back_low) + lost / square * 0.5)
    return length, two_sum(*_lanes(angle_in_parts, b, a))


def _lanes(function: Callable[..., tuple[Real, Real]], *operands: Lane) -> Pair:
    high, low = function(*(Real(x.b, x.value) for x in operands))
    return Lane(high.b, high.value), Lane(low.b, low.value)


def _two_products(a: Lane, x: Pair, b: Lane, y: Pair) -> Pair:
    """a x + b y in two parts."""
    first, second = a * x[0], b * y[0]
    total, lost = two_sum(first, second)
    return two_sum(total, lost + a.fma(x[0], -first) + b.fma(y[0], -second) + (a * x[1] + b * y[1]))
