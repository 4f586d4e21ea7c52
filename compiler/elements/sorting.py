"""Rows along which arrays are sorted, and the comparator of top-k."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import DType, array_shape
from shardc.native.math.vector import I64, constant

__all__ = ["Rows", "by_value"]


class Rows:
    """Rows of one array along a dimension: where element k of the row at ``base`` lies."""

    def __init__(self, dims: Sequence[int], dim: int) -> None:
        self.length = dims[dim]
        self.outer, self.stride = math.prod(dims[:dim]), math.prod(dims[dim + 1 :])

    def base(self, b: ir.IRBuilder, outer: ir.Value, inner: ir.Value) -> ir.Value:
        return b.add(b.mul(outer, constant(I64, self.length * self.stride)), inner)

    def at(self, b: ir.IRBuilder, base: ir.Value, k: ir.Value) -> ir.Value:
        return b.add(base, b.mul(k, constant(I64, self.stride)))


def by_value(dtype: DType, largest: bool) -> Computation:
    """Comparator over (value, value, position, position): larger (or smaller) values first."""
    kinds = [array_shape(dtype), array_shape(dtype), array_shape("s32"), array_shape("s32")]
    parameters = [Instruction("parameter", s, attrs={"index": n}) for n, s in enumerate(kinds)]
    attrs = {"direction": "GT" if largest else "LT"}
    if dtype.is_float:
        attrs["type"] = "TOTALORDER"
    root = Instruction("compare", array_shape("pred"), parameters[:2], attrs)
    return Computation("by_value", (*parameters, root), root)
