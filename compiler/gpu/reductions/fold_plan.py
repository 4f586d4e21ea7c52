"""Reductions of a kernel, side by side: which positions they fold, and along what memory lies.

A kernel whose results each need one element of some reductions (with whatever is computed before and after them) is a
map over its results, with folds inside. When all folds run over the same positions, threads share each of them. Memory
that lies along the folded positions makes a reduction of rows, memory that lies along the results one of columns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from shardc.compiler.elements.affine import LoopVar, Mask, VarSource, linear
from shardc.compiler.elements.elements import Access, Answer, Element, Elements, FoldUse, Index, Recorder, bases
from shardc.compiler.elements.frames import Frame, Val
from shardc.compiler.elements.loop_space import Space, group_size, merge, power_below
from shardc.compiler.elements.results import elements_of, with_dims
from shardc.compiler.elements.rules import RULES
from shardc.compiler.gpu.function import GpuEmitter
from shardc.compiler.gpu.reductions.accumulate import Reducer
from shardc.compiler.lower.fuse.fusion_rules import long_dims
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import Shape
from shardc.native.math.vector import I32, I64, constant

__all__ = ["FoldPlan", "bind_units", "lanes_along", "plan_folds", "size_of"]

Group = list[LoopVar]

#: Bytes of one access, and most lanes of a thread.
_ACCESS, _MOST_LANES = 16, 8


@dataclass(frozen=True)
class FoldPlan:
    """``uses`` are the folds, at ``results``' index, over ``positions``; ``kept`` and ``folded`` their loops, merged.

    ``elements`` give the results, whose dimensions differ in those of one element only.
    """

    results: Space
    positions: Space
    uses: tuple[FoldUse, ...]
    kept: list[Group]
    folded: list[Group]
    accesses: tuple[Access, ...]
    elements: tuple[Element, ...]
    dims: tuple[int, ...]
    operations: int

    @property
    def reducers(self) -> list[Reducer]:
        return [Reducer.of(u.fold) for u in self.uses]

    @property
    def ordered(self) -> bool:
        """Whether neighbours must stay neighbours."""
        return any(r.ordered for r in self.reducers)

    @property
    def rows(self) -> int:
        """How many elements each result has."""
        return size_of(self.kept)

    @property
    def steps(self) -> int:
        """How many positions are folded."""
        return size_of(self.folded)

    @property
    def by_columns(self) -> bool:
        """Whether memory lies along the results rather than along what is folded."""
        return bool(self.kept) and self._weight(self.best_kept) > max(map(self._weight, self.folded), default=0)

    @property
    def best_kept(self) -> Group:
        """The results' loop along which most memory lies."""
        return max(self.kept, key=self._weight)

    def _weight(self, group: Group) -> int:
        return sum(a.shape.nbytes for a in self.accesses if a.offset.coefficient(group[-1]) == 1)

    def ordered_folds(self) -> list[Group]:
        """The folded loops, that along which memory lies innermost where the order is free."""
        if not self.folded or self.ordered:
            return self.folded
        best = max(range(len(self.folded)), key=lambda k: (self._weight(self.folded[k]), k))
        return [*self.folded[:best], *self.folded[best + 1 :], self.folded[best]]

    def unroll(self) -> int:
        """Steps that a thread has under way at once: bytes in flight, against registers and code."""
        streams = max(1, len({a.offset for a in self.accesses}))
        return 4 if self.operations <= 8 and streams <= 2 else 2


