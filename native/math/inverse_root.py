"""1 / sqrt(x) of f32 and f64 lanes, all but correctly rounded: a first value, and Newton's step in exact products.

CPUs with AVX-512 estimate it to 14 bits at once, where a root and a division take longer than all the rest.
"""

from __future__ import annotations

from llvmlite import ir

from shardc.native.math.common import fma
from shardc.native.math.vector import F32, constant, intrinsic, lanes_of, scalar_of, shuffle, suffix, zero

__all__ = ["ESTIMATES", "inverse_root"]

#: LLVM's name of the estimate, by type, and the bits of its mask.
ESTIMATES = {
    f"v{lanes}{kind}": (f"llvm.x86.avx512.rsqrt14.p{kind_letter}.{bits}", max(8, lanes))
    for kind, kind_letter, size in (("f32", "s", 32), ("f64", "d", 64))
    for bits in (128, 256, 512)
    for lanes in (bits // size,)
}
#: More than an estimate is ever off by.
_SHORT = 2.0**-10
#: What a CPU must have for it.
_FEATURES = frozenset({"+avx512f", "+avx512vl"})


def inverse_root(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    y = _estimated(b, x)
    if y is None:
        y = b.fdiv(constant(x.type, 1.0), intrinsic(b, "llvm.sqrt", x.type, [x]))
    elif scalar_of(x.type) != F32:
        y = _refined(b, x, y)
    return _refined(b, x, y)


def _refined(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """y + y (1 - x y y) / 2, where x y is a sum of two numbers."""
    root = b.fmul(x, y)
    rest = fma(b, x, y, b.fneg(root))
    short = fma(b, b.fneg(root), y, constant(x.type, 1.0))
    short = fma(b, b.fneg(rest), y, short)
    most = constant(x.type, _SHORT)
    short = b.select(b.fcmp_ordered("<", short, most), short, most)  # NaN for 0 and infinity, whose roots are y
    return fma(b, b.fmul(y, constant(x.type, 0.5)), short, y)


def _estimated(b: ir.IRBuilder, x: ir.Value) -> ir.Value | None:
    """To 14 bits, the same in vectors of any width; None where the CPU has no such instruction."""
    target = getattr(b.module, "target", None)
    if target is None or not getattr(b.module, "has_libm", True) or _FEATURES - set(target.features.split(",")):
        return None
    lanes = lanes_of(x.type)
    fewest, most = (4, 16) if scalar_of(x.type) == F32 else (2, 8)
    if lanes == 1:
        wide = b.insert_element(zero(ir.VectorType(x.type, fewest)), x, constant(ir.IntType(32), 0))
        return b.extract_element(_estimate(b, wide), constant(ir.IntType(32), 0))
    if lanes < fewest:
        wide = shuffle(b, x, None, [k % lanes for k in range(fewest)])
        return shuffle(b, _estimate(b, wide), None, range(lanes))
    if lanes <= most:
        return _estimate(b, x)
    half = lanes // 2
    low, high = (_estimated(b, shuffle(b, x, None, range(k, k + half))) for k in (0, half))
    return shuffle(b, low, high, range(lanes))


def _estimate(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    name, bits = ESTIMATES[suffix(x.type)]
    mask = ir.IntType(bits)
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(x.type, [x.type, x.type, mask]), name)
    return b.call(function, [x, zero(x.type), constant(mask, -1)])
