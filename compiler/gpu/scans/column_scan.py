"""Running totals across memory: each thread goes down some neighbouring columns, 16 bytes of them.

Where there are few columns, each is cut in chunks and scanned in three launches (Blelloch, "Prefix Sums and Their
Applications", 1990): the first totals chunks, the second scans those totals, and the third goes down every chunk from
what the chunks before it come to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.elements.frames import ForLoop, Frame, IfBlock, Val
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.reductions.accumulate import Totals, word_bytes
from shardc.compiler.gpu.scans.scan import Scan, ScanFunction
from shardc.native.math.vector import I32, I64, constant

__all__ = ["emit_column_scan"]

#: Threads of a block, rows that a thread reads at once, and columns' threads of a multiprocessor that keep it busy.
_THREADS, _UNROLL, _BUSY = 128, 4, 256
#: Shortest chunks, and most of them.
_SHORTEST, _MOST = 32, 1024


@dataclass(frozen=True, slots=True)
class _ColumnScan:
    """``units`` of ``lanes`` columns, in ``chunks`` chunks of ``chunk`` rows."""

    scan: Scan
    lanes: int
    chunk: int

    @property
    def units(self) -> int:
        return self.scan.outer * self.scan.inner // self.lanes

    @property
    def chunks(self) -> int:
        return -(-self.scan.length // self.chunk)

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.units // _THREADS), self.chunks


def emit_column_scan(kernel: GpuKernel, scan: Scan) -> None:
    """One launch, or three where columns are few and long."""
    wanted = _BUSY * kernel.target.chip.multiprocessors
    columns = scan.outer * scan.inner
    lanes = scan.lanes(scan.inner)
    while lanes > 1 and columns // lanes < wanted:
        lanes //= 2
    chunks = min(-(-wanted // (columns // lanes)), scan.length // _SHORTEST, _MOST)
    if not scan.free or chunks < 2:
        _emit(kernel, _ColumnScan(scan, lanes, scan.length))
        return
    cut = _ColumnScan(scan, lanes, -(-scan.length // chunks))
    places = [kernel.scratch(cut.chunks * columns * word_bytes(t)) for t in scan.reducer.part_types]
    carries = [kernel.scratch(cut.chunks * columns * word_bytes(t)) for t in scan.reducer.part_types]
    _emit(kernel, cut, target=places, totals_only=True)
    over = Scan(scan.reducer, scan.outer, cut.chunks, scan.inner, False, scan.free)
    _emit(kernel, _ColumnScan(over, lanes, cut.chunks), source=places, target=carries)
    _emit(kernel, cut, carry=carries)


def _emit(
    kernel: GpuKernel,
    columns: _ColumnScan,
    *,
    source: Sequence[LaunchArray] = (),
    target: Sequence[LaunchArray] = (),
    carry: Sequence[LaunchArray] = (),
    totals_only: bool = False,
) -> None:
    f = ScanFunction(kernel, columns.scan, _THREADS, source, target, carry)
    code, entry = f.e.code, f.e.entry
    b = entry.builder
    number = b.add(b.mul(code.block(b), constant(I32, _THREADS)), code.thread(b))
    there = IfBlock(entry, b.icmp_unsigned("<", number, constant(I32, columns.units)))
    _Down(f, columns, there.frame, totals_only).go()
    there.close()
    f.finish(columns.grid)


class _Down:
    """A thread's way down its columns, in one chunk."""

    def __init__(self, f: ScanFunction, columns: _ColumnScan, frame: Frame, totals_only: bool) -> None:
        self.f, self.columns, self.scan, self.frame, self.totals_only = f, columns, columns.scan, frame, totals_only
        b, code, scan = frame.builder, f.e.code, columns.scan
        thread = b.add(b.mul(code.block(b), constant(I32, _THREADS)), code.thread(b))
        across = constant(I32, scan.inner // columns.lanes)
        self.outer = b.zext(b.udiv(thread, across), I64)
        self.column = b.mul(b.zext(b.urem(thread, across), I64), constant(I64, columns.lanes))
        self.chunk = b.zext(code.block(b, 1), I64)
        self.totals = Totals(f.e, [scan.reducer], columns.lanes)

    def go(self) -> None:
        f, frame, columns = self.f, self.frame, self.columns
        b = frame.builder
        if self.totals_only:
            start = f.neutral()
        else:
            first = b.icmp_unsigned("==", self.chunk, constant(I64, 0)) if f.carry else None
            before = self._chunk_place(frame, b.sub(self.chunk, constant(I64, 1)))
            start = f.start(frame, first, before, columns.lanes)
        self.totals.set(frame, [start])
        whole = columns.chunk // _UNROLL * _UNROLL
        if whole:
            loop = ForLoop(frame, whole, _UNROLL)
            self._rows(loop.frame, loop.index, _UNROLL)
            loop.close()
        if whole < columns.chunk:
            self._rows(frame, constant(I64, whole), columns.chunk - whole)
        if self.totals_only:
            f.store(frame, self.totals.read(frame)[0], self._chunk_place(frame, self.chunk), columns.lanes)

    def _chunk_place(self, frame: Frame, chunk: ir.Value) -> ir.Value:
        """Where the totals of a chunk lie among those of all."""
        b = frame.builder
        row = b.add(b.mul(self.outer, constant(I64, self.columns.chunks)), chunk)
        return b.add(b.mul(row, constant(I64, self.scan.inner)), self.column)

    def _rows(self, frame: Frame, k: ir.Value, count: int) -> None:
        """``count`` rows from row ``k`` of the chunk on: all read, then totalled one after the other."""
        f, scan, lanes = self.f, self.scan, self.columns.lanes
        b = frame.builder
        places = [self._place(frame, b.add(k, constant(I64, n))) for n in range(count)]
        values = [f.load(frame, at, lanes) for at, _ in places]
        total = self.totals.read(frame)[0]
        for (at, holds), new in zip(places, values, strict=True):
            taken = [Val(v.wide(lanes), v.frame, lanes) for v in new]
            if holds is not None:
                taken = [f.select(frame, holds, v, n, lanes) for v, n in zip(taken, f.neutral(), strict=True)]
            total = scan.reducer.combine(f.e, total, taken)
            if not self.totals_only:
                self._store(frame, total, at, holds)
        self.totals.set(frame, [total])

    def _place(self, frame: Frame, k: ir.Value) -> tuple[ir.Value, ir.Value | None]:
        """The element of row ``k`` of the chunk, and whether there is such a row (None: always)."""
        b, scan = frame.builder, self.scan
        row = b.add(b.mul(self.chunk, constant(I64, self.columns.chunk)), k)
        holds = None
        if scan.length % self.columns.chunk:
            holds = b.icmp_unsigned("<", row, constant(I64, scan.length))
            row = b.select(holds, row, constant(I64, 0))
        if scan.backwards:
            row = b.sub(constant(I64, scan.length - 1), row)
        row = b.add(b.mul(self.outer, constant(I64, scan.length)), row)
        return b.add(b.mul(row, constant(I64, scan.inner)), self.column), holds

    def _store(self, frame: Frame, total: list[Val], at: ir.Value, holds: ir.Value | None) -> None:
        if holds is None:
            self.f.store(frame, total, at, self.columns.lanes)
            return
        branch = IfBlock(frame, holds)
        self.f.store(branch.frame, total, at, self.columns.lanes)
        branch.close()