def plan_folds(
    source: VarSource, computation: Computation, leaves: Collection[Instruction], shapes: Sequence[Shape]
) -> FoldPlan | None:
    """The plan of a kernel, None where its folds are not reductions over the same positions, one per result."""
    if not any(i.opcode == "reduce" for i in computation):
        return None
    dims = max((s.dims for s in shapes), key=len)
    if len({long_dims(s.dims) for s in shapes}) != 1 or 0 in dims:
        return None
    elements = elements_of(computation)
    results, outer = _planned(
        source, leaves, dims, [partial(_at, f, dims, s.dims) for f, s in zip(elements, shapes, strict=True)]
    )
    uses = tuple({u.key: u for u in outer.folds}.values())
    if not uses or outer.one_by_one or not all(_folds_like(u, uses[0]) for u in outer.folds) or 0 in uses[0].fold.sizes:
        return None
    if not frozenset(results.variables) <= frozenset().union(*map(bases, uses[0].index)):
        return None  # several results would repeat one fold
    positions, inner = _planned(source, leaves, uses[0].fold.sizes, [u.fold.element for u in uses])
    if inner.folds:
        return None
    stores = [linear(with_dims(results.index, dims, s.dims), s.dims) for s in shapes]
    kept = merge(results.variables, [*(a.offset for a in outer.accesses), *stores], outer.expressions())
    folded = merge(positions.variables, [a.offset for a in inner.accesses], inner.expressions())
    accesses = tuple(inner.accesses)
    return FoldPlan(results, positions, uses, kept, folded, accesses, elements, dims, outer.operations)


def _at(element: Element, dims: Sequence[int], own: Sequence[int], e: Elements, index: Index, mask: Mask) -> Answer:
    return element(e, with_dims(index, dims, own), mask)


def _planned(
    source: VarSource, leaves: Collection[Instruction], sizes: Sequence[int], elements: Sequence[Element]
) -> tuple[Space, Recorder]:
    """Loops over ``sizes``, split where that makes addresses plain, and what ``elements`` read in them."""
    space = Space(source, sizes)
    while True:
        recorder = Recorder(source, frozenset(leaves), RULES)
        for element in elements:
            element(recorder, space.index, ())
        if len(space.variables) > 8 or not space.split_for([a.offset for a in recorder.accesses] + recorder.uses):
            return space, recorder


def _folds_like(use: FoldUse, first: FoldUse) -> bool:
    """The same positions, and an element that exists for every result (not one of a padded array)."""
    same = use.index == first.index and use.fold.sizes == first.fold.sizes
    dims = next(use.key.shape.leaves()).dims
    inside = all(x.range[0] >= 0 and x.range[1] <= n for x, n in zip(use.index, dims, strict=True))
    plain = use.key.opcode == "reduce" and use.fold.order in ("any", "runs") and use.fold.taken is None
    return same and inside and plain


def size_of(groups: Iterable[Group]) -> int:
    """How often the loops of ``groups`` run together."""
    return math.prod(map(group_size, groups))


def lanes_along(accesses: Iterable[Access], group: Group) -> int:
    """Neighbouring elements that a thread takes at once: 16 bytes of the widest array that lies along ``group``."""
    widest = max((a.shape.dtype.nbytes for a in accesses if a.offset.coefficient(group[-1]) == 1), default=0)
    if widest == 0:
        return 1
    size = group_size(group)
    return max(1, min(_MOST_LANES, power_below(_ACCESS // min(widest, _ACCESS)), size & -size))


def bind_units(e: GpuEmitter, frame: Frame, groups: Sequence[Group], unit: ir.Value, lanes: int = 1) -> None:
    """Bind loops to one number that counts all of them together, in units of ``lanes`` along the innermost."""
    b = frame.builder
    narrow = size_of(groups) // lanes < 1 << 31
    rest = b.trunc(unit, I32) if narrow else unit
    for n in range(len(groups) - 1, -1, -1):
        wide = lanes if n == len(groups) - 1 else 1
        count, here = group_size(groups[n]) // wide, rest
        if n > 0:
            here = b.urem(rest, constant(rest.type, count))
            rest = b.udiv(rest, constant(rest.type, count))
        counter = b.zext(here, I64) if narrow else here
        if wide > 1:
            counter = b.mul(counter, constant(I64, wide))
        for v in groups[n][:-1]:
            e.bind(v, Val((constant(I64, 0),), e.entry))
        e.bind(groups[n][-1], Val((counter,), frame), wide, whole=True)
