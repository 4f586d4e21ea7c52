"""The exponential of f32 on GPUs, where one instruction gives powers of two near 1.

NVIDIA's ``ex2.approx`` is good to two units in the last place there; elsewhere (AMD, the emulation) a polynomial does
it. All else is a dozen instructions, where the processors' way takes two dozen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from llvmlite import ir

from shardc.native.math.common import fma
from shardc.native.math.single import LN2_HIGH, LN2_LOW, exp_minus_one
from shardc.native.math.vector import F32, I32, constant, intrinsic, lanes_of, undef, with_scalar

__all__ = ["GPU_FUNCTIONS", "exp"]

#: Adding it leaves a whole number in the last bits.
_MAGIC = 1.5 * 2.0**23
#: Exponents are this much too large or too small first, so that results become denormal or infinite in one rounding.
_AWAY = 64


def exp(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """n = round(x / ln 2), exp of the rest, and n added to its exponent."""
    t, integer = x.type, with_scalar(x.type, I32)
    inside = intrinsic(b, "llvm.minimum", t, [x, constant(t, 89.0)])
    inside = intrinsic(b, "llvm.maximum", t, [inside, constant(t, -104.0)])  # NaN stays
    shifted = fma(b, inside, constant(t, 1 / math.log(2)), constant(t, _MAGIC))
    n = b.fsub(shifted, constant(t, _MAGIC))
    rest = fma(b, n, constant(t, -LN2_LOW), fma(b, n, constant(t, -LN2_HIGH), inside))
    low = b.fcmp_ordered("<", inside, constant(t, 0.0))
    away = b.select(low, constant(integer, _AWAY << 23), constant(integer, -_AWAY << 23))
    bits = b.add(b.bitcast(_near_zero(b, rest), integer), away)
    bits = b.add(bits, b.shl(b.bitcast(shifted, integer), constant(integer, 23)))
    back = b.select(low, constant(t, 2.0**-_AWAY), constant(t, 2.0**_AWAY))
    nothing = b.fmul(inside, constant(t, 0.0))  # but NaN
    return fma(b, b.bitcast(bits, t), back, nothing)


def _near_zero(b: ir.IRBuilder, r: ir.Value) -> ir.Value:
    """exp(r) for r of at most ln(2) / 2."""
    t = r.type
    if not str(b.module.triple).startswith("nvptx"):
        return b.fadd(exp_minus_one(b, r), constant(t, 1.0))
    f = b.fmul(r, constant(t, 1 / math.log(2)))
    if lanes_of(t) == 1:
        return _ex2(b, f)
    result: ir.Value = undef(t)
    for lane in range(lanes_of(t)):
        at = constant(I32, lane)
        result = b.insert_element(result, _ex2(b, b.extract_element(f, at)), at)
    return result


def _ex2(b: ir.IRBuilder, f: ir.Value) -> ir.Value:
    name = "llvm.nvvm.ex2.approx.ftz.f"
    function = b.module.globals.get(name) or ir.Function(b.module, ir.FunctionType(F32, [F32]), name)
    return b.call(function, [f])


#: f32 functions that modules for GPUs have instead of the general ones.
GPU_FUNCTIONS: Mapping[str, Callable[..., ir.Value]] = MappingProxyType({"exp": exp})
