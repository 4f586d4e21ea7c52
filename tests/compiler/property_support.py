"""Awkward values of every type, and how far apart results are in units in the last place."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from shardc.hlo.ir.types import DTYPES, DType, Shape

Array = np.ndarray[Any, Any]

#: Every element type that arrays have.
TYPES = tuple(d.name for d in DTYPES.values() if d.bits and d.kind not in ("token", "tuple", "opaque"))


def limits(d: DType) -> tuple[int, int]:
    """Lowest and highest value of an integer type."""
    signed = d.kind == "signed"
    return (-(2 ** (d.bits - 1)), 2 ** (d.bits - 1) - 1) if signed else (0, 2**d.bits - 1)


def special(d: DType) -> Array:
    """What goes wrong first: limits, zeros of both signs, infinities, NaN, denormals, shift distances, ties."""
    if d.kind == "pred":
        return np.array([False, True])
    if d.is_integer:
        low, high = limits(d)
        near = {low, low + 1, high - 1, high, *range(-3, 4), d.bits - 1, d.bits, d.bits + 1, 63, 64, 65, 100}
        inside = sorted(v for v in near if low <= v <= high)
        return np.array(inside, np.int64 if low < 0 else np.uint64).astype(d.numpy)
    if d.is_complex:
        parts = special(DTYPES["f32" if d.bits == 64 else "f64"])
        return join(*(g.reshape(-1) for g in np.meshgrid(parts, parts)))
    if d.bits <= 8:
        return np.arange(2**d.bits, dtype=np.uint8).view(d.numpy)
    info = ml_dtypes.finfo(d.numpy)
    sizes = [0, 0.5, 1, 1.5, 2, 2.5, 3, 20, 88.75, 104, 127.5, 255.5, 745, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 1e-5]
    edges = [info.max, info.tiny, info.smallest_subnormal, 1 - info.eps / 2, 1 + info.eps]
    with np.errstate(all="ignore"):
        positive = np.array([*sizes, *map(float, edges), np.inf]).astype(d.numpy)
    return np.concatenate([positive, -positive, np.array([np.nan], d.numpy)])


def join(real: Array, imaginary: Array) -> Array:
    """Complex numbers from parts; adding would turn infinities into NaN."""
    out = np.empty(real.shape, np.complex64 if real.dtype == np.float32 else np.complex128)
    out.real, out.imag = real, imaginary
    return out


def wild(shape: Shape, seed: int) -> Array:
    """Special values, numbers of everyday size and any bits at all, mixed."""
    rng, d = np.random.default_rng(seed), shape.dtype
    if d.is_complex:
        part = Shape(DTYPES["f32" if d.bits == 64 else "f64"], shape.dims)
        return join(wild(part, 2 * seed), wild(part, 2 * seed + 1))
    choices = rng.choice(special(d), shape.dims) if d.kind == "pred" else _picked(special(d), rng, shape.dims)
    if d.kind == "pred":
        return choices
    kind = rng.integers(0, 3, shape.dims)
    bits = rng.integers(0, 256, (*shape.dims, d.nbytes), np.uint8)
    any_bits = np.ascontiguousarray(bits).view(f"u{d.nbytes}").reshape(shape.dims)
    if d.bits < 8:
        # The value must be one of the type: sign-extended where it has a sign.
        any_bits = any_bits & np.uint8(2**d.bits - 1)
        negative = any_bits >> np.uint8(d.bits - 1) if d.kind == "signed" else np.uint8(0)
        any_bits = any_bits | np.uint8(256 - 2**d.bits) * negative
    usual = small(shape, seed) if d.is_integer else np.asarray(rng.standard_normal(shape.dims) * 3).astype(d.numpy)
    return np.where(kind == 0, choices, np.where(kind == 1, usual, any_bits.astype(f"u{d.nbytes}").view(d.numpy)))


def _picked(values: Array, rng: np.random.Generator, dims: tuple[int, ...]) -> Array:
    return values[rng.integers(0, len(values), dims)]


def small(shape: Shape, seed: int) -> Array:
    """Whole numbers from -2 to 2: sums of products of them are exact in every order, in every type of 16 bits."""
    rng, d = np.random.default_rng(seed), shape.dtype
    whole = rng.integers(
        0 if d.kind in ("unsigned", "pred") else -2, 2 if d.kind == "pred" or d.bits == 2 else 3, shape.dims
    )
    if d.is_complex:
        return (whole + 1j * rng.integers(-2, 3, shape.dims)).astype(d.numpy)
    return np.asarray(whole).astype(d.numpy)


def _ordered(x: Array) -> Array:
    """Integers as far apart as the floats are in units in the last place; both zeros are 0."""
    if x.dtype.itemsize == 1:
        values = np.arange(2 ** ml_dtypes.finfo(x.dtype).bits, dtype=np.uint8).view(x.dtype).astype(np.float64)
        return np.searchsorted(np.unique(values[~np.isnan(values)]), x.astype(np.float64))
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").reshape(x.shape)
    return np.where(bits < 0, np.iinfo(bits.dtype).min - bits, bits).astype(object)


def distance(got: Array, wanted: Array) -> Array:
    """Units in the last place between floats; infinite where one is NaN or infinity and the other is not."""
    g, w = (x.astype(np.float64) for x in (got, wanted))
    far = np.asarray(np.abs(_ordered(got) - _ordered(wanted)), np.float64)
    one_infinite = (np.isinf(g) != np.isinf(w)) & (far > 1)
    far = np.where((np.isnan(g) != np.isnan(w)) | one_infinite, np.inf, far)
    return np.where((g == w) | (np.isnan(g) & np.isnan(w)), 0.0, far)


def complex_distance(got: Array, wanted: Array) -> Array:
    """The larger of the parts' distances. Which part is infinite or NaN does not matter where one of them is.

    c128 has no wider type to round from, so that a part that is small beside the other may have lost digits: there
    the error over the number's size counts.
    """
    far = np.maximum(distance(got.real, wanted.real), distance(got.imag, wanted.imag))
    if wanted.dtype == np.complex128:
        relative = np.abs(got - wanted) / np.abs(wanted) / np.finfo(np.float64).eps
        far = np.where(np.isfinite(relative), np.minimum(far, relative), far)
    return np.where(~np.isfinite(got) & ~np.isfinite(wanted), 0.0, far)


def difference(got: Array, wanted: Array, ulp: float) -> str:
    """Empty, or the place and values of the worst of the elements that are more than ``ulp`` apart."""
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if got.dtype.kind in "biu" or not (wanted.dtype.kind == "c" or _is_float(wanted.dtype)):
        far = np.where(got != wanted, np.inf, 0.0)
    else:
        with np.errstate(all="ignore"):
            if wanted.dtype.kind != "c":
                far = distance(got, wanted)
            elif ulp:
                far = complex_distance(got, wanted)
            else:
                far = np.maximum(distance(got.real, wanted.real), distance(got.imag, wanted.imag))
    if not (far > ulp).any():
        return ""
    place = np.unravel_index(int(np.argmax(far)), far.shape)
    return f"{far[place]} ulp at {[int(p) for p in place]}: {got[place]}, evaluated {wanted[place]}"


def _is_float(dtype: np.dtype[Any]) -> bool:
    return any(d.numpy == dtype and d.is_float for d in DTYPES.values())
