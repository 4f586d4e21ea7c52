"""Maps whose threads compute a few vectors of 16 bytes each, neighbours side by side.

The loops of the CPU's maps become one counter of vectors, which blocks and threads count; see `GridMap`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from llvmlite import ir

from shardc.compiler.elements.affine import Expr, LoadedIndex, LoopVar
from shardc.compiler.elements.elements import Access, bases
from shardc.compiler.elements.frames import ForLoop, Frame, IfBlock, Val
from shardc.compiler.elements.loop_space import group_size
from shardc.compiler.elements.results import elements_of
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.maps.maps import (
    GridOutput,
    PlannedMap,
    big_accesses,
    extend_number,
    is_computed_by_rules,
    split_number,
    traffic,
)
from shardc.compiler.gpu.maps.transposed import TransposedMap
from shardc.compiler.lower.fuse.fusion_rules import is_cheap, is_elementwise
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I64, constant

__all__ = ["GridMap", "emit_loop", "emit_maps", "takes_loop"]

#: Threads of a block.
_THREADS = 256
#: Bytes of a thread's widest access, and of all it holds of its widest type.
_VECTOR, _HELD = 16, 32
#: Bytes that a thread asks for before it waits.
_IN_FLIGHT = 64
#: Bytes that a thread reads before all work.
_EARLY = 128
#: Elementwise operations from which on a thread computes two vectors at most, or one.
_MANY, _VERY_MANY = 24, 96
#: Elements of a thread where functions such as exp take many registers each.
_COSTLY = 8


def takes_loop(kernel: GpuKernel) -> bool:
    """Whatever element rules compute."""
    return is_computed_by_rules(kernel.computation)


def emit_loop(kernel: GpuKernel) -> None:
    """Everything that has an element rule: one launch per run of results of the same dimensions."""
    rows = zip(kernel.results, kernel.result_shapes, elements_of(kernel.computation), strict=True)
    emit_maps(kernel, kernel.leaves(), [GridOutput(*row) for row in rows])


def emit_maps(kernel: GpuKernel, leaves: Mapping[Instruction, LaunchArray], outputs: Sequence[GridOutput]) -> None:
    """Launches that fill ``outputs`` from ``leaves``, those over the same dimensions together."""
    for dims, run in groupby(outputs, key=lambda o: o.dims):
        if 0 not in dims:
            plan = PlannedMap(kernel, leaves, list(run))
            across = TransposedMap.across(plan)
            if across is None:
                GridMap(plan).emit()
            else:
                TransposedMap(plan, across).emit()


class GridMap:
    """The map of one launch: for every index below ``dims``, that element of each output.

    Loops that all accesses treat as one are merged. The innermost one is cut into vectors of ``lanes`` elements, as
    many as alignment allows. All vectors have a number; a thread takes ``unroll`` of them, a block's size apart, asks
    for what it needs of all of them and writes in the end. Elements that fill no vector are counted behind the vectors.
    """

    def __init__(self, plan: PlannedMap) -> None:
        self.plan = plan
        self.outer, self.inner = plan.groups[:-1], plan.groups[-1] if plan.groups else []
        self.lanes = self._lanes() if self.inner else 1
        width = group_size(self.inner)
        #: Vectors, and single elements behind them.
        self.vectors = group_size([v for g in self.outer for v in g]) * (width // self.lanes)
        self.singles = width % self.lanes
        self.threads, self.unroll = self._shape()

    # Planning.

    def _lanes(self) -> int:
        """The most lanes for which big arrays are read and written in aligned vectors."""
        if not self.plan.plain:
            return 1
        inner = self.inner[-1]
        big = big_accesses(self.plan.accesses)
        narrow, wide = (f(a.shape.dtype.nbytes for a in big) for f in (min, max))
        lanes = max(1, min(_VECTOR // narrow, _HELD // wide))
        for a in big:
            lanes = math.gcd(lanes, _aligned(a, inner))
        if self.outer:
            lanes = math.gcd(lanes, group_size(self.inner))
        least = 64 * self.plan.kernel.target.chip.multiprocessors
        total = group_size([v for g in (*self.outer, self.inner) for v in g])
        while lanes > 1 and total // lanes < least:
            lanes //= 2
        return lanes

    def _shape(self) -> tuple[int, int]:
        """Threads of a block, and vectors of a thread."""
        steps = self.vectors + self.singles
        chip = self.plan.kernel.target.chip
        threads = _THREADS if steps >= 2 * _THREADS * chip.multiprocessors else _THREADS // 2
        threads = min(threads, max(self.plan.kernel.target.warp, -(-steps // 32) * 32))
        asked = sum(a.shape.dtype.nbytes for a in big_accesses(self.plan.recorder.accesses)) * self.lanes
        unroll = min(4, max(1, _IN_FLIGHT // max(asked, 16)))
        if not self.plan.plain or self.plan.recorder.operations > _VERY_MANY:
            unroll = 1
        elif self.plan.recorder.operations > _MANY:
            unroll = min(unroll, 2)
        if any(is_elementwise(i) and not is_cheap(i) for i in self.plan.kernel.computation):
            unroll = max(1, min(unroll, _COSTLY // self.lanes))
        while unroll > 1 and steps < 4 * unroll * threads * chip.multiprocessors:
            unroll //= 2
        return threads, unroll

    # Code.

    def emit(self) -> None:
        """Define the function and launch it."""
        e = self.plan.begin(self.threads)
        block = self.threads * self.unroll
        whole = self.vectors // block
        ragged = self.vectors % block + self.singles
        blocks = whole + -(-ragged // block)
        number = extend_number(e, e.code.block(e.entry.builder), blocks)
        thread = extend_number(e, e.code.thread(e.entry.builder), self.threads)
        b = e.entry.builder
        first = b.add(b.mul(number, constant(I64, block)), thread)
        if not ragged:
            self._vectors(e.entry, first, self.unroll)
        else:
            if whole:
                full = IfBlock(e.entry, b.icmp_unsigned("<", number, constant(I64, whole)))
                self._vectors(full.frame, first, self.unroll)
                full.close()
            rest = IfBlock(e.entry, b.icmp_unsigned(">=", number, constant(I64, whole)))
            self._rest(rest.frame, first)
            rest.close()
        self.plan.finish(blocks)

    def _rest(self, frame: Frame, first: ir.Value) -> None:
        """A block that is not full: a loop whose steps look whether there is something to do."""
        loop = ForLoop(frame, self.unroll)
        b = loop.frame.builder
        at = b.add(first, b.mul(loop.index, constant(I64, self.threads)))
        if self.vectors:
            some = IfBlock(loop.frame, b.icmp_unsigned("<", at, constant(I64, self.vectors)))
            self._vectors(some.frame, at, 1)
            some.close()
        if self.singles:
            past = b.sub(at, constant(I64, self.vectors))
            single = IfBlock(loop.frame, b.icmp_unsigned("<", past, constant(I64, self.singles)))
            element = single.frame.builder.add(past, constant(I64, group_size(self.inner) - self.singles))
            self._bind(self._counters(single.frame, element, 1), 1)
            self.plan.store(self.plan.evaluate(single.frame))
            single.close()
        loop.close()

    def _vectors(self, frame: Frame, first: ir.Value, count: int) -> None:
        """``count`` vectors of this thread: all reads come before all work, and all writes behind it.

        Reads whose place is read itself come behind the others.
        """
        plan, e, b = self.plan, self.plan.e, frame.builder
        places = [
            self._counters(frame, b.add(first, constant(I64, n * self.threads)) if n else first, self.lanes)
            for n in range(count)
        ]
        ahead: list[ReadsAhead] = [ReadsAhead({}) for _ in range(count)]
        for reads in self._early(count):
            for place, known in zip(places, ahead, strict=True):
                self._bind(place, self.lanes)
                e.tile = known
                for leaf, offset in reads:
                    known.values[leaf, offset] = e.leaf(leaf, offset, ())
        found = []
        for place, known in zip(places, ahead, strict=True):
            self._bind(place, self.lanes)
            e.tile = known
            found.append(plan.evaluate(frame))
        e.tile = None
        for values in found:
            plan.store(values)

    def _early(self, count: int) -> list[list[tuple[Instruction, Expr]]]:
        """What to read before all work: what is read in any case, as far as it fits into registers."""
        if not self.plan.plain:
            return []
        rounds: tuple[list[tuple[Instruction, Expr]], ...] = ([], [])
        room = _EARLY // count
        for a in sorted(self.plan.recorder.accesses, key=traffic, reverse=True):
            low, high = a.offset.range
            lanes = self.lanes if any(a.offset.coefficient(v) for v in self.inner) else 1
            room -= a.shape.dtype.nbytes * lanes
            if room < 0:
                break
            if isinstance(a.leaf, Instruction) and a.leaf in self.plan.leaves and low >= 0 and high <= a.shape.size:
                read = (a.leaf, a.offset)
                chosen = rounds[
                    any(isinstance(v, LoadedIndex) for w in a.offset.variables() for v in bases(Expr.of(w)))
                ]
                if read not in chosen:
                    chosen.append(read)
        return [r for r in rounds if r]

    def _counters(self, frame: Frame, at: ir.Value, lanes: int) -> list[Val]:
        """What the loops count at vector (or, of one lane, element) number ``at``."""
        b = frame.builder
        total = self.vectors if lanes > 1 else self.vectors * self.lanes + self.singles
        found: list[Val] = []
        for group in reversed(self.plan.groups):
            inner = group is self.inner
            steps = group_size(group) // (lanes if inner else 1)
            at, count = split_number(b, at, total, steps)
            total = -(-total // steps)
            if inner and lanes > 1:
                count = b.mul(count, constant(I64, lanes))
            found.append(Val((count,), frame))
        return found[::-1]

    def _bind(self, counters: Sequence[Val], lanes: int) -> None:
        for group, count in zip(self.plan.groups, counters, strict=True):
            self.plan.bind(group, count, lanes if group is self.inner else 1)


@dataclass(frozen=True)
class ReadsAhead:
    """What has been read early, by array and offset."""

    values: dict[tuple[Instruction, Expr], Val]

    def value(self, leaf: Instruction, offset: Expr, dtype: DType) -> Val | None:
        return self.values.get((leaf, offset))


def _aligned(a: Access, inner: LoopVar) -> int:
    """The most elements that an access may take together along ``inner`` (0: any number)."""
    whole = math.gcd(*(_steps(c.expr - c.low, inner) for c in a.mask), *(c.high - c.low for c in a.mask))
    step = a.offset.coefficient(inner)
    if step in {0, 1}:
        return math.gcd(whole, _steps(a.offset, inner))
    return math.gcd(whole, _steps(a.offset * -1 - 1, inner)) if step == -1 else 1


def _steps(e: Expr, inner: LoopVar) -> int:
    """What everything in ``e`` besides ``inner`` is a multiple of; 0 where it does not depend on ``inner``."""
    others = [(v, c) for v, c in e.terms if v is not inner]
    if any(inner in bases(Expr.of(v)) for v, _ in others):
        return 1
    return math.gcd(e.const, *(c for _, c in others)) if e.coefficient(inner) else 0
