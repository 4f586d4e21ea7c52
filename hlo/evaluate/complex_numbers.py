"""Complex functions where NumPy's lose digits or treat infinities unlike XLA. All work in c128."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.evaluate.values import Array

__all__ = [
    "atan2", "by_kind", "cbrt", "divide", "expm1", "in_c128", "log1p", "logistic", "power", "real_only", "rsqrt",
    "sign",
]  # fmt: skip

Function = Callable[..., Array]


def by_kind(real: Function, complex_: Function) -> Function:
    """One function for real, another for complex operands."""
    return lambda *x: complex_(*x) if x[0].dtype.kind == "c" else real(*x)


def in_c128(real: Function, complex_: Function) -> Function:
    """`by_kind`, with complex operands widened first."""
    return by_kind(real, lambda *x: complex_(*(v.astype(np.complex128, copy=False) for v in x)))


def real_only(function: Function) -> Function:
    """A function that has no meaning for complex numbers."""

    def refuse(*x: Array) -> Array:
        raise UnsupportedError(
            "this operation is not defined for complex numbers", fix="apply it to the real and imaginary parts"
        )

    return by_kind(function, refuse)


def _join(real: Array, imaginary: Array) -> Array:
    out = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), np.complex128)
    out.real, out.imag = real, imaginary
    return out


def divide(x: Array, y: Array) -> Array:
    """x / y as C's Annex G defines it; the products are exact to a rounding, so that they do not cancel."""
    a, b, c, d = (np.asarray(p) for p in np.broadcast_arrays(x.real, x.imag, y.real, y.imag))
    _, exponent = np.frexp(np.maximum(np.abs(c), np.abs(d)))
    exponent = np.clip(exponent + 1, -1000, 1023)
    c, d = np.ldexp(c, -exponent), np.ldexp(d, -exponent)
    below = c * c + d * d
    re, im = (np.ldexp(_two_products(p, c, q, d) / below, -exponent) for p, q in ((a, b), (b, -a)))
    lost = np.isnan(re) & np.isnan(im)
    zero = (below == 0) & ~(np.isnan(a) & np.isnan(b))
    by_zero = np.copysign(np.inf, y.real)
    above = (np.isinf(a) | np.isinf(b)) & np.isfinite(c) & np.isfinite(d)
    under = (np.isinf(c) | np.isinf(d)) & np.isfinite(a) & np.isfinite(b)
    u, v = (np.where(above, _unit(p), p) for p in (a, b))
    c, d = (np.where(under, _unit(p), p) for p in (c, d))
    factor = np.where(above, np.inf, 0.0)
    far = lost & (above | under)
    re = np.where(lost & zero, by_zero * a, np.where(far, factor * (u * c + v * d), re))
    im = np.where(lost & zero, by_zero * b, np.where(far, factor * (v * c - u * d), im))
    return _join(re, im)


def _unit(x: Array) -> Array:
    return np.copysign(np.isinf(x).astype(np.float64), x)


def _split(x: Array) -> tuple[Array, Array]:
    """Dekker's halves: x as a sum of two numbers of 26 bits; numbers too large for it stay whole."""
    t = x * 134217729.0
    high = np.where(np.abs(x) < 2.0**990, t - (t - x), x)
    return high, x - high


def _rounding_error(x: Array, y: Array, product: Array) -> Array:
    """What rounding x * y to ``product`` lost (0 where that cannot be told)."""
    (a, b), (c, d) = _split(x), _split(y)
    low = b * d - (((product - a * c) - b * c) - a * d)
    return np.where(np.isfinite(low), low, 0.0)


def _two_products(a: Array, b: Array, c: Array, d: Array) -> Array:
    """a b + c d."""
    x, y = a * b, c * d
    total = x + y
    part = total - x
    rest = (x - (total - part)) + (y - part) + _rounding_error(a, b, x) + _rounding_error(c, d, y)
    return np.asarray(np.where(np.isfinite(rest), total + rest, total))


def log1p(z: Array) -> Array:
    """log|1 + z| from 2x + x**2 + y**2 where that is small."""
    x, y = z.real, z.imag
    far = np.log(_join(1.0 + x, y))
    square, more = x * x, y * y
    excess = _sum([2.0 * x, square, more, _rounding_error(x, x, square), _rounding_error(y, y, more)])
    near = (excess > -0.5) & (excess < 1.0)
    return _join(np.where(near, 0.5 * np.log1p(np.where(near, excess, 0.0)), far.real), far.imag)


def _sum(terms: list[Array]) -> Array:
    """The sum of the terms with the rounding errors of all but the last additions."""
    total, lost = terms[0], np.zeros_like(terms[0])
    for term in terms[1:]:
        new = total + term
        part = new - total
        lost = lost + ((total - (new - part)) + (term - part))
        total = new
    return np.asarray(total + lost)


def expm1(z: Array) -> Array:
    """expm1(x) cos y - 2 sin(y/2)**2 does not cancel near zero."""
    x, y = z.real, z.imag
    whole = np.exp(z)
    near = np.expm1(x) * np.cos(y) - 2.0 * np.square(np.sin(0.5 * y))
    return _join(np.where(x > 40.0, whole.real, near), whole.imag)


def logistic(z: Array) -> Array:
    """By exp of what is not positive, which cannot overflow."""
    left = z.real < 0
    e = np.exp(np.where(left, z, -z))
    return divide(np.where(left, e, 1.0), 1.0 + e)


def rsqrt(z: Array) -> Array:
    return divide(np.ones_like(z), np.sqrt(z))


def sign(z: Array) -> Array:
    """x / |x|; zeros stay."""
    size = np.abs(z)
    size = np.where(size == 0, 1.0, size)
    return _join(z.real / size, z.imag / size)


def cbrt(z: Array) -> Array:
    size, angle = np.cbrt(np.abs(z)), np.angle(z) / 3.0
    return _join(size * np.cos(angle), size * np.sin(angle))


def atan2(y: Array, x: Array) -> Array:
    """-i log((x + i y) / sqrt(x**2 + y**2))."""
    turned = np.log(divide(_join(x.real - y.imag, x.imag + y.real), np.sqrt(x * x + y * y)))
    return _join(turned.imag, -turned.real)


def power(x: Array, y: Array) -> Array:
    """exp(y log x) in long double, as large exponents take the logarithm's last bits; zero to a power is zero, or one
    for the power zero."""
    logarithm, factor = np.log(x.astype(np.clongdouble)), y.astype(np.clongdouble)
    exponent = np.empty(np.broadcast_shapes(x.shape, y.shape), np.clongdouble)
    exponent.real = factor.real * logarithm.real - factor.imag * logarithm.imag
    exponent.imag = factor.real * logarithm.imag + factor.imag * logarithm.real
    value = np.where(x == 0, 0.0, np.exp(exponent)).astype(np.complex128)
    return np.where(y == 0, 1.0, value)
