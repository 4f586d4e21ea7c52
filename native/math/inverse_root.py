"""1 / sqrt(x) of f32 and f64 lanes, all but correctly rounded, and its cube within 4 ulp.

Processors estimate the first to 12 or 14 bits at once, where a root and a division take longer than all the rest.
What an estimate y lacks is a power series of e = 1 - x y y.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from llvmlite import ir

from shardc.native.math.common import fma, magnitude, square_root
from shardc.native.math.vector import F32, I32, constant, lanes_of, scalar_of, shuffle, suffix, zero

__all__ = ["inverse_root", "inverse_root_cubed", "inverse_root_cubed_of_positive"]


@dataclass(frozen=True, slots=True)
class _Estimate:
    """An instruction for 1 / sqrt(x) that is off by at most ``error`` of it.

    ``names``: LLVM's, by type. ``denormal``: it takes denormal numbers for what they are. ``masked``: it takes two more
    arguments, what lanes have that it leaves out, and which it does not.
    """

    features: frozenset[str]
    names: Mapping[str, str]
    error: float
    denormal: bool
    masked: bool

    def lanes(self, scalar: ir.Type) -> list[int]:
        """Of the vectors that it takes; none where it is not made for the type."""
        return [n for n in (2, 4, 8, 16) if f"v{n}{suffix(scalar)}" in self.names]


#: From the best to the plainest.
_ESTIMATES = (
    _Estimate(
        frozenset({"+avx512f", "+avx512vl"}),
        {
            f"v{bits // size}f{size}": f"llvm.x86.avx512.rsqrt14.p{letter}.{bits}"
            for letter, size in (("s", 32), ("d", 64))
            for bits in (128, 256, 512)
        },
        2.0**-14,
        denormal=True,
        masked=True,
    ),
    _Estimate(
        frozenset({"+avx", "+fma"}),
        {"v4f32": "llvm.x86.sse.rsqrt.ps", "v8f32": "llvm.x86.avx.rsqrt.ps.256"},
        1.5 * 2.0**-12,
        denormal=False,
        masked=False,
    ),
)
#: More than e ever is.
_SHORT = 2.0**-10


def inverse_root(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    estimate = _estimate_for(b, x.type)
    if estimate is None or not estimate.denormal:
        y = b.fdiv(constant(x.type, 1.0), square_root(b, x))
    else:
        y = _estimated(b, x, estimate)
        if scalar_of(x.type) != F32:
            y = _refined(b, x, y)
    return _refined(b, x, y)


def inverse_root_cubed(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """x ** -1.5, as powers are: 0 for -infinity, and infinity for -0."""
    bad = b.and_(b.fcmp_ordered("<", x, zero(x.type)), b.fcmp_ordered(">", x, constant(x.type, -math.inf)))
    return b.select(bad, constant(x.type, math.nan), inverse_root_cubed_of_positive(b, magnitude(b, x)))


def inverse_root_cubed_of_positive(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """x ** -1.5 where x is at least +0, or NaN.

    Four roundings at most count once, and that of y y half, since e is measured with it.
    """
    one = constant(x.type, 1.0)
    estimate = _estimate_for(b, x.type)
    if estimate is None:
        inverse = b.fdiv(one, x)
        return b.fmul(inverse, square_root(b, inverse))
    y, most, digits = _estimated(b, x, estimate), 2 * estimate.error, 24
    if scalar_of(x.type) != F32:
        y, most, digits = _refined(b, x, y), most * most, 53
    square = b.fmul(y, y)
    short = fma(b, b.fneg(x), square, one)  # NaN for 0 and infinity, whose y is the result
    series = constant(x.type, 1.5)
    if 1.875 * most**2 > 2.0 ** -(digits + 1):
        short = _at_most(b, short, 1.0)
        series = fma(b, short, constant(x.type, 1.875), series)
    else:
        short = b.fneg(_at_most(b, b.fneg(short), 0.5))  # -infinity for denormal numbers
    return b.fmul(b.fmul(square, y), fma(b, series, short, one))


def _at_most(b: ir.IRBuilder, x: ir.Value, most: float) -> ir.Value:
    """The smaller of both; ``most`` for NaN."""
    limit = constant(x.type, most)
    return b.select(b.fcmp_ordered("<", x, limit), x, limit)


def _refined(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """y + y (1 - x y y) / 2, where x y is a sum of two numbers."""
    root = b.fmul(x, y)
    rest = fma(b, x, y, b.fneg(root))
    short = fma(b, b.fneg(root), y, constant(x.type, 1.0))
    short = fma(b, b.fneg(rest), y, short)
    short = _at_most(b, short, _SHORT)  # NaN for 0 and infinity, whose roots are y
    return fma(b, b.fmul(y, constant(x.type, 0.5)), short, y)


def _estimate_for(b: ir.IRBuilder, t: ir.Type) -> _Estimate | None:
    """The best that the module's CPU has for a type."""
    target = getattr(b.module, "target", None)
    if target is None or not getattr(b.module, "has_libm", True):
        return None
    present = set(target.features.split(","))
    return next((e for e in _ESTIMATES if e.features <= present and e.lanes(scalar_of(t))), None)


def _estimated(b: ir.IRBuilder, x: ir.Value, estimate: _Estimate) -> ir.Value:
    """The same in vectors of any width."""
    lanes, (fewest, *_, most) = lanes_of(x.type), estimate.lanes(scalar_of(x.type))
    if lanes == 1:
        wide = b.insert_element(zero(ir.VectorType(x.type, fewest)), x, constant(I32, 0))
        return b.extract_element(_estimated(b, wide, estimate), constant(I32, 0))
    if lanes < fewest:
        wide = shuffle(b, x, None, [k % lanes for k in range(fewest)])
        return shuffle(b, _estimated(b, wide, estimate), None, range(lanes))
    if lanes > most:
        half = lanes // 2
        low, high = (_estimated(b, shuffle(b, x, None, range(k, k + half)), estimate) for k in (0, half))
        return shuffle(b, low, high, range(lanes))
    mask = ir.IntType(max(8, lanes))
    arguments = [x, zero(x.type), constant(mask, -1)] if estimate.masked else [x]
    name = estimate.names[suffix(x.type)]
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(x.type, [a.type for a in arguments]), name)
    return b.call(function, arguments)
