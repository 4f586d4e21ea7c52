"""Sorts of many rows side by side: a row in each vector lane, and the same bitonic network on all of them.

Rows are read into *columns*: vector k holds element k of as many rows as there are lanes. A comparison and exchange of
two places is a minimum and a maximum of vectors. Blocks of a few places are sorted, and merged at last, in registers.
Where more than keys comes out, places go along and decide between equals; operands are gathered by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.loops.tiles import transpose_square
from shardc.compiler.cpu.parallel import ChunkSpan, in_pieces
from shardc.compiler.cpu.reductions.networks import batcher_pairs, bitonic_pairs
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.elements import memory
from shardc.compiler.elements.control_flow import for_range, while_
from shardc.compiler.elements.key_bits import key_of, value_of
from shardc.compiler.elements.sorting import Rows
from shardc.hlo.ir.sort_keys import SortKey
from shardc.native.math.vector import (
    I1,
    I64,
    constant,
    intrinsic,
    scalar_of,
    splat,
    vector_constant,
    with_lanes,
    zero,
)

__all__ = ["emit_network_sort", "takes_network"]

#: Places that are sorted in registers: of keys alone, and with places beside them.
_BLOCK, _BLOCK_WITH_PLACES = 16, 8
#: Places of a row that are read before the next row's: their columns stay in the nearest cache.
_TILE = 64
#: The longest rows, as measured beside radix sorts: of keys alone, with places beside them, and in any number.
_LONGEST, _LONGEST_WITH_PLACES, _SHORT = 8192, 2048, 96
#: Rows from which on all lanes have work.
_LANES = 16


def takes_network(rows: Rows, alone: bool) -> bool:
    """Whether rows are so short, and so many, that a network is the fastest. Lanes without a row count as work, too."""
    longest = _LONGEST if alone else _LONGEST_WITH_PLACES
    return rows.length <= _SHORT or rows.length * _LANES <= longest * min(_LANES, rows.outer * rows.stride)


def emit_network_sort(kernel: CpuKernel, key: SortKey, rows: Rows) -> None:
    """Sort rows along one dimension by one key, some groups of rows on each thread."""
    sort = _NetworkSort(kernel, key, rows)
    flops = rows.length * rows.length.bit_length() ** 2 / 2 * sort.groups
    in_pieces(kernel, sort.groups, flops, lambda k, span: _NetworkSort(k, key, rows).emit(span))


class _NetworkSort:
    """The function that sorts some groups of rows."""

    def __init__(self, kernel: CpuKernel, key: SortKey, rows: Rows) -> None:
        self.kernel, self.key, self.rows = kernel, key, rows
        self.dtypes = [o.shape.dtype for o in kernel.instruction.operands]
        self.narrow = ir.IntType(8 * key.dtype.nbytes)
        self.kind = ir.IntType(max(32, self.narrow.width))
        self.lanes = max(2, kernel.target.vector_bits // self.kind.width)
        self.vector = with_lanes(self.kind, self.lanes)
        self.total = rows.outer * rows.stride
        self.groups = -(-self.total // self.lanes)

    def emit(self, span: ChunkSpan | None) -> None:
        self.e = e = self.kernel.emitter({})
        b = e.entry.builder
        alone = len(self.dtypes) == 1
        nbytes = (self.rows.length + _BLOCK) * self.vector.count * self.kind.width // 8
        self.columns = [allocate(e, nbytes) for _ in range(1 if alone and self.key.is_exact else 2)]
        first, past = (0, self.groups) if span is None else span.steps(b, self.groups)
        with for_range(b, first, past) as group:
            row = b.mul(group, constant(I64, self.lanes))
            left = b.sub(constant(I64, self.total), row)
            count = intrinsic(b, "llvm.smin", I64, [left, constant(I64, self.lanes)])
            changed = self._read(row, count)
            if not alone:
                self._sort(self.columns)
                self._gather(row, count)
            elif self.key.is_exact:
                self._sort(self.columns)
                self._write_values(row, count)
            else:
                with b.if_else(changed, likely=False) as (some, none):
                    with some:
                        self._sort(self.columns)
                        self._gather(row, count)
                    with none:
                        self._sort(self.columns[:1])
                        self._write_values(row, count)
        release(e, self.columns)
        e.finish()

    # -- rows and columns ----------------------------------------------------------------------------------------------

    def _column(self, which: int, k: ir.Value) -> ir.Value:
        return self.e.entry.builder.gep(self.columns[which], [k], source_etype=self.vector)

    def _load(self, which: int, k: ir.Value) -> ir.Value:
        return self.e.entry.builder.load(self._column(which, k), typ=self.vector, align=8)

    def _store(self, value: ir.Value, which: int, k: ir.Value) -> None:
        self.e.entry.builder.store(value, self._column(which, k), align=8)

    def _base(self, row: ir.Value) -> ir.Value:
        b, stride = self.e.entry.builder, constant(I64, self.rows.stride)
        return self.rows.base(b, b.udiv(row, stride), b.urem(row, stride))

    def _by_element(
        self,
        row: ir.Value,
        count: ir.Value,
        do: Callable[[ir.Value, ir.Value, ir.Value], None],
        start: int | ir.Value = 0,
    ) -> None:
        """``do(place, element, spot)`` of elements of ``count`` rows: the place in the row, and where it is in both."""
        b, length, lanes = self.e.entry.builder, self.rows.length, constant(I64, self.lanes)
        with for_range(b, start, length, _TILE) as begin:
            ahead = b.add(begin, constant(I64, _TILE))
            end = intrinsic(b, "llvm.smin", I64, [ahead, constant(I64, length)])
            with for_range(b, 0, count) as lane:
                base = self._base(b.add(row, lane))
                with for_range(b, begin, end) as k:
                    do(k, self.rows.at(b, base, k), b.add(b.mul(k, lanes), lane))

    def _transfer(self, row: ir.Value, count: ir.Value, *, read: bool) -> None:
        """Bits between columns and elements: those of the operand with the keys, or of the only result."""
        b, rows, dtype = self.e.entry.builder, self.rows, self.key.dtype
        pointer = self.kernel.operands[self.key.operand] if read else self.kernel.results[0]

        def move(element: ir.Value, column: ir.Value, lanes: int) -> None:
            narrow, wide = (with_lanes(kind, lanes) for kind in (self.narrow, self.kind))
            at = b.gep(pointer, [element], source_etype=self.narrow)
            source, kind = (at, narrow) if read else (column, wide)
            value = self._as(b.load(source, typ=kind, align=dtype.nbytes), wide if read else narrow)
            b.store(value, column if read else at, align=dtype.nbytes)

        def single(_: ir.Value, element: ir.Value, spot: ir.Value) -> None:
            move(element, b.gep(self.columns[0], [spot], source_etype=self.kind), 1)

        if 1 < rows.stride < self.lanes:
            self._by_element(row, count, single)
            return
        full = b.icmp_signed("==", count, constant(I64, self.lanes))
        if rows.stride > 1:
            last = b.add(b.urem(row, constant(I64, rows.stride)), constant(I64, self.lanes))
            full = b.and_(full, b.icmp_signed("<=", last, constant(I64, rows.stride)))
        with b.if_else(full) as (together, apart):
            with together:
                if rows.stride == 1:
                    squares = rows.length // self.lanes * self.lanes
                    self._transpose(pointer, row, squares, read=read)
                    self._by_element(row, count, single, squares)
                else:
                    base = self._base(row)
                    with for_range(b, 0, rows.length) as k:
                        move(rows.at(b, base, k), self._column(0, k), self.lanes)
            with apart:
                self._by_element(row, count, single)

    def _transpose(self, pointer: ir.Value, row: ir.Value, length: int, *, read: bool) -> None:
        """The first ``length`` elements of as many rows as there are lanes, in squares."""
        b, nbytes = self.e.entry.builder, self.key.dtype.nbytes
        narrow = with_lanes(self.narrow, self.lanes)
        with for_range(b, 0, length, self.lanes) as begin:
            steps = [constant(I64, k) for k in range(self.lanes)]
            beside = [self._column(0, b.add(begin, k)) for k in steps]
            across = [
                b.gep(pointer, [b.add(self._base(b.add(row, k)), begin)], source_etype=self.narrow) for k in steps
            ]
            if read:
                values = transpose_square(b, [b.load(p, typ=narrow, align=nbytes) for p in across], nbytes)
                for place, value in zip(beside, values, strict=True):
                    b.store(self._as(value, self.vector), place, align=nbytes)
            else:
                values = [self._as(b.load(p, typ=self.vector, align=nbytes), narrow) for p in beside]
                for place, value in zip(across, transpose_square(b, values, nbytes), strict=True):
                    b.store(value, place, align=nbytes)

    def _as(self, value: ir.Value, kind: ir.Type) -> ir.Value:
        """An integer with more or fewer bits, or a vector of such."""
        if value.type == kind:
            return value
        b, grows = self.e.entry.builder, scalar_of(kind).width > scalar_of(value.type).width
        return b.zext(value, kind) if grows else b.trunc(value, kind)

    def _turned(self, keys: ir.Value) -> ir.Value:
        """Unsigned integers as signed ones in the same order, and back: more processors have minima of these."""
        return self.e.entry.builder.xor(keys, constant(self.vector, 1 << (self.kind.width - 1)))

    def _read(self, row: ir.Value, count: ir.Value) -> ir.Value:
        """Columns of keys, and of places; whether the key of an element is made of other bits than it has."""
        b, rows, key = self.e.entry.builder, self.rows, self.key
        self._transfer(row, count, read=True)
        flags = self.e.slot(with_lanes(I1, self.lanes))
        b.store(zero(flags.type.pointee), flags)
        with for_range(b, 0, rows.length) as k:
            found, changed = key_of(b, self._as(self._load(0, k), with_lanes(self.narrow, self.lanes)), key)
            self._store(self._turned(self._as(found, self.vector)), 0, k)
            if not key.is_exact:
                b.store(b.or_(b.load(flags), changed), flags)
            if len(self.columns) > 1:
                self._store(splat(b, self._as(k, self.kind), self.lanes), 1, k)
        with for_range(b, rows.length, self._padded()) as k:
            for which in range(len(self.columns)):
                self._store(constant(self.vector, (1 << (self.kind.width - 1)) - 1), which, k)
        there = b.icmp_signed("<", vector_constant(range(self.lanes), I64), splat(b, count, self.lanes))
        some = b.bitcast(b.and_(b.load(flags), there), ir.IntType(self.lanes))
        return b.icmp_unsigned("!=", some, constant(some.type, 0))

    def _write_values(self, row: ir.Value, count: ir.Value) -> None:
        """Elements made of keys."""
        with for_range(self.e.entry.builder, 0, self.rows.length) as k:
            value = value_of(self.e.entry.builder, self._turned(self._load(0, k)), self.key)
            self._store(self._as(value, self.vector), 0, k)
        self._transfer(row, count, read=False)

    def _gather(self, row: ir.Value, count: ir.Value) -> None:
        """All operands by place."""
        b, kernel, stride = self.e.entry.builder, self.kernel, constant(I64, self.rows.stride)

        def move(k: ir.Value, element: ir.Value, spot: ir.Value) -> None:
            place = b.load(b.gep(self.columns[1], [spot], source_etype=self.kind), typ=self.kind)
            source = b.add(element, b.mul(b.sub(self._as(place, I64), k), stride))
            for operand, result, dtype in zip(kernel.operands, kernel.results, self.dtypes, strict=True):
                memory.store(b, memory.load(b, operand, source, dtype, 1), result, element, dtype, None)

        self._by_element(row, count, move)

    # -- the network ---------------------------------------------------------------------------------------------------

    def _block(self) -> int:
        """Places that are sorted in registers: a power of two."""
        most = _BLOCK if len(self.columns) == 1 else _BLOCK_WITH_PLACES
        return min(most, 1 << (self.rows.length - 1).bit_length())

    def _padded(self) -> int:
        return -(-self.rows.length // self._block()) * self._block()

    def _sort(self, columns: Sequence[ir.Value]) -> None:
        """Sort blocks, and merge sorted runs of doubling size; what would be behind the last place is never less."""
        b, block, total = self.e.entry.builder, self._block(), self._padded()
        width = len(columns)
        self._in_registers(width, list(batcher_pairs(block)))
        if total == block:
            return
        size, apart = self.e.slot(I64), self.e.slot(I64)
        one, end = constant(I64, 1), constant(I64, total)
        b.store(constant(I64, 2 * block), size)
        with while_(b) as (_, done):
            run = b.load(size, typ=I64)
            half = b.lshr(run, one)
            body = b.append_basic_block("merge")
            b.cbranch(b.icmp_signed("<", half, end), body, done)
            b.position_at_end(body)
            with for_range(b, 0, total, run) as base:
                missing = b.sub(run, b.sub(end, base))
                last = b.add(base, b.sub(run, one))
                with for_range(b, intrinsic(b, "llvm.smax", I64, [missing, constant(I64, 0)]), half) as k:
                    self._exchange(width, b.add(base, k), b.sub(last, k))
            b.store(b.lshr(half, one), apart)
            with while_(b) as (_, near):
                k = b.load(apart, typ=I64)
                clean = b.append_basic_block("clean")
                b.cbranch(b.icmp_signed(">=", k, constant(I64, block)), clean, near)
                b.position_at_end(clean)
                with for_range(b, 0, total, b.shl(k, one)) as base:
                    past = intrinsic(b, "llvm.smin", I64, [b.add(base, k), b.sub(end, k)])
                    with for_range(b, base, past) as at:
                        self._exchange(width, at, b.add(at, k))
                b.store(b.lshr(k, one), apart)
            self._in_registers(width, list(bitonic_pairs(block)))
            b.store(b.shl(run, one), size)

    def _exchange(self, width: int, low: ir.Value, high: ir.Value) -> None:
        first, second = ([self._load(c, at) for c in range(width)] for at in (low, high))
        for at, values in zip((low, high), self._ordered(first, second), strict=True):
            for c, value in enumerate(values):
                self._store(value, c, at)

    def _ordered(self, first: Sequence[ir.Value], second: Sequence[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
        """Two columns of keys, and places, the lesser elements first."""
        b = self.e.entry.builder
        less = b.icmp_signed("<", second[0], first[0])
        if len(first) > 1:
            equal = b.icmp_unsigned("==", second[0], first[0])
            less = b.or_(less, b.and_(equal, b.icmp_signed("<", second[1], first[1])))
        pairs = list(zip(first, second, strict=True))
        return [b.select(less, y, x) for x, y in pairs], [b.select(less, x, y) for x, y in pairs]

    def _in_registers(self, width: int, pairs: Sequence[tuple[int, int]]) -> None:
        """Compare and exchange the ``pairs`` of places of every block."""
        b, block = self.e.entry.builder, self._block()
        with for_range(b, 0, self._padded(), block) as base:
            places = [b.add(base, constant(I64, k)) for k in range(block)]
            held = [[self._load(c, place) for c in range(width)] for place in places]
            for low, high in pairs:
                held[low], held[high] = self._ordered(held[low], held[high])
            for place, values in zip(places, held, strict=True):
                for c, value in enumerate(values):
                    self._store(value, c, place)
