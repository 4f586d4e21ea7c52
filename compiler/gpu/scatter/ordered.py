"""Scatter whose updates must be combined in their order: each row of the operand belongs to one block.

A first launch writes which row each update goes to. In the second one every block reads all of these numbers, a few
thousand at a time, keeps those of its own rows in order, and combines these updates one after the other, its threads
side by side along the columns. Rows go to blocks by their number, so that no order of blocks matters.
"""

from __future__ import annotations

from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import Expr
from shardc.compiler.elements.frames import ForLoop, Frame, IfBlock, Val
from shardc.compiler.elements.loop_space import power_above, power_below
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.maps.loop import emit_maps
from shardc.compiler.gpu.maps.maps import GridOutput, extend_number, split_number
from shardc.compiler.gpu.scatter.places import ScatterPlaces
from shardc.hlo.ir.types import array_shape
from shardc.native.math.vector import I32, I64, constant

__all__ = ["emit_ordered"]

_THREADS = 256
#: Rows that a thread looks at before the block combines what it found.
_KEYS = 4
#: Blocks that a multiprocessor may have at once.
_RESIDENT = 8


def emit_ordered(kernel: GpuKernel, places: ScatterPlaces) -> None:
    """Combine all updates of a scatter into its results, which hold the operands."""
    dims = [places.update_dims[d] for d in places.position_dims]
    shape = array_shape(places.row_dtype.name, *dims)
    rows = kernel.scratch(shape.nbytes)
    emit_maps(kernel, kernel.leaves(), [GridOutput(rows, shape, places.row)])
    _Ordered(kernel, places, rows).emit()


