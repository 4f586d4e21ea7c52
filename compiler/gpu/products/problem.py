"""What a product kernel computes: sums over a depth of products of two operands, for rows and columns, per batch.

Matrix products and convolutions are both of this form. They differ in where an operand's element of a row (or column)
and depth lies, which `ProductOperand.at` tells, and in where a result goes, which `ProductProblem.place` tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from shardc.compiler.elements.affine import Expr, InRange, VarSource
from shardc.compiler.elements.dot_sides import DotSide, DotSides
from shardc.compiler.elements.elements import Index
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DType

__all__ = ["ProductOperand", "ProductProblem", "Where", "dot_problem", "in_memory_order", "power_dividing"]

#: An operand's index, and what must hold for it to be one: elements elsewhere are zero (None: there are no others).
Where = tuple[Index, tuple[InRange, ...] | None]


@dataclass(frozen=True, slots=True)
class ProductOperand:
    """One side. ``at(source, batch, free, depth)`` is the place of the element in row (or column) ``free``.

    Neighbours in memory are neighbours in depth (``along_depth``) or in rows; aligned runs of ``run`` of them, a power
    of two, lie together. ``windowed``: rows are read through a window, at places that take some arithmetic.
    """

    value: Instruction
    at: Callable[[VarSource, Index, Expr, Expr], Where]
    along_depth: bool
    run: int
    windowed: bool = False


@dataclass(frozen=True, slots=True)
class ProductProblem:
    """``product`` for all of ``batch``, ``m`` rows and ``n`` columns, over ``k``; sums are kept in ``kind``.

    ``place(source, batch, row, column)`` is the index of the result. Neighbours in its memory are columns, or rows
    (``rows_together``); aligned runs of ``run`` lie together.
    """

    product: Instruction
    kind: DType
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    left: ProductOperand
    right: ProductOperand
    place: Callable[[VarSource, Index, Expr, Expr], Index]
    rows_together: bool
    run: int

    @property
    def batches(self) -> int:
        return math.prod(self.batch)


def power_dividing(n: int) -> int:
    """The largest power of two that divides ``n > 0``."""
    return n & -n


def dot_problem(dot: Instruction) -> ProductProblem:
    """A ``dot`` without empty dimensions."""
    sides = DotSides(in_memory_order(dot))

    def operand(number: int, side: DotSide) -> ProductOperand:
        def at(source: VarSource, batch: Index, free: Expr, depth: Expr) -> Where:
            row, column = (free, depth) if number == 0 else (depth, free)
            return side.operand_index(source, batch, row, column), ()

        return ProductOperand(dot.operands[number], at, *_neighbours(side))

    last = next((s for s in (sides.right, sides.left) if s.free_size > 1), sides.right)
    inner = next((last.dims[d] for d in reversed(last.free) if last.dims[d] > 1), 1)
    return ProductProblem(
        dot,
        dot.shape.dtype.accumulator,
        sides.batch,
        sides.m,
        sides.n,
        sides.k,
        operand(0, sides.left),
        operand(1, sides.right),
        sides.result_index,
        sides.n == 1 and sides.m > 1,
        power_dividing(inner),
    )


def in_memory_order(dot: Instruction) -> Instruction:
    """The dot with its contracted dimensions in the order in which a side has them that ends with one of them (the
    left, where both do): sums may be taken in any order."""
    left, right = (tuple(dot.attrs.get(f"{side}_contracting_dims", ())) for side in ("lhs", "rhs"))
    pairs = list(zip(left, right, strict=True))
    inner = [_innermost(o) for o in dot.operands]
    by = 1 if inner[1] in right and inner[0] not in left else 0
    pairs.sort(key=lambda p: p[by])
    fields = {"lhs_contracting_dims": tuple(p[0] for p in pairs), "rhs_contracting_dims": tuple(p[1] for p in pairs)}
    return dot.replace(attrs={**dot.attrs, **fields})


def _innermost(i: Instruction) -> int:
    """The dimension along which neighbours in memory lie; -1 for a single element."""
    return max((d for d, n in enumerate(i.shape.dims) if n > 1), default=-1)


def _neighbours(side: DotSide) -> tuple[bool, int]:
    """`ProductOperand.along_depth` and `ProductOperand.run`."""
    inner = max((d for d, n in enumerate(side.dims) if n > 1), default=-1)
    for dims, along in ((side.contracted, True), (side.free, False)):
        if inner in dims:
            last = [d for d in dims if side.dims[d] > 1][-1]
            return along, power_dividing(side.dims[inner]) if last == inner else 1
    return False, 1
