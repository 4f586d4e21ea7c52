"""Running totals along memory: neighbouring threads take neighbouring elements, 16 bytes each.

A thread totals its own elements, the lanes of a warp scan their totals by shuffles over doubling distances (Hillis and
Steele, "Data Parallel Algorithms", CACM 1986), warps by shared memory; a row longer than its threads is gone through
tile by tile. Few long rows are cut in chunks, in three launches as columns are (`column_scan.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.elements.frames import ForLoop, Frame, IfBlock, Val
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.reductions.accumulate import (
    SharedSpace,
    Totals,
    exchange_words,
    load_words,
    store_words,
    word_bytes,
)
from shardc.compiler.gpu.reductions.row_reduction import RowPlace, RowShape, row_place, row_shape
from shardc.compiler.gpu.scans.scan import Scan, ScanFunction, lanes_of_value, vector_of
from shardc.native.gpu.target import GpuTarget
from shardc.native.math.vector import I32, I64, constant

__all__ = ["emit_row_scan"]

#: Threads that share a chunk of a row, and the least tiles of one.
_THREADS, _LEAST = 256, 4
#: Elements that a thread takes before more threads share a row.
_STEPS = 2


@dataclass(frozen=True, slots=True)
class _RowScan:
    """How rows are gone through: by whom, ``lanes`` elements of a thread at once, in ``chunks`` of ``tiles`` tiles."""

    scan: Scan
    lanes: int
    shape: RowShape
    tiles: int
    chunks: int = 1

    @staticmethod
    def of(target: GpuTarget, scan: Scan, lanes: int, *, cut: bool = True) -> _RowScan:
        units = scan.length // lanes
        wanted = min(-(-4 * target.chip.multiprocessors // scan.outer), units // (_THREADS * _LEAST))
        if cut and wanted >= 2:
            tiles = -(-units // (_THREADS * wanted))
            chunks = -(-units // (_THREADS * tiles))
            return _RowScan(scan, lanes, RowShape(scan.outer, units, _THREADS, _THREADS), tiles, chunks)
        shape = row_shape(target, scan.outer, units, split=False, steps=_STEPS)
        if shape.width > target.warp:
            shape = RowShape(scan.outer, units, shape.width, shape.width)
        return _RowScan(scan, lanes, shape, -(-units // shape.width))

    @property
    def grid(self) -> tuple[int, int]:
        return self.shape.grid[0], self.chunks


def emit_row_scan(kernel: GpuKernel, scan: Scan) -> None:
    """One launch, or three where rows are few and long."""
    rows = _RowScan.of(kernel.target, scan, scan.lanes(scan.length))
    if rows.chunks == 1:
        _emit(kernel, rows)
        return
    count = scan.outer * rows.chunks
    places = [kernel.scratch(count * word_bytes(t)) for t in scan.reducer.part_types]
    carries = [kernel.scratch(count * word_bytes(t)) for t in scan.reducer.part_types]
    _emit(kernel, rows, target=places, totals_only=True)
    over = Scan(scan.reducer, scan.outer, rows.chunks, 1, False, scan.free)
    _emit(kernel, _RowScan.of(kernel.target, over, 1, cut=False), source=places, target=carries)
    _emit(kernel, rows, carry=carries)


def _emit(
    kernel: GpuKernel,
    rows: _RowScan,
    *,
    source: Sequence[LaunchArray] = (),
    target: Sequence[LaunchArray] = (),
    carry: Sequence[LaunchArray] = (),
    totals_only: bool = False,
) -> None:
    f = ScanFunction(kernel, rows.scan, rows.shape.threads, source, target, carry)
    along = _Along(f, rows, totals_only)
    along.go()
    f.finish(rows.grid, along.shared.nbytes)


class _Along:
    """A thread's way along its row, in one chunk."""

    def __init__(self, f: ScanFunction, rows: _RowScan, totals_only: bool) -> None:
        self.f, self.rows, self.scan, self.totals_only = f, rows, rows.scan, totals_only
        self.e, self.reducer, self.shared = f.e, rows.scan.reducer, SharedSpace()
        code, b = f.e.code, f.e.entry.builder
        self.thread = code.thread(b)
        self.lane = b.urem(self.thread, constant(I32, code.warp))
        self.place: RowPlace = row_place(b, self.thread, code.block(b), rows.shape)
        self.chunk = b.zext(code.block(b, 1), I64)
        self.totals = Totals(f.e, [self.reducer], 1)
        warps = rows.shape.width // code.warp
        self.meeting = [
            code.shared(b, self.shared.take(warps * word_bytes(t))) for t in self.reducer.part_types if warps > 1
        ]

    def go(self) -> None:
        f, frame = self.f, self.e.entry
        b = frame.builder
        chunks = constant(I64, self.rows.chunks)
        own = b.add(b.mul(self.place.row, chunks), self.chunk)
        if self.totals_only:
            start = f.neutral()
        else:
            first = b.icmp_unsigned("==", self.chunk, constant(I64, 0)) if f.carry else None
            start = f.start(frame, first, b.sub(own, constant(I64, 1)), 1)
        self.totals.set(frame, [start])
        loop = ForLoop(frame, self.rows.tiles)
        self._tile(loop.frame, loop.index)
        loop.close()
        if self.totals_only:
            writing = IfBlock(frame, self.place.leads(b))
            f.store(writing.frame, self.totals.read(writing.frame)[0], own, 1)
            writing.close()

    def _tile(self, frame: Frame, tile: ir.Value) -> None:
        """The next elements of the row, as many as its threads take at once."""
        f, e, r, lanes = self.f, self.e, self.reducer, self.rows.lanes
        at, holds = self._at(frame, tile)
        (value,) = f.load(frame, at, lanes)
        each = [[v] for v in lanes_of_value(frame, value, lanes, backwards=self.scan.backwards)]
        if holds is not None:
            each = [[f.select(frame, holds, v, n) for v, n in zip(x, f.neutral(), strict=True)] for x in each]
        for k in range(1, lanes):
            each[k] = r.combine(e, each[k - 1], each[k])
        carry = self.totals.read(frame)[0]
        before, whole = self._threads(frame, each[-1])
        self.totals.set(frame, [r.combine(e, carry, whole)])
        if self.totals_only:
            return
        start = r.combine(e, carry, before)
        results = [r.combine(e, start, x)[0] for x in each]
        conditions = [c for c in (self.place.valid, holds) if c is not None]
        writing = None
        if conditions:
            b = frame.builder
            writing = IfBlock(frame, conditions[0] if len(conditions) == 1 else b.and_(*conditions))
        inner = frame if writing is None else writing.frame
        f.store(inner, [vector_of(inner, results, backwards=self.scan.backwards)], at, lanes)
        if writing is not None:
            writing.close()

    def _at(self, frame: Frame, tile: ir.Value) -> tuple[ir.Value, ir.Value | None]:
        """The thread's first element in memory, and whether there is one (None: always)."""
        b, rows, scan = frame.builder, self.rows, self.scan
        units, width = rows.shape.units, rows.shape.width
        tile = b.add(b.mul(self.chunk, constant(I64, rows.tiles)), tile)
        unit = b.add(b.mul(tile, constant(I64, width)), self.place.number)
        holds = None
        if rows.chunks * rows.tiles * width != units:
            holds = b.icmp_unsigned("<", unit, constant(I64, units))
            unit = b.select(holds, unit, constant(I64, 0))
        if scan.backwards:
            unit = b.sub(constant(I64, units - 1), unit)
        unit = b.add(b.mul(self.place.row, constant(I64, units)), unit)
        return b.mul(unit, constant(I64, rows.lanes)), holds

    def _threads(self, frame: Frame, own: list[Val]) -> tuple[list[Val], list[Val]]:
        """What the threads before this one come to, and all of the row's threads together."""
        code, b, r, width = self.e.code, frame.builder, self.reducer, self.rows.shape.width
        within = min(width, code.warp)
        total = self._lanes(frame, own, self.lane, within)
        before = self._shifted(frame, total, self.lane, within)
        if width <= code.warp:
            last = b.or_(self.lane, constant(I32, width - 1))
            return before, exchange_words(frame, total, lambda x: code.shuffle_from(b, x, last))
        warps = width // code.warp
        warp = b.udiv(self.thread, constant(I32, code.warp))
        writing = IfBlock(frame, b.icmp_unsigned("==", self.lane, constant(I32, code.warp - 1)))
        inner = writing.frame.builder
        store_words(inner, total, self.meeting, inner.zext(warp, I64), 1)
        writing.close()
        code.barrier(b)
        other = b.and_(self.lane, constant(I32, warps - 1))
        read = load_words(frame, r.dtypes, self.meeting, b.zext(other, I64))
        if self.rows.tiles > 1:
            code.barrier(b)
        sums = self._lanes(frame, read, other, warps)
        shifted = self._shifted(frame, sums, other, warps)
        warps_before = exchange_words(frame, shifted, lambda x: code.shuffle_from(b, x, warp))
        whole = exchange_words(frame, sums, lambda x: code.shuffle_from(b, x, constant(I32, warps - 1)))
        return r.combine(self.e, warps_before, before), whole

    def _lanes(self, frame: Frame, values: list[Val], lane: ir.Value, width: int) -> list[Val]:
        """The totals up to each lane of groups of ``width`` lanes."""
        b, code, f, distance = frame.builder, self.e.code, self.f, 1
        while distance < width:
            step = distance
            other = exchange_words(frame, values, lambda x: code.shuffle_up(b, x, step))  # noqa: B023
            total = self.reducer.combine(self.e, other, values)
            enough = b.icmp_unsigned(">=", b.and_(lane, constant(I32, width - 1)), constant(I32, distance))
            values = [f.select(frame, enough, x, y) for x, y in zip(total, values, strict=True)]
            distance *= 2
        return values

    def _shifted(self, frame: Frame, totals: list[Val], lane: ir.Value, width: int) -> list[Val]:
        """The totals before each lane."""
        b, code, f = frame.builder, self.e.code, self.f
        if width == 1:
            return f.neutral()
        other = exchange_words(frame, totals, lambda x: code.shuffle_up(b, x, 1))
        first = b.icmp_unsigned("==", b.and_(lane, constant(I32, width - 1)), constant(I32, 0))
        return [f.select(frame, first, n, x) for n, x in zip(f.neutral(), other, strict=True)]