class _Ordered:
    """The launch that combines.

    A block's threads are ``tall`` rows by ``wide`` columns; it has the rows whose number gives its own, by the
    remainder to ``owners * tall``.
    """

    def __init__(self, kernel: GpuKernel, places: ScatterPlaces, rows: LaunchArray) -> None:
        self.kernel, self.places, self.rows = kernel, places, rows
        self.wide = min(_THREADS, power_above(places.columns))
        self.tall = _THREADS // self.wide
        self.column_blocks = -(-places.columns // self.wide)
        resident = _RESIDENT * kernel.target.chip.multiprocessors // self.column_blocks
        most = -(-min(places.rows, places.positions) // self.tall)
        self.owners = power_below(max(1, min(resident, most)))
        self.keys = min(_KEYS, -(-places.positions // _THREADS))
        self.warps = _THREADS // kernel.target.warp
        #: In shared memory: numbers of the updates found, their rows, and how many each warp found.
        chunk = self.keys * _THREADS
        self.row_bytes = places.row_dtype.nbytes
        self.found_at, self.row_at = 0, 4 * chunk
        self.counts_at = self.row_at + self.row_bytes * chunk
        self.shared_bytes = self.counts_at + 4 * self.warps

    def emit(self) -> None:
        leaves = self.kernel.leaves()
        arrays = [*dict.fromkeys([*leaves.values(), *self.kernel.results]), self.rows]
        function = self.function = self.kernel.function(arrays, _THREADS)
        e = self.e = function.emitter(leaves)
        b = e.entry.builder
        blocks = self.owners * self.column_blocks
        number = extend_number(e, e.code.block(b), blocks)
        self.thread = extend_number(e, e.code.thread(b), _THREADS)
        self.owner, part = split_number(b, number, blocks, self.column_blocks)
        self.own_row, lane = split_number(b, self.thread, _THREADS, self.wide)
        self.column = b.add(b.mul(part, constant(I64, self.wide)), lane)
        chunk = self.keys * _THREADS
        loop = ForLoop(e.entry, -(-self.places.positions // chunk) * chunk, chunk)
        count = self._find(loop.frame, loop.index)
        self._combine_all(loop.frame, count)
        loop.close()
        e.finish()
        self.kernel.launch(function, (blocks,), self.shared_bytes)

    def _find(self, frame: Frame, first: ir.Value) -> ir.Value:
        """Put the updates of this block's rows among the next chunk into shared memory, in order; how many (i32).

        The first barrier comes when all threads have done with what the chunk before left there.
        """
        b, places, code = frame.builder, self.places, self.e.code
        kind = ir.IntType(places.row_dtype.bits)
        found: list[tuple[ir.Value, ir.Value, ir.Value]] = []
        mine: ir.Value = constant(I32, 0)
        start = b.add(first, b.mul(self.thread, constant(I64, self.keys)))
        for k in range(self.keys):
            at = b.add(start, constant(I64, k))
            exists = b.icmp_unsigned("<", at, constant(I64, places.positions))
            safe = b.select(exists, at, constant(I64, 0))
            place = b.gep(self.function.pointer(self.rows), [safe], source_etype=kind)
            row = b.load(place, typ=kind, align=self.row_bytes)
            taken = b.and_(exists, b.icmp_signed(">=", row, constant(kind, 0)))
            owner = b.and_(row, constant(kind, self.owners - 1))
            narrow = b.trunc(self.owner, kind) if kind != I64 else self.owner
            taken = b.and_(taken, b.icmp_unsigned("==", owner, narrow))
            found.append((taken, row, b.trunc(at, I32)))
            mine = b.add(mine, b.zext(taken, I32))
        before, total = self._before(b, mine)
        for taken, row, at in found:
            with b.if_then(taken):
                b.store(at, b.gep(code.shared(b, self.found_at), [before], source_etype=I32), align=4)
                place = b.gep(code.shared(b, self.row_at), [before], source_etype=kind)
                b.store(row, place, align=self.row_bytes)
            before = b.add(before, b.zext(taken, I32))
        code.barrier(b)
        return total

    def _before(self, b: ir.IRBuilder, mine: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The sum of ``mine`` over the threads before this one, and over all."""
        code, warp = self.e.code, self.kernel.target.warp
        thread = b.trunc(self.thread, I32)
        lane, number = b.urem(thread, constant(I32, warp)), b.udiv(thread, constant(I32, warp))
        upto = mine
        distance = 1
        while distance < warp:
            other = code.shuffle_up(b, upto, distance)
            has = b.icmp_unsigned(">=", lane, constant(I32, distance))
            upto = b.add(upto, b.select(has, other, constant(I32, 0)))
            distance *= 2
        place = b.gep(code.shared(b, self.counts_at), [number], source_etype=I32)
        with b.if_then(b.icmp_unsigned("==", lane, constant(I32, warp - 1))):
            b.store(upto, place, align=4)
        code.barrier(b)
        before, total = b.sub(upto, mine), constant(I32, 0)
        for w in range(self.warps):
            count = b.load(
                b.gep(code.shared(b, self.counts_at), [constant(I32, w)], source_etype=I32), typ=I32, align=4
            )
            earlier = b.icmp_unsigned(">", number, constant(I32, w))
            before = b.add(before, b.select(earlier, count, constant(I32, 0)))
            total = b.add(total, count)
        return before, total

    def _combine_all(self, frame: Frame, count: ir.Value) -> None:
        """What was found, one after the other; a thread takes what is in its row and column."""
        some = IfBlock(frame, frame.builder.icmp_unsigned(">", count, constant(I32, 0)))
        loop = ForLoop(some.frame, some.frame.builder.zext(count, I64))
        b, code = loop.frame.builder, self.e.code
        kind = ir.IntType(self.places.row_dtype.bits)
        position = b.load(b.gep(code.shared(b, self.found_at), [loop.index], source_etype=I32), typ=I32, align=4)
        row = b.load(
            b.gep(code.shared(b, self.row_at), [loop.index], source_etype=kind), typ=kind, align=self.row_bytes
        )
        wide = b.zext(row, I64) if kind != I64 else row
        mine = b.icmp_unsigned("<", self.column, constant(I64, self.places.columns))
        if self.tall > 1:
            shift = constant(I64, self.owners.bit_length() - 1)
            own = b.and_(b.lshr(wide, shift), constant(I64, self.tall - 1))
            mine = b.and_(mine, b.icmp_unsigned("==", own, self.own_row))
        inner = IfBlock(loop.frame, mine)
        self._combine(inner.frame, b.zext(position, I64), wide)
        inner.close()
        loop.close()
        some.close()

    def _combine(self, frame: Frame, position: ir.Value, row: ir.Value) -> None:
        """One update of this thread's column."""
        e, b, places = self.e, frame.builder, self.places
        index = [Expr() for _ in places.update_dims]
        for dims, number in ((places.position_dims, position), (places.column_dims, self.column)):
            total = 1
            for d in dims:
                total *= places.update_dims[d]
            for d in reversed(dims):
                size = places.update_dims[d]
                number, at = split_number(b, number, total, size)
                total //= size
                v = e.source.loop(size)
                e.bind(v, Val((at,), frame))
                index[d] = Expr.of(v)
        new = [e.value(u, tuple(index)) for u in places.updates]
        column = e.split(places.column(tuple(index)))[0]
        at = b.add(b.mul(row, constant(I64, places.unit)), column.value)
        pointers = [self.function.pointer(r) for r in self.kernel.results]
        dtypes = [o.shape.dtype for o in places.operands]
        old = [Val(memory.load(b, p, at, d, 1), frame) for p, d in zip(pointers, dtypes, strict=True)]
        for p, d, value in zip(pointers, dtypes, e.call(places.reducer, [*old, *new]), strict=True):
            memory.store(b, value.parts, p, at, d, None)
