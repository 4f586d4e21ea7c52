"""Expand vector products: a matrix times a vector is a sum over the matrix scaled, at the speed of memory.

Such a product reads the matrix once and does one multiplication per element, so what matters is to read it in the
order in which it lies, on all threads, together with whatever else is done: just what reductions are made for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Instruction, Module, rebuild_computation
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import constant, make, map_computations, reshape, step_computations, transpose
from shardc.hlo.ir.types import DType, array_shape

__all__ = ["ExpandVectorProducts"]


@dataclass(frozen=True, slots=True)
class ExpandVectorProducts:
    """A ``dot`` with one row or one column is a ``reduce`` of products; smaller ones than ``least`` elements stay."""

    name: str = "expand-vector-products"
    why: str = "a matrix times a vector reads the matrix once, in memory order"
    least: int = 1 << 12
    looks_at: ClassVar[frozenset[str]] = frozenset({"dot"})

    def run(self, module: Module) -> Module:
        return map_computations(
            module,
            lambda c: rebuild_computation(c, self._expanded, only=frozenset({"dot"})),
            only=step_computations(module),
        )

    def _expanded(self, dot: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if dot.shape.dtype.kind == "pred" or max(o.shape.size for o in operands) < self.least:
            return None
        sides = [_ProductSide(o, dot, role) for o, role in zip(operands, ("lhs", "rhs"), strict=True)]
        vector = next((n for n, s in enumerate(sides) if s.free == 1), None)
        if vector is None or 0 in dot.shape.dims or any(0 in o.shape.dims for o in operands):
            return None
        return _sum(dot, sides[1 - vector], sides[vector])


class _ProductSide:
    """An operand and its dimensions by role; ``free`` is how many rows (or columns) it has."""

    def __init__(self, operand: Instruction, dot: Instruction, role: str) -> None:
        self.operand = operand
        self.batch: tuple[int, ...] = tuple(dot.attrs.get(f"{role}_batch_dims", ()))
        self.contracted: tuple[int, ...] = tuple(dot.attrs.get(f"{role}_contracting_dims", ()))
        self.kept = (*self.batch, *self.contracted)
        self.rest = tuple(d for d in range(operand.shape.rank) if d not in self.kept)
        self.free = 1
        for d in self.rest:
            self.free *= operand.shape.dims[d]


def _sum(dot: Instruction, matrix: _ProductSide, vector: _ProductSide) -> Instruction:
    kind = dot.shape.dtype.accumulator
    x = _converted(matrix.operand, kind, dot)
    names = sorted(vector.kept)
    y = reshape(_converted(vector.operand, kind, dot), tuple(vector.operand.shape.dims[d] for d in names), dot)
    place = dict(zip(vector.kept, matrix.kept, strict=True))
    y = _spread(y, [place[d] for d in names], x, dot)
    products = make("multiply", x.shape, (x, y), dot)
    zero = constant(Literal.full(array_shape(kind), 0), dot)
    kept = [d for d in range(x.shape.rank) if d not in matrix.contracted]
    shape = array_shape(kind, *(x.shape.dims[d] for d in kept))
    total = make(
        "reduce", shape, (products, zero), dot, dimensions=tuple(sorted(matrix.contracted)),
        to_apply=binary_computation("add", kind),
    )  # fmt: skip
    order = [kept.index(d) for d in (*matrix.batch, *matrix.rest)]
    total = transpose(total, tuple(order), dot)
    return _converted(reshape(total, dot.shape.dims, dot), dot.shape.dtype, dot)


def _spread(y: Instruction, dims: Sequence[int], x: Instruction, like: Instruction) -> Instruction:
    """``y`` along ``dims`` of ``x``, whose order may be another."""
    order = sorted(range(len(dims)), key=dims.__getitem__)
    y = transpose(y, tuple(order), like)
    return make("broadcast", x.shape, (y,), like, dimensions=tuple(sorted(dims)))


def _converted(x: Instruction, kind: DType, like: Instruction) -> Instruction:
    return x if x.shape.dtype is kind else make("convert", x.shape.with_dtype(kind), (x,), like)
