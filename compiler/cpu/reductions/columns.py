"""Reductions of columns: row after row is added to a row of accumulators that stays in the cache.

A map whose elements are reductions along another direction than the lanes would, column block by column block, jump
from row to row. Here rows are read as they lie: some rows at a time, combined by a small tree, then into the
accumulators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from llvmlite import ir

from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import LoopVar, Mask
from shardc.compiler.elements.arithmetic.registers import part_count, register_type
from shardc.compiler.elements.elements import Access, Fold, FoldUse, Index
from shardc.compiler.elements.fold_emitter import plan_fold, round_element
from shardc.compiler.elements.frames import ForLoop, Frame, Val
from shardc.compiler.elements.loop_space import bind_group
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.reducers import identity_of
from shardc.native.math.vector import I8, I32, I64, PTR, constant, intrinsic

__all__ = ["BLOCK", "Columns", "combine_pairs", "one_per_element", "suits"]

#: Columns of a block: the longer, the more of each row is read as it lies; the accumulators still fit a near cache.
BLOCK = 8192
#: Rows that are combined before they meet the accumulators, and most rows that one accumulator may see.
_ROWS, _MOST = 6, 8 * 1024

#: Arrays from so many bytes on are not in the cache when their turn comes.
_OUT_OF_CACHE = 1 << 20


def one_per_element(folds: Sequence[FoldUse], index: Index) -> bool:
    """Whether all folds are reductions over the same rows, one per element of the map, and free in their order."""
    if not folds:
        return False
    sizes = folds[0].fold.sizes
    plain = all(f.key.opcode == "reduce" and f.index == index and f.fold.sizes == sizes for f in folds)
    return plain and all(f.fold.order == "any" and f.fold.taken is None and _is_one_op(f.fold) for f in folds)


def suits(folds: Sequence[FoldUse], index: Index) -> bool:
    """Whether a map with these folds may be done row by row: with enough rows, but not too many for an accumulator."""
    return one_per_element(folds, index) and _ROWS <= math.prod(folds[0].fold.sizes) <= _MOST


def _is_one_op(fold: Fold) -> bool:
    return len(fold.dtypes) == 1 and identity_of(fold.reducer, fold.dtypes[0]) is not None


def combine_pairs(e: CpuEmitter, fold: Fold, values: Sequence[Val]) -> Val:
    """All values in one, pair by pair."""
    rest = list(values)
    while len(rest) > 1:
        rest = [
            e.call(fold.reducer, rest[k : k + 2], fold.wide)[0] if k + 1 < len(rest) else rest[k]
            for k in range(0, len(rest), 2)
        ]
    return rest[0]


@dataclass
class Columns:
    """The reductions of one map, for a block of columns at a time."""

    e: CpuEmitter
    folds: Sequence[FoldUse]
    mask: Mask
    group: Sequence[LoopVar]
    lanes: int
    buffers: list[list[ir.Value]] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)

    def bind(self, counter: Val) -> None:
        """The lanes stand for the columns from ``counter`` on."""
        bind_group(self.e, self.group, counter, self.lanes)

    def reduce(self, frame: Frame, begin: ir.Value, end: ir.Value) -> None:
        """Fill the accumulators for the columns from ``begin`` up to ``end``, a whole number of vectors."""
        vectors = BLOCK // self.lanes
        for use in self.folds:
            (dtype,) = use.fold.dtypes
            kind = ir.ArrayType(register_type(dtype, self.lanes), vectors)
            places = [self.e.slot(kind) for _ in range(part_count(dtype))]
            for place in places:
                place.type = PTR  # llvmlite gives it a typed pointer, which is no ``ptr`` to it
            self.buffers.append(places)
        loop = ForLoop(frame, end, self.lanes, begin)
        for n, use in enumerate(self.folds):
            self._write(n, loop, begin, self._neutral(use))
        loop.close()
        self._rows(frame, begin, end)

    def results(self, number: int, frame: Frame, column: ir.Value, begin: ir.Value) -> list[Val]:
        """One finished reduction of the columns that the lanes stand for."""
        e, fold = self.e, self.folds[number].fold
        value = self._read(number, frame, column, begin)
        if fold.init is not None:
            value = e.call(fold.reducer, [*fold.init(e), value], wide=True)[0]
        return [round_element(e, value, fold.dtypes[0])]

    def _neutral(self, use: FoldUse) -> Val:
        (dtype,) = use.fold.dtypes
        return self.e.constant(identity_of(use.fold.reducer, dtype), dtype)

    def _rows(self, frame: Frame, begin: ir.Value, end: ir.Value) -> None:
        first = self.folds[0]
        space, recorder = plan_fold(self.e, self.mask, first.fold)
        self.accesses = [a for a in recorder.accesses if a.leaf in self.e.leaves and a.shape.nbytes >= _OUT_OF_CACHE]
        *outer, inner = space.variables
        opened: list[ForLoop] = []
        for v in outer:
            opened.append(ForLoop(frame, v.size))
            frame = opened[-1].frame
            self.e.bind(v, Val((opened[-1].index,), frame))
        whole, rest = divmod(inner.size, _ROWS)
        if whole:
            self._some(ForLoop(frame, whole * _ROWS, _ROWS), inner, _ROWS, space.index, begin, end)
        if rest:
            self._some(ForLoop(frame, inner.size, rest, whole * _ROWS), inner, rest, space.index, begin, end)
        for loop in reversed(opened):
            loop.close()

    def _some(self, rows: ForLoop, inner: LoopVar, count: int, position: Index, begin: ir.Value, end: ir.Value) -> None:
        """``count`` rows at a time into the accumulators."""
        e, b = self.e, rows.frame.builder
        numbers = [Val((b.add(rows.index, constant(I64, k)),), rows.frame) for k in range(count)]
        loop = ForLoop(rows.frame, end, self.lanes, begin)
        self.bind(Val((loop.index,), loop.frame))
        values: list[list[Val]] = [[] for _ in self.folds]
        for number in numbers:
            e.bind(inner, number)
            self._fetch(loop.frame.builder, inner, count)
            for use, found in zip(self.folds, values, strict=True):
                found.extend(use.fold.element(e, position, self.mask))
        for n, (use, found) in enumerate(zip(self.folds, values, strict=True)):
            self._write(n, loop, begin, self._tree(use, [self._read(n, loop.frame, loop.index, begin), *found]))
        loop.close()
        rows.close()

    def _fetch(self, b: ir.IRBuilder, inner: LoopVar, ahead: int) -> None:
        """Ask for what this row's place will hold ``ahead`` rows on: hardware looks ahead along rows only."""
        for a in self.accesses:
            step = a.offset.coefficient(inner)
            assert isinstance(a.leaf, Instruction)
            if a.offset.coefficient(self.group[-1]) != 1 or not step:
                continue
            at, nbytes = self.e.split(a.offset)[0], a.shape.dtype.nbytes
            first = b.mul(b.add(at.value, constant(I64, ahead * step)), constant(I64, nbytes))
            for line in range(0, self.lanes * nbytes, memory.LINE):
                place = b.gep(self.e.pointers[a.leaf], [b.add(first, constant(I64, line))], source_etype=I8)
                intrinsic(b, "llvm.prefetch", ir.VoidType(), [place, *(constant(I32, k) for k in (0, 2, 1))])

    def _tree(self, use: FoldUse, values: list[Val]) -> Val:
        """The accumulator and the combined rows."""
        total, *rows = values
        return self.e.call(use.fold.reducer, [total, combine_pairs(self.e, use.fold, rows)], use.fold.wide)[0]

    def _at(
        self, b: ir.IRBuilder, number: int, part: int, column: ir.Value, begin: ir.Value
    ) -> tuple[ir.Value, ir.Type]:
        kind = register_type(self.folds[number].fold.dtypes[0], self.lanes)
        vector = b.udiv(b.sub(column, begin), constant(I64, self.lanes))
        return b.gep(self.buffers[number][part], [vector], source_etype=kind), kind

    def _read(self, number: int, frame: Frame, column: ir.Value, begin: ir.Value) -> Val:
        b = frame.builder
        places = [self._at(b, number, part, column, begin) for part in range(len(self.buffers[number]))]
        return Val(tuple(b.load(place, typ=kind) for place, kind in places), frame, self.lanes)

    def _write(self, number: int, loop: ForLoop, begin: ir.Value, value: Val) -> None:
        b = loop.frame.builder
        for part, x in enumerate(value.wide(self.lanes)):
            b.store(x, self._at(b, number, part, loop.index, begin)[0])
