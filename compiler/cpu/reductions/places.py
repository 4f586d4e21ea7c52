"""A few places of sorted rows, for which no row is sorted.

Every few elements of a row are a sample. Two of these, some way before and behind where a place would be in the sample,
are *bounds*: a walk over the row counts the keys below them and keeps those between. Among the kept ones the place is
found by digits, the highest first, each time keeping those with the right one. Where the sample misled, all are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.parallel import ChunkSpan, PhaseKernel, chunks, in_pieces, phase
from shardc.compiler.cpu.reductions.lanes import least_lane, ones, over_lanes
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.elements.arithmetic.registers import register_type
from shardc.compiler.elements.control_flow import for_range, while_
from shardc.compiler.elements.key_bits import key_of, value_of
from shardc.compiler.elements.sorting import Rows
from shardc.compiler.lower.fuse.place_plan import PlacePlan
from shardc.native.math.vector import I1, I64, PTR, constant, intrinsic, splat, with_lanes

__all__ = ["emit_places"]

_DIGIT = 8
_COUNTERS = 1 << _DIGIT
#: The bits of infinities.
_INFINITY = MappingProxyType({"f32": 0x7F800000, "f64": 0x7FF0000000000000})
#: Rows from which on each is searched by one thread.
_MANY_ROWS = 16
#: Simple operations of a walk, by the element.
_WALK = 4


def emit_places(kernel: CpuKernel, plan: PlacePlan) -> None:
    """Search rows: many of them on a thread each, a few by all threads together."""
    rows = Rows(plan.sort.shape.dims, plan.dim)
    total = rows.outer * rows.stride
    flops = _WALK * rows.length * len(plan.leading)
    if total >= _MANY_ROWS:
        in_pieces(kernel, total, flops * total, lambda k, span: _RowSearch(k, plan, rows, 1).emit(span))
        return
    _RowSearch(kernel, plan, rows, chunks(flops=flops, tuning=kernel.tuning)).emit(None)


class _RowSearch:
    """The function that searches some rows, each in ``pieces``.

    ``numbers`` are what phases are given: where the row begins, the bounds; ``counts`` of each piece are what they
    answer.
    """

    def __init__(self, kernel: CpuKernel, plan: PlacePlan, rows: Rows, pieces: int) -> None:
        self.kernel, self.plan, self.rows, self.pieces = kernel, plan, rows, pieces
        self.key = plan.key
        self.kind = ir.IntType(8 * self.key.dtype.nbytes)
        self.lanes = max(2, kernel.target.vector_bits // self.kind.width) if rows.stride == 1 else 1
        key = self.key
        #: Whether elements are compared by value. That takes fewer instructions than keys.
        self.by_value = key.dtype.name in ("f32", "f64") and key.zeros_equal and key.nans_equal and not key.descending
        n = rows.length
        self.sampled = 1 << round(math.log2(n) * 2 / 3)
        #: Places of the sample that the bounds stand apart: over three standard deviations.
        self.apart = math.isqrt(3 * self.sampled)

    def emit(self, span: ChunkSpan | None) -> None:
        self.e = e = self.kernel.emitter({})
        b, rows, leading, places = e.entry.builder, self.rows, self.plan.leading, self.plan.places
        self.numbers, self.counters = self._array(I64, 3), self._array(I64, _COUNTERS)
        self.left, self.equals = e.slot(I64), e.slot(I64)
        found = self._array(self.kind, len(places))
        nbytes = self.kind.width // 8
        self.kept, self.sample = (allocate(e, n * nbytes) for n in (rows.length, self.sampled))
        self.counts = allocate(e, self.pieces * 2 * 8)
        ranks, numbers = self._table(leading), self._table([places.index(p) for p in leading])
        follows = self._table([int(p + 1 in places) for p in leading])
        total = rows.outer * rows.stride
        first, past = (0, total) if span is None else span.steps(b, total)
        with for_range(b, first, past) as row:
            stride = constant(I64, rows.stride)
            outer, inner = b.udiv(row, stride), b.urem(row, stride)
            self._put(self.numbers, constant(I64, 0), rows.base(b, outer, inner))
            self._take_sample()
            with for_range(b, 0, len(leading)) as j:
                key, number = self._search(self._at(ranks, j)), self._at(numbers, j)
                self._put(found, number, self._element(key, b.load(self.left, typ=I64)))
                if len(leading) < len(places):
                    with b.if_then(b.icmp_unsigned("!=", self._at(follows, j), constant(I64, 0))):
                        self._put(found, b.add(number, constant(I64, 1)), self._following(key))
            self._write(found, outer, inner)
        release(e, [self.kept, self.sample, self.counts])
        e.finish()

    # -- memory --------------------------------------------------------------------------------------------------------

    def _array(self, kind: ir.Type, count: int) -> ir.Value:
        slot = self.e.slot(ir.ArrayType(kind, count))
        slot.type = PTR
        return slot

    def _table(self, values: Sequence[int]) -> ir.Value:
        table = self._array(I64, len(values))
        for k, value in enumerate(values):
            self._put(table, constant(I64, k), constant(I64, value))
        return table

    def _put(self, base: ir.Value, at: ir.Value, value: ir.Value) -> None:
        b = self.e.entry.builder
        b.store(value, b.gep(base, [at], source_etype=value.type), align=max(1, value.type.width // 8))

    def _at(self, base: ir.Value, at: ir.Value, kind: ir.Type = I64) -> ir.Value:
        return _read(self.e.entry.builder, base, at, kind)

    # -- one place -----------------------------------------------------------------------------------------------------

    def _take_sample(self) -> None:
        b, step = self.e.entry.builder, self.rows.length // self.sampled
        base = self._at(self.numbers, constant(I64, 0))
        with for_range(b, 0, self.sampled) as k:
            place = self.rows.at(b, base, b.mul(k, constant(I64, step)))
            value = self._at(self.kernel.operands[0], place, self.kind)
            self._put(self.sample, k, key_of(b, value, self.key)[0])

    def _search(self, rank: ir.Value) -> ir.Value:
        """The key at a place; how many equal ones come before it in ``left``, and all ``equals``."""
        b = self.e.entry.builder
        key, count = self.e.slot(self.kind), self.e.slot(I64)
        self._bound(rank)
        inside = self._keep_between(rank, count)
        with b.if_then(b.not_(inside), likely=False):
            self._put(self.numbers, constant(I64, 1), constant(I64, 0))
            self._put(self.numbers, constant(I64, 2), constant(I64, -1))
            self._keep_between(rank, count)
        low, high = (b.trunc(self._at(self.numbers, constant(I64, k)), self.kind) for k in (1, 2))
        b.store(low, key)
        b.store(b.load(count, typ=I64), self.equals)
        with b.if_then(b.icmp_unsigned("!=", low, high)):
            b.store(self._by_digits(b.load(count, typ=I64)), key)
        return b.load(key, typ=self.kind)

    def _bound(self, rank: ir.Value) -> None:
        """The sample's elements before and behind the place; past the sample's ends, all that there may be."""
        b, last = self.e.entry.builder, constant(I64, self.sampled - 1)
        middle = b.udiv(b.mul(rank, constant(I64, self.sampled)), constant(I64, self.rows.length))
        below = b.sub(middle, constant(I64, self.apart))
        above = b.add(middle, constant(I64, self.apart))
        for number, place, end in ((1, below, 0), (2, above, -1)):
            with for_range(b, 0, self.sampled) as k:
                self._put(self.kept, k, self._at(self.sample, k, self.kind))
            nearest = intrinsic(b, "llvm.smax", I64, [place, constant(I64, 0)])
            b.store(intrinsic(b, "llvm.smin", I64, [nearest, last]), self.left)
            found = self._by_digits(constant(I64, self.sampled))
            outside = b.icmp_signed("<", place, nearest) if number == 1 else b.icmp_signed(">", place, last)
            chosen = b.select(outside, constant(self.kind, end), found)
            if number == 1 and self.by_value:  # no NaN: all would have to be below it
                infinity = constant(self.kind, _INFINITY[self.key.dtype.name])
                chosen = intrinsic(b, "llvm.umin", self.kind, [chosen, key_of(b, infinity, self.key)[0]])
            self._put(self.numbers, constant(I64, number), b.zext(chosen, I64))

    def _keep_between(self, rank: ir.Value, count: ir.Value) -> ir.Value:
        """Keep the keys between the bounds, their ``count``, and the place among them. Returns whether these keys hold
        that place."""
        b, e = self.e.entry.builder, self.e
        phase(self.kernel, e, self.pieces, self._walk, [self.numbers, self.kept, self.counts])
        below = e.slot(I64)
        b.store(constant(I64, 0), below)
        b.store(constant(I64, 0), count)
        with for_range(b, 0, self.pieces) as piece:
            two = b.shl(piece, constant(I64, 1))
            b.store(b.add(b.load(below, typ=I64), self._at(self.counts, two)), below)
            begin = self._span(piece).steps(b, self.rows.length)[0]
            some, before = self._at(self.counts, b.add(two, constant(I64, 1))), b.load(count, typ=I64)
            with for_range(b, 0, some) as k:
                self._put(self.kept, b.add(before, k), self._at(self.kept, b.add(begin, k), self.kind))
            b.store(b.add(before, some), count)
        left = b.sub(rank, b.load(below, typ=I64))
        b.store(left, self.left)
        return b.icmp_unsigned("<", left, b.load(count, typ=I64))

    def _span(self, piece: ir.Value) -> ChunkSpan:
        return ChunkSpan(self.pieces, piece, self.e.entry.builder.add(piece, constant(I64, 1)))

    def _by_digits(self, count: ir.Value) -> ir.Value:
        """The key at place ``left`` of so many kept keys, of which no others are kept; ``left`` and ``equals`` are
        then those of equal ones."""
        b, one = self.e.entry.builder, constant(I64, 1)
        digit, before, kept = (self.e.slot(I64) for _ in range(3))
        b.store(count, self.equals)
        with for_range(b, 0, self.kind.width, _DIGIT) as done:
            bit = b.sub(constant(I64, self.kind.width - _DIGIT), done)
            size, left = b.load(self.equals, typ=I64), b.load(self.left, typ=I64)
            with for_range(b, 0, _COUNTERS) as k:
                self._put(self.counters, k, constant(I64, 0))
            with for_range(b, 0, size) as k:
                d = self._digit(self._at(self.kept, k, self.kind), bit)
                self._put(self.counters, d, b.add(self._at(self.counters, d), one))
            b.store(constant(I64, 0), digit)
            b.store(constant(I64, 0), before)
            with while_(b) as (more, found):
                d, past = b.load(digit, typ=I64), b.load(before, typ=I64)
                upto = b.add(past, self._at(self.counters, d))
                body = b.append_basic_block("next")
                b.cbranch(b.icmp_unsigned("<=", upto, left), body, found)
                b.position_at_end(body)
                b.store(upto, before)
                b.store(b.add(d, one), digit)
                b.branch(more)
            wanted = b.load(digit, typ=I64)
            b.store(b.sub(left, b.load(before, typ=I64)), self.left)
            b.store(self._at(self.counters, wanted), self.equals)
            with b.if_then(b.icmp_unsigned("<", b.load(self.equals, typ=I64), size)):
                b.store(constant(I64, 0), kept)
                with for_range(b, 0, size) as k:
                    item, to = self._at(self.kept, k, self.kind), b.load(kept, typ=I64)
                    self._put(self.kept, to, item)
                    here = b.icmp_unsigned("==", self._digit(item, bit), wanted)
                    b.store(b.add(to, b.zext(here, I64)), kept)
        return self._at(self.kept, constant(I64, 0), self.kind)

    def _digit(self, item: ir.Value, bit: ir.Value) -> ir.Value:
        b = self.e.entry.builder
        found = b.lshr(item, b.trunc(bit, self.kind))
        return b.zext(b.and_(found, constant(self.kind, _COUNTERS - 1)), I64)

    # -- walks over the row --------------------------------------------------------------------------------------------

    def _walk(self, part: PhaseKernel) -> None:
        """Count keys below the bounds, and keep those between them at the beginning of the piece's part of ``kept``."""
        e = part.emitter({})
        b, one = e.entry.builder, constant(I64, 1)
        numbers, kept, counts = part.shared
        base, low, high = (_read(b, numbers, constant(I64, k), I64) for k in range(3))
        low, high = b.trunc(low, self.kind), b.trunc(high, self.kind)
        width = b.sub(high, low)
        below, to = e.slot(I64), e.slot(I64)
        bounds = {n: self._bounds(b, low, high, n) for n in {1, self.lanes}}

        def keep(key: ir.Value) -> None:
            at = b.load(to, typ=I64)
            b.store(key, b.gep(kept, [at], source_etype=self.kind), align=self.kind.width // 8)
            b.store(b.add(at, b.zext(b.icmp_unsigned("<=", b.sub(key, low), width), I64)), to)

        def take(k: ir.Value, lanes: int) -> None:
            bits = _read(b, part.operands[0], self.rows.at(b, base, k), self.kind, lanes)
            before, between = self._sides(b, bits, *bounds[lanes])
            b.store(b.add(b.load(below, typ=I64), ones(b, before)), below)
            if lanes == 1:
                keep(key_of(b, bits, self.key)[0])
                return
            some = b.bitcast(between, ir.IntType(lanes))
            with b.if_then(b.icmp_unsigned("!=", some, constant(some.type, 0)), likely=False):
                keys = key_of(b, bits, self.key)[0]
                for lane in range(lanes):
                    keep(b.extract_element(keys, constant(I64, lane)))

        with for_range(b, part.begin, part.end) as piece:
            first, past = ChunkSpan(self.pieces, piece, b.add(piece, one)).steps(b, self.rows.length)
            b.store(constant(I64, 0), below)
            b.store(first, to)
            over_lanes(b, first, past, self.lanes, take)
            two = b.shl(piece, one)
            for number, value in ((two, below), (b.add(two, one), to)):
                made = b.load(value, typ=I64)
                made = b.sub(made, first) if value is to else made
                b.store(made, b.gep(counts, [number], source_etype=I64))
        e.finish()

    def _bounds(self, b: ir.IRBuilder, low: ir.Value, high: ir.Value, lanes: int) -> tuple[ir.Value, ir.Value]:
        """What elements are compared with: the bounds' values, or the lower key and the distance of the other."""
        found = low, b.sub(high, low)
        if self.by_value:
            kind = register_type(self.key.dtype)
            found = tuple(b.bitcast(value_of(b, key, self.key), kind) for key in (low, high))
        first, second = (splat(b, x, lanes) if lanes > 1 else x for x in found)
        return first, second

    def _sides(self, b: ir.IRBuilder, bits: ir.Value, first: ir.Value, second: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Which elements are below the bounds, and which may be between them."""
        if not self.by_value:
            keys, _ = key_of(b, bits, self.key)
            return b.icmp_unsigned("<", keys, first), b.icmp_unsigned("<=", b.sub(keys, first), second)
        # NaNs are below nothing; an upper bound that is one stands behind all.
        x = b.bitcast(bits, first.type)
        before = b.fcmp_ordered("<", x, first)
        return before, b.and_(b.not_(before), b.fcmp_unordered("<=", x, second))

    def _following(self, key: ir.Value) -> ir.Value:
        """The element at the next place: an equal one, or the least of those that are more."""
        b, e = self.e.entry.builder, self.e
        next_left, found = b.add(b.load(self.left, typ=I64), constant(I64, 1)), e.slot(self.kind)
        equal = b.icmp_unsigned("<", next_left, b.load(self.equals, typ=I64))
        with b.if_else(equal) as (same, more):
            with same:
                b.store(self._element(key, next_left), found)
            with more:
                self._put(self.numbers, constant(I64, 1), b.zext(key, I64))
                phase(self.kernel, e, self.pieces, self._least_above, [self.numbers, self.counts])
                least = e.slot(I64)
                b.store(constant(I64, -1), least)
                with for_range(b, 0, self.pieces) as piece:
                    new = intrinsic(b, "llvm.umin", I64, [b.load(least, typ=I64), self._at(self.counts, piece)])
                    b.store(new, least)
                above = b.trunc(b.load(least, typ=I64), self.kind)
                b.store(self._element(above, constant(I64, 0)), found)
        return b.load(found, typ=self.kind)

    def _least_above(self, part: PhaseKernel) -> None:
        """Of each piece the least key above a key."""
        e = part.emitter({})
        b = e.entry.builder
        numbers, counts = part.shared
        base, key = (_read(b, numbers, constant(I64, k), I64) for k in range(2))
        key = b.trunc(key, self.kind)
        least = {n: e.slot(with_lanes(self.kind, n)) for n in {1, self.lanes}}
        limits = {n: splat(b, key, n) if n > 1 else key for n in least}

        def take(k: ir.Value, lanes: int) -> None:
            place, slot = self.rows.at(b, base, k), least[lanes]
            keys, _ = key_of(b, _read(b, part.operands[0], place, self.kind, lanes), self.key)
            known = b.load(slot, typ=keys.type)
            better = b.and_(b.icmp_unsigned(">", keys, limits[lanes]), b.icmp_unsigned("<", keys, known))
            b.store(b.select(better, keys, known), slot)

        with for_range(b, part.begin, part.end) as piece:
            first, past = ChunkSpan(self.pieces, piece, b.add(piece, constant(I64, 1))).steps(b, self.rows.length)
            for n, slot in least.items():
                b.store(constant(with_lanes(self.kind, n), -1), slot)
            over_lanes(b, first, past, self.lanes, take)
            best = b.load(least[1], typ=self.kind)
            if self.lanes > 1:
                many = b.load(least[self.lanes], typ=with_lanes(self.kind, self.lanes))
                best = intrinsic(b, "llvm.umin", self.kind, [best, least_lane(b, many)])
            b.store(b.zext(best, I64), b.gep(counts, [piece], source_etype=I64))
        e.finish()

    # -- results -------------------------------------------------------------------------------------------------------

    def _element(self, key: ir.Value, left: ir.Value) -> ir.Value:
        """The bits of the element with a key that so many equal ones come before."""
        b, e, rows = self.e.entry.builder, self.e, self.rows
        plain = value_of(b, key, self.key)
        if self.key.is_exact:
            return plain
        found, number = e.slot(self.kind), e.slot(I64)
        b.store(plain, found)
        groups = [0] if self.key.zeros_equal else []
        groups += [(1 << (self.kind.width - 1)) - 1] if self.key.nans_equal else []
        several: ir.Value = constant(I1, 0)
        for bits in groups:
            several = b.or_(several, b.icmp_unsigned("==", key, key_of(b, constant(self.kind, bits), self.key)[0]))
        with b.if_then(several, likely=False):
            base = self._at(self.numbers, constant(I64, 0))
            b.store(constant(I64, 0), number)
            with for_range(b, 0, rows.length) as k:
                value = self._at(self.kernel.operands[0], rows.at(b, base, k), self.kind)
                equal = b.icmp_unsigned("==", key_of(b, value, self.key)[0], key)
                at = b.load(number, typ=I64)
                here = b.and_(equal, b.icmp_unsigned("==", at, left))
                b.store(b.select(here, value, b.load(found, typ=self.kind)), found)
                b.store(b.add(at, b.zext(equal, I64)), number)
        return b.load(found, typ=self.kind)

    def _write(self, found: ir.Value, outer: ir.Value, inner: ir.Value) -> None:
        """Places into the slices that read them."""
        b, places, stride = self.e.entry.builder, self.plan.places, constant(I64, self.rows.stride)
        for part, result in zip(self.plan.slices, self.kernel.results, strict=True):
            read = self.plan.read_by(part)
            for k, place in enumerate(read):
                row = b.add(b.mul(outer, constant(I64, len(read))), constant(I64, k))
                value = self._at(found, constant(I64, places.index(place)), self.kind)
                self._put(result, b.add(b.mul(row, stride), inner), value)


def _read(b: ir.IRBuilder, base: ir.Value, at: ir.Value, kind: ir.Type, lanes: int = 1) -> ir.Value:
    return b.load(b.gep(base, [at], source_etype=kind), typ=with_lanes(kind, lanes), align=max(1, kind.width // 8))
