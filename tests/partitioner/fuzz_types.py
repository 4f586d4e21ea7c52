"""Steps of a growing program in other element types: integers, predicates, narrow floats."""

from __future__ import annotations

import numpy as np
from fuzz_grow import Grown

from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import array_shape

__all__ = ["integer_arithmetic", "integer_dot", "narrow_sum", "predicate_reduction"]


def _as(g: Grown, x: Instruction, dtype: str) -> Instruction:
    return g.b.add("convert", x, shape=array_shape(dtype, *x.shape.dims))


def integer_arithmetic(g: Grown, x: Instruction) -> None:
    """Operations that wrap around, shift or divide."""
    dtype = g.r.choice(["s32", "s16", "u8", "u32", "s64"])
    a, b = (_as(g, g.b.add("abs", v) if dtype[0] == "u" else v, dtype) for v in (x, g.like(x)))
    small = g.b.constant(3, dtype, x.shape.dims)
    opcode = g.r.choice(["add", "multiply", "and", "or", "xor", "maximum", "shift-left", "remainder", "divide"])
    other = small if opcode in ("remainder", "divide", "shift-left") else b
    made = g.b.add(opcode, a, other)
    g.keep(_as(g, g.b.add("remainder", made, g.b.constant(31, dtype, x.shape.dims)), "f32"), 31)


def integer_dot(g: Grown, x: Instruction) -> None:
    """A product or a sum of integers, in a type that may be wider than that of the factors."""
    if not x.shape.rank:
        return
    d = g.r.randrange(x.shape.rank)
    narrow, wide = g.r.choice([("s8", "s32"), ("s32", "s32"), ("s16", "s32")])
    y = g.fresh([x.shape.dims[d], g.r.choice([1, 2, 3, 4])])
    free = [n for e, n in enumerate(x.shape.dims) if e != d]
    made = g.b.add(
        "dot", _as(g, x, narrow), _as(g, y, narrow), shape=array_shape(wide, *free, y.shape.dims[1]),
        lhs_contracting_dims=(d,), rhs_contracting_dims=(0,),
    )  # fmt: skip
    g.keep(_as(g, made, "f32"), g.bound(x) * g.bound(y) * x.shape.dims[d])


def narrow_sum(g: Grown, x: Instruction) -> None:
    """A sum in bf16 or f16 of values so small that it is exact."""
    if not x.shape.rank or x.shape.size > 48:
        return
    dtype = g.r.choice(["bf16", "f16", "f64"])
    low, high = g.b.constant(-4.0, "f32"), g.b.constant(4.0, "f32")
    small = _as(g, g.b.add("clamp", low, x, high), dtype)
    over = tuple(sorted(g.r.sample(range(x.shape.rank), g.r.randint(1, x.shape.rank))))
    made = g.b.add(
        "reduce", small, g.b.constant(0.0, dtype), dimensions=over, to_apply=binary_computation("add", dtype)
    )
    g.keep(_as(g, made, "f32"), 4 * float(np.prod([x.shape.dims[d] for d in over])))


def predicate_reduction(g: Grown, x: Instruction) -> None:
    """Do all, or does any?"""
    p = g.b.add("compare", x, g.like(x), direction=g.r.choice(["LT", "GE", "NE"]))
    over = tuple(sorted(g.r.sample(range(x.shape.rank), g.r.randint(0, x.shape.rank))))
    opcode, start = g.r.choice([("and", True), ("or", False)])
    init = g.b.constant(start, "pred")
    made = g.b.add("reduce", p, init, dimensions=over, to_apply=binary_computation(opcode, "pred"))
    g.keep(_as(g, made, "f32"), 1)
