"""Sorts by one byte: elements are counted by it, and then moved once to where they belong; stable.

Counters in memory are slow where neighbours have one byte: each waits for the last. So the least few bytes of a piece
are counted in vector lanes. A block of the row's two commonest bytes has their counters in registers, and a block of
one byte is copied: that is how masks and classes lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.parallel import ChunkSpan, PhaseKernel, chunks, in_pieces, phase
from shardc.compiler.cpu.reductions.lanes import least_lane, ones, over_lanes
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.elements import memory
from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.key_bits import key_of, value_of
from shardc.compiler.elements.sorting import Rows
from shardc.hlo.ir.sort_keys import SortKey
from shardc.native.math.vector import I1, I8, I64, PTR, constant, intrinsic, lanes_of, splat, with_lanes

__all__ = ["emit_byte_sort", "takes_byte"]

_COUNTERS = 256
#: Bytes of a piece that are counted in vector lanes.
_FEW = 4
#: Shorter rows have fewer elements than there are counters to go through.
_SHORTEST = 1024
#: Rows from which on each is sorted by one thread; elements that are worth a piece of their own.
_MANY_ROWS, _PIECE = 16, 1 << 15
#: Simple operations to count and to move an element, roughly.
_COST = 16


def takes_byte(keys: tuple[SortKey, ...], rows: Rows) -> bool:
    """Whether there is one key, of one byte, and rows are long enough."""
    return len(keys) == 1 and keys[0].dtype.nbytes == 1 and rows.length >= _SHORTEST


def emit_byte_sort(kernel: CpuKernel, key: SortKey, rows: Rows) -> None:
    """Sort rows along one dimension: many of them on a thread each, a few by all threads together."""
    total, flops = rows.outer * rows.stride, _COST * rows.length
    if total >= _MANY_ROWS:
        in_pieces(kernel, total, flops * total, lambda k, span: _ByteSort(k, key, rows, 1).emit(span))
        return
    most = max(1, min(64, rows.length // _PIECE))
    _ByteSort(kernel, key, rows, chunks(flops=flops, most=most, tuning=kernel.tuning)).emit(None)


class _ByteSort:
    """The function that sorts some rows, each in ``pieces``.

    ``numbers`` are what phases are given: where the row begins, and its commonest byte and the next common one, behind
    which stand how many these are.
    """

    def __init__(self, kernel: CpuKernel, key: SortKey, rows: Rows, pieces: int) -> None:
        self.kernel, self.key, self.rows, self.pieces = kernel, key, rows, pieces
        self.lanes = kernel.target.vector_bits // 8 if rows.stride == 1 else 1

    def emit(self, span: ChunkSpan | None) -> None:
        e = self.kernel.emitter({})
        b, rows = e.entry.builder, self.rows
        numbers, total = e.slot(ir.ArrayType(I64, 5)), e.slot(I64)
        numbers.type = PTR
        counters = allocate(e, self.pieces * _COUNTERS * 8)
        count = rows.outer * rows.stride
        first, past = (0, count) if span is None else span.steps(b, count)
        with for_range(b, first, past) as row:
            stride = constant(I64, rows.stride)
            base = rows.base(b, b.udiv(row, stride), b.urem(row, stride))
            _put(b, numbers, constant(I64, 0), base)
            phase(self.kernel, e, self.pieces, self._count, [numbers, counters])
            for n in range(1, 5):
                _put(b, numbers, constant(I64, n), constant(I64, 0))
            b.store(constant(I64, 0), total)
            with for_range(b, 0, _COUNTERS) as digit:
                begin = b.load(total, typ=I64)
                with for_range(b, 0, self.pieces) as piece:
                    at = _counter(b, counters, piece, digit)
                    before = b.load(total, typ=I64)
                    b.store(b.add(before, b.load(at, typ=I64)), total)
                    b.store(before, at)
                end = b.load(total, typ=I64)
                _note(b, numbers, digit, b.sub(end, begin))
                self._fill(b, base, begin, end, digit)
            if len(self.kernel.operands) > 1:
                phase(self.kernel, e, self.pieces, self._move, [numbers, counters])
        release(e, [counters])
        e.finish()

    def _fill(self, b: ir.IRBuilder, base: ir.Value, begin: ir.Value, end: ir.Value, digit: ir.Value) -> None:
        """Keys are known by their counts."""
        value = value_of(b, b.trunc(digit, I8), self.key)
        with for_range(b, begin, end) as k:
            at = self.rows.at(b, base, k)
            b.store(value, b.gep(self.kernel.results[self.key.operand], [at], source_etype=I8), align=1)

    # -- the phases ----------------------------------------------------------------------------------------------------

    def _keys(self, b: ir.IRBuilder, part: PhaseKernel, base: ir.Value, k: ir.Value, lanes: int) -> ir.Value:
        at = b.gep(part.operands[self.key.operand], [self.rows.at(b, base, k)], source_etype=I8)
        return key_of(b, b.load(at, typ=with_lanes(I8, lanes), align=1), self.key)[0]

    def _count(self, part: PhaseKernel) -> None:
        """Count the keys of pieces: the least few one after the other, what is left by counters in memory."""
        e = part.emitter({})
        b, one = e.entry.builder, constant(I64, 1)
        numbers, counters = part.shared
        base, low = _get(b, numbers, constant(I64, 0)), e.slot(I64)
        counting = _Counting(e, self.lanes, low, lambda k, lanes: self._keys(b, part, base, k, lanes))
        with for_range(b, part.begin, part.end) as piece:
            first, past = ChunkSpan(self.pieces, piece, b.add(piece, one)).steps(b, self.rows.length)
            with for_range(b, 0, _COUNTERS) as digit:
                b.store(constant(I64, 0), _counter(b, counters, piece, digit))
            b.store(constant(I64, 0), low)
            for _ in range(_FEW):
                with b.if_then(counting.is_more()):
                    b.store(counting.least(first, past), low)
                    digit = b.load(low, typ=I64)
                    b.store(counting.equal(first, past), _counter(b, counters, piece, digit))
                    b.store(b.add(digit, one), low)
            with b.if_then(counting.is_more()), for_range(b, first, past) as k:
                digit = b.zext(self._keys(b, part, base, k, 1), I64)
                with b.if_then(b.icmp_unsigned(">=", digit, b.load(low, typ=I64))):
                    at = _counter(b, counters, piece, digit)
                    b.store(b.add(b.load(at, typ=I64), one), at)
        e.finish()

    def _move(self, part: PhaseKernel) -> None:
        """All operands but the keys, in blocks."""
        e = part.emitter({})
        b, block = e.entry.builder, constant(I64, self.lanes)
        numbers, counters = part.shared
        base = _get(b, numbers, constant(I64, 0))
        common = [_get(b, numbers, constant(I64, n)) for n in (1, 2)]
        beside = [splat(b, b.trunc(digit, I8), self.lanes) for digit in common] if self.lanes > 1 else []

        def by_memory(piece: ir.Value, k: ir.Value) -> None:
            at = _counter(b, counters, piece, b.zext(self._keys(b, part, base, k, 1), I64))
            to = b.load(at, typ=I64)
            b.store(b.add(to, constant(I64, 1)), at)
            self._move_others(b, part, base, k, to)

        with for_range(b, part.begin, part.end) as piece:
            first, past = ChunkSpan(self.pieces, piece, b.add(piece, constant(I64, 1))).steps(b, self.rows.length)
            places = [_counter(b, counters, piece, digit) for digit in common]

            def take(k: ir.Value, lanes: int, piece: ir.Value = piece, places: Sequence[ir.Value] = places) -> None:
                if lanes == 1:
                    by_memory(piece, k)
                    return
                keys = self._keys(b, part, base, k, lanes)
                here, other = (b.bitcast(b.icmp_unsigned("==", keys, x), ir.IntType(lanes)) for x in beside)
                every = constant(here.type, -1)
                with b.if_else(b.icmp_unsigned("==", b.or_(here, other), every)) as (two, more):
                    with two:
                        alike = b.or_(b.icmp_unsigned("==", here, every), b.icmp_unsigned("==", other, every))
                        with b.if_else(alike) as (same, mixed):
                            with same:
                                place = b.select(b.icmp_unsigned("==", here, every), *places)
                                to = b.load(place, typ=I64)
                                b.store(b.add(to, block), place)
                                self._copy_block(b, part, base, k, to)
                            with mixed:
                                self._split_block(b, part, (base, k), here, places)
                    with more, for_range(b, k, b.add(k, block)) as at:
                        by_memory(piece, at)

            over_lanes(b, first, past, self.lanes, take)
        e.finish()

    def _copy_block(self, b: ir.IRBuilder, part: PhaseKernel, base: ir.Value, k: ir.Value, to: ir.Value) -> None:
        with for_range(b, 0, self.lanes) as n:
            self._move_others(b, part, base, b.add(k, n), b.add(to, n))

    def _split_block(
        self,
        b: ir.IRBuilder,
        part: PhaseKernel,
        block: tuple[ir.Value, ir.Value],
        here: ir.Value,
        places: Sequence[ir.Value],
    ) -> None:
        """Elements where a bit of ``here`` is one go to the first place, others to the second."""
        base, k = block
        to, behind = (b.load(p, typ=I64) for p in places)
        # What went to either adds up to the number of the element.
        both = b.add(to, behind)
        for n in range(self.lanes):
            bit = b.trunc(b.lshr(here, constant(here.type, n)), I1)
            there = b.sub(b.add(both, constant(I64, n)), to)
            self._move_others(b, part, base, b.add(k, constant(I64, n)), b.select(bit, to, there))
            to = b.add(to, b.zext(bit, I64))
        b.store(to, places[0])
        b.store(b.sub(b.add(both, constant(I64, self.lanes)), to), places[1])

    def _move_others(self, b: ir.IRBuilder, part: PhaseKernel, base: ir.Value, k: ir.Value, to: ir.Value) -> None:
        source, target = self.rows.at(b, base, k), self.rows.at(b, base, to)
        for n, operand in enumerate(self.kernel.instruction.operands):
            if n != self.key.operand:
                parts = memory.load(b, part.operands[n], source, operand.shape.dtype, 1)
                memory.store(b, parts, part.results[n], target, operand.shape.dtype, None)


class _Counting:
    """Counts keys, which ``keys(place, lanes)`` reads, from the least on; those from ``low`` on are not counted yet."""

    def __init__(self, e: CpuEmitter, lanes: int, low: ir.Value, keys: Callable[[ir.Value, int], ir.Value]) -> None:
        self.b, self.lanes, self.low, self.keys = e.entry.builder, lanes, low, keys
        self.best = {n: e.slot(with_lanes(I8, n)) for n in {1, lanes}}
        self.some = e.slot(I64)

    def is_more(self) -> ir.Value:
        return self.b.icmp_unsigned("<", self.b.load(self.low, typ=I64), constant(I64, _COUNTERS))

    def _limits(self) -> dict[int, ir.Value]:
        low = self.b.trunc(self.b.load(self.low, typ=I64), I8)
        return {n: splat(self.b, low, n) if n > 1 else low for n in self.best}

    def least(self, first: ir.Value, past: ir.Value) -> ir.Value:
        """The least key that is not counted yet, or the last that there may be."""
        b, limits = self.b, self._limits()

        def take(k: ir.Value, lanes: int) -> None:
            keys = self.keys(k, lanes)
            there = b.select(b.icmp_unsigned(">=", keys, limits[lanes]), keys, constant(keys.type, -1))
            known = b.load(self.best[lanes], typ=keys.type)
            b.store(intrinsic(b, "llvm.umin", keys.type, [there, known]), self.best[lanes])

        for n, slot in self.best.items():
            b.store(constant(with_lanes(I8, n), -1), slot)
        over_lanes(b, first, past, self.lanes, take)
        found = [b.load(slot, typ=with_lanes(I8, n)) for n, slot in self.best.items()]
        found = [least_lane(b, v) if lanes_of(v.type) > 1 else v for v in found]
        return b.zext(intrinsic(b, "llvm.umin", I8, [found[0], found[-1]]), I64)

    def equal(self, first: ir.Value, past: ir.Value) -> ir.Value:
        """How many have the key ``low``."""
        b, limits = self.b, self._limits()

        def take(k: ir.Value, lanes: int) -> None:
            here = b.icmp_unsigned("==", self.keys(k, lanes), limits[lanes])
            b.store(b.add(b.load(self.some, typ=I64), ones(b, here)), self.some)

        b.store(constant(I64, 0), self.some)
        over_lanes(b, first, past, self.lanes, take)
        return b.load(self.some, typ=I64)


def _note(b: ir.IRBuilder, numbers: ir.Value, digit: ir.Value, count: ir.Value) -> None:
    """Record the byte ``digit``, which ``count`` elements have, if it is one of the two commonest so far."""
    first, second, most, next_most = (_get(b, numbers, constant(I64, n)) for n in range(1, 5))
    leads = b.icmp_unsigned(">", count, most)
    follows = b.icmp_unsigned(">", count, next_most)
    for n, pair, own in ((1, (first, second), digit), (3, (most, next_most), count)):
        _put(b, numbers, constant(I64, n), b.select(leads, own, pair[0]))
        behind = b.select(leads, pair[0], b.select(follows, own, pair[1]))
        _put(b, numbers, constant(I64, n + 1), behind)


def _counter(b: ir.IRBuilder, counters: ir.Value, piece: ir.Value, digit: ir.Value) -> ir.Value:
    return b.gep(counters, [b.add(b.mul(piece, constant(I64, _COUNTERS)), digit)], source_etype=I64)


def _get(b: ir.IRBuilder, numbers: ir.Value, n: ir.Value) -> ir.Value:
    return b.load(b.gep(numbers, [n], source_etype=I64), typ=I64)


def _put(b: ir.IRBuilder, numbers: ir.Value, n: ir.Value, value: ir.Value) -> None:
    b.store(value, b.gep(numbers, [n], source_etype=I64))
