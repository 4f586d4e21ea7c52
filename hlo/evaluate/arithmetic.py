"""XLA's arithmetic where it differs from NumPy's: division by zero, shifts, bits, orders, special functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardc.hlo.evaluate.values import Array
from shardc.hlo.ir.types import DTYPES

__all__ = [
    "absolute",
    "count_leading_zeros",
    "divide",
    "erf",
    "imag",
    "invert",
    "logistic",
    "maximum",
    "minimum",
    "multiply",
    "popcount",
    "power",
    "remainder",
    "round_away",
    "rsqrt",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "subtract",
    "total_order",
    "view_unsigned",
]

_erf = np.frompyfunc(math.erf, 1, 1)
#: The top bit of the byte that holds these is not (only) a sign.
_ODD_SIGNS = frozenset(
    d.numpy for d in DTYPES.values() if d.is_float and (d.bits < 8 or d.name.endswith(("fnuz", "fnu")))
)


def view_unsigned(x: Array) -> Array:
    """The bits of an array as unsigned integers of the same width."""
    return np.ascontiguousarray(x).reshape(x.shape).view(f"u{x.dtype.itemsize}")


def _is_integer(x: Array) -> bool:
    return x.dtype.kind in "iu"


def absolute(x: Array) -> Array:
    """The most negative integer stays itself."""
    return np.abs(x)


def imag(x: Array) -> Array:
    return np.imag(x) if x.dtype.kind == "c" else np.zeros_like(x)


def subtract(a: Array, b: Array) -> Array:
    return np.logical_xor(a, b) if a.dtype.kind == "b" else np.subtract(a, b)


def maximum(a: Array, b: Array) -> Array:
    """NaN if either is; -0 is below 0."""
    return _zeros_apart(np.maximum(a, b), a, b, 1)


def minimum(a: Array, b: Array) -> Array:
    return _zeros_apart(np.minimum(a, b), a, b, -1)


def _zeros_apart(best: Array, a: Array, b: Array, sign: int) -> Array:
    """``best`` with the sign of zeros as IEEE 754's maximum has it (minimum for ``sign`` -1)."""
    if best.dtype.kind != "f":
        return best
    s = best.dtype.type(sign)
    return np.where((a == 0) & (b == 0), s * (s * a + s * b), best)


def divide(a: Array, b: Array) -> Array:
    """Integers round towards zero; x / 0 has all bits set; the most negative over -1 is itself."""
    if not _is_integer(a):
        return np.divide(a, b)
    zero = b == 0
    if a.dtype.kind == "u":
        return np.where(zero, np.array(np.iinfo(a.dtype).max, a.dtype), a // np.where(zero, a.dtype.type(1), b))
    overflow = (a == np.iinfo(a.dtype).min) & (b == -1)
    safe = np.where(zero | overflow, a.dtype.type(1), b)
    quotient = a // safe
    # Floor division rounds down: step up where signs differ and something is left.
    quotient = quotient + ((quotient * safe != a) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.asarray(np.where(zero, a.dtype.type(-1), quotient))


def remainder(a: Array, b: Array) -> Array:
    """The sign of the dividend; x rem 0 is x for integers, NaN for floats."""
    if not _is_integer(a):
        return np.fmod(a, b)
    trivial = b == 0
    if a.dtype.kind == "i":
        return np.where(trivial, a, np.where(b == -1, a.dtype.type(0), np.fmod(a, _nonzero(b))))
    return np.where(trivial, a, np.fmod(a, _nonzero(b)))


def _nonzero(b: Array) -> Array:
    bad = (b == 0) | (b == -1) if b.dtype.kind == "i" else b == 0
    return np.where(bad, b.dtype.type(1), b)


def power(a: Array, b: Array) -> Array:
    """Integers wrap; a negative exponent gives 0 unless the base is 1 or -1."""
    if not _is_integer(a):
        return np.power(a, b)
    negative = b < 0
    result = np.power(a, np.where(negative, b.dtype.type(0), b))
    if a.dtype.kind == "u":
        return result
    odd = np.where(b & 1, a, a.dtype.type(1))
    return np.where(negative, np.where(np.abs(a) == 1, odd, a.dtype.type(0)), result)


def erf(x: Array) -> Array:
    return np.asarray(_erf(x.astype(np.float64))).astype(x.dtype)


def multiply(a: Array, b: Array) -> Array:
    """Complex numbers by parts, one product of each fused with the sum: as XLA's CPU code has it."""
    if a.dtype.kind != "c":
        return np.multiply(a, b)
    out = np.empty(np.broadcast_shapes(a.shape, b.shape), a.dtype)
    out.real = multiply_add(a.real, b.real, -(a.imag * b.imag))
    out.imag = multiply_add(a.imag, b.real, a.real * b.imag)
    return out


def multiply_add(x: Array, y: Array, z: Array) -> Array:
    """``x * y + z`` rounded once: f32 in f64; f64 by the product's exact error (Dekker), unless that overflows."""
    if x.dtype != np.float64:
        return np.asarray(_to_odd(x.astype(np.float64) * y, z.astype(np.float64)).astype(x.dtype))
    product = x * y
    x_high, y_high = _upper_half(x), _upper_half(y)
    x_low, y_low = x - x_high, y - y_high
    lost = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    total = product + z
    part = total - product
    lost = lost + ((product - (total - part)) + (z - part))
    return np.asarray(np.where(np.isfinite(lost), total + lost, total))


def _to_odd(x: Array, y: Array) -> Array:
    """``x + y`` with a last bit of 1 where digits are lost, so that rounding again cannot meet a tie that is none."""
    total = x + y
    part = total - x
    lost = (x - (total - part)) + (y - part)
    even = (view_unsigned(total) & np.uint64(1)) == 0
    inexact = np.isfinite(total) & (lost != 0) & even
    return np.where(inexact, np.nextafter(total, np.copysign(np.inf, lost)), total)


def _upper_half(x: Array) -> Array:
    """The upper 26 bits of each f64 (Veltkamp's splitting)."""
    scaled = x * 134217729.0
    return np.asarray(scaled - (scaled - x))


def logistic(x: Array) -> Array:
    """By exp of what is not positive, which cannot overflow."""
    one = x.dtype.type(1)
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, e, one) / (one + e))


