"""Reductions of short rows: as many rows side by side as a vector has lanes.

A row of 16 elements fills one vector, and folding it in itself takes longer than reading it. Squares of rows are
transposed in registers instead, so that every lane folds a row of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.loops.tiles import TransposedTile, side
from shardc.compiler.cpu.reductions.columns import combine_pairs, one_per_element
from shardc.compiler.elements.affine import LoopVar, Mask
from shardc.compiler.elements.elements import FoldUse, Index, Recorder
from shardc.compiler.elements.fold_emitter import plan_fold, round_element
from shardc.compiler.elements.frames import Frame, Val
from shardc.compiler.elements.loop_space import bind_group, element_bits, merge, reads_across
from shardc.native.math.vector import I64, constant

__all__ = ["ShortRows", "lanes_for"]

#: Longest rows, and most operations per element: a row's steps are all written out.
_LONGEST, _OPERATIONS = 32, 4


def lanes_for(e: CpuEmitter, recorder: Recorder, index: Index, inner: LoopVar, rows: int) -> int:
    """Rows side by side; 1 where the rows are long, or are not read as they lie."""
    folds = recorder.folds
    if not one_per_element(folds, index) or recorder.operations > _OPERATIONS:
        return 1
    if not 1 < math.prod(folds[0].fold.sizes) <= _LONGEST:
        return 1
    for use in folds:
        space, inside = plan_fold(e, (), use.fold)
        groups = merge(space.variables, [a.offset for a in inside.accesses], inside.expressions())
        if len(groups) != 1 or not any(reads_across(a.offset, groups[0][-1], inner) for a in inside.accesses):
            return 1
    lanes = e.vector_bits // element_bits(a.shape.dtype for a in recorder.accesses)
    return lanes if rows >= lanes else 1


@dataclass
class ShortRows:
    """The reductions of one map, for the rows that the lanes stand for."""

    e: CpuEmitter
    mask: Mask
    lane: LoopVar
    lanes: int
    live: int

    def results(self, use: FoldUse, frame: Frame) -> list[Val]:
        """A finished reduction: one value per lane."""
        e, fold = self.e, use.fold
        space, recorder = plan_fold(e, self.mask, fold)
        (group,) = merge(space.variables, [a.offset for a in recorder.accesses], recorder.expressions())
        length = math.prod(v.size for v in group)
        height = min(side(e.vector_bits, a.shape.dtype.nbytes) for a in recorder.accesses)
        parts: list[Val] = []
        for first in range(0, length, height):
            count = min(height, length - first)
            bind_group(e, group, Val((constant(I64, first),), e.entry))
            tile = TransposedTile(e, group[-1], self.lane, count, self.lanes, self.live, rolled=False, frame=frame)
            tile.fill(recorder.accesses, frame)
            e.tile = tile
            values: list[Val] = []
            for step in range(count):
                tile.step = step
                bind_group(e, group, Val((constant(I64, first + step),), e.entry))
                values.extend(fold.element(e, space.index, self.mask))
            e.tile = None
            parts.append(combine_pairs(e, fold, values))
        value = combine_pairs(e, fold, parts)
        if fold.init is not None:
            value = e.call(fold.reducer, [*fold.init(e), value], wide=True)[0]
        return [round_element(e, value, fold.dtypes[0])]