def rsqrt(x: Array) -> Array:
    return np.asarray(x.dtype.type(1) / np.sqrt(x))


def round_away(x: Array) -> Array:
    """To the nearest whole number, halves away from zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)


def sign(x: Array) -> Array:
    """-1, 0 or 1; zeros keep their sign, NaN stays."""
    if x.dtype.kind == "f":
        return np.where((x == 0) | np.isnan(x), x, np.copysign(x.dtype.type(1), x))
    return np.sign(x)


def invert(bits: int, x: Array) -> Array:
    return np.invert(x)


def _low_bits(bits: int, x: Array) -> Array:
    """The value's ``bits`` bits as an unsigned number."""
    view = view_unsigned(x)
    return view if bits == 8 * x.dtype.itemsize else view & view.dtype.type(2**bits - 1)


def popcount(bits: int, x: Array) -> Array:
    return np.bitwise_count(_low_bits(bits, x)).astype(x.dtype)


def count_leading_zeros(bits: int, x: Array) -> Array:
    smeared = _low_bits(bits, x)
    for distance in (1, 2, 4, 8, 16, 32):
        if distance < bits:
            smeared = smeared | (smeared >> smeared.dtype.type(distance))
    return (bits - np.bitwise_count(smeared).astype(np.int64)).astype(x.dtype)


def _past_width(bits: int, amount: Array) -> Array:
    """Shift amounts count as unsigned: negative ones are past the width."""
    return view_unsigned(amount) >= bits


def shift_left(bits: int, x: Array, amount: Array) -> Array:
    past = _past_width(bits, amount)
    return np.where(past, x.dtype.type(0), np.left_shift(x, np.where(past, x.dtype.type(0), amount)))


def shift_right_logical(bits: int, x: Array, amount: Array) -> Array:
    past = _past_width(bits, amount)
    low = _low_bits(bits, x)
    shifted = np.right_shift(low, np.where(past, low.dtype.type(0), view_unsigned(amount)))
    return np.where(past, low.dtype.type(0), shifted).astype(x.dtype)


def shift_right_arithmetic(bits: int, x: Array, amount: Array) -> Array:
    """Copies of the top bit move in, for unsigned types too."""
    signed: Array = x.view(f"i{x.dtype.itemsize}") if x.dtype.kind == "u" else x
    if bits < 8:
        lift = signed.dtype.type(8 - bits)
        signed = (signed << lift) >> lift
    past = _past_width(bits, amount)
    count: Any = np.where(past, x.dtype.type(bits - 1), amount).astype(signed.dtype)
    return np.asarray(np.right_shift(signed, count).astype(x.dtype))


def total_order(x: Array) -> Array:
    """Integers that compare as IEEE's total order: -NaN < -inf < ... < -0 < 0 < ... < inf < NaN."""
    if x.dtype in _ODD_SIGNS:
        # NaN in place of -0 is a negative one.
        nan = np.copysign(np.float32(np.nan), np.where(np.signbit(x), np.float32(-1), np.float32(1)))
        x = np.where(np.isnan(x), nan, x.astype(np.float32))
    bits = view_unsigned(x)
    signed = bits.view(f"i{x.dtype.itemsize}")
    top = np.array(np.iinfo(signed.dtype).max, signed.dtype)
    return np.where(signed < 0, signed ^ top, signed)
