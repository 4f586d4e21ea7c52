"""Passes of a radix sort: by one byte of the key after the other, the lowest first; bytes that all have alike cost a
look only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.parallel import ChunkSpan, PhaseKernel, phase
from shardc.compiler.elements.control_flow import for_range
from shardc.native.math.vector import I32, I64, PTR, constant, with_lanes, with_scalar

__all__ = ["COUNTERS", "Items", "emit_radix_passes"]

_DIGIT = 8
#: Counters of a chunk.
COUNTERS = 1 << _DIGIT


@dataclass(frozen=True, slots=True)
class Items:
    """What is moved: ``bits`` with a key of ``key_bits`` from bit ``shift`` on, places in 32 bits ``beside`` or not.

    ``signed``: in memory the highest bit is turned, so that signed comparisons put items in order.
    """

    bits: int
    shift: int
    key_bits: int
    beside: bool
    signed: bool = False

    @property
    def kind(self) -> ir.IntType:
        return ir.IntType(self.bits)

    def load(self, b: ir.IRBuilder, base: ir.Value, k: ir.Value, lanes: int = 1) -> ir.Value:
        at = b.gep(base, [k], source_etype=self.kind)
        return self.turned(b, b.load(at, typ=with_lanes(self.kind, lanes), align=self.bits // 8))

    def store(self, b: ir.IRBuilder, item: ir.Value, base: ir.Value, k: ir.Value) -> None:
        b.store(self.turned(b, item), b.gep(base, [k], source_etype=self.kind), align=self.bits // 8)

    def turned(self, b: ir.IRBuilder, item: ir.Value) -> ir.Value:
        """An item as it stands in memory, or back."""
        return b.xor(item, constant(item.type, 1 << (self.bits - 1))) if self.signed else item

    def widened(self, b: ir.IRBuilder, key: ir.Value) -> ir.Value:
        """A key in as many bits as an item has."""
        kind = with_scalar(key.type, self.kind)
        return key if key.type == kind else b.zext(key, kind)

    def key(self, b: ir.IRBuilder, item: ir.Value) -> ir.Value:
        """What items are compared by."""
        return b.lshr(item, constant(self.kind, self.shift)) if self.shift else item


def emit_radix_passes(
    kernel: CpuKernel,
    e: CpuEmitter,
    items: Items,
    length: int,
    pieces: int,
    current: Sequence[ir.Value],
    counters: ir.Value,
) -> None:
    """Sort the items, and places, of ``current``: slots with where they lie and where there is room for them."""
    b = e.entry.builder
    shift = e.slot(I64)
    shift.type = PTR
    with for_range(b, items.shift, items.shift + items.key_bits, _DIGIT) as bit:
        b.store(bit, shift)
        places = [b.load(slot, typ=PTR) for slot in current]
        shared = [shift, counters, *places]
        phase(kernel, e, pieces, lambda part: _count(part, items, length, pieces), shared)
        with b.if_then(b.not_(_all_alike(b, items, length, pieces, bit, counters, places[0]))):
            _begin(e, pieces, counters)
            phase(kernel, e, pieces, lambda part: _move(part, items, length, pieces), shared)
            for one, other in ((0, 1), (2, 3)):
                b.store(places[other], current[one])
                b.store(places[one], current[other])


def _digit(b: ir.IRBuilder, items: Items, item: ir.Value, bit: ir.Value) -> ir.Value:
    at = bit if items.bits == 64 else b.trunc(bit, items.kind)
    found = b.and_(b.lshr(item, at), constant(items.kind, COUNTERS - 1))
    return found if items.bits == 64 else b.zext(found, I64)


def _counter(b: ir.IRBuilder, counters: ir.Value, chunk: ir.Value, digit: ir.Value) -> ir.Value:
    return b.gep(counters, [b.add(b.mul(chunk, constant(I64, COUNTERS)), digit)], source_etype=I64)


def _count(part: PhaseKernel, items: Items, length: int, pieces: int) -> None:
    """How often each digit is in each chunk."""
    e = part.emitter({})
    b = e.entry.builder
    shift, counters, source, *_ = part.shared
    bit = b.load(shift, typ=I64)
    with for_range(b, part.begin, part.end) as chunk:
        with for_range(b, 0, COUNTERS) as digit:
            b.store(constant(I64, 0), _counter(b, counters, chunk, digit))
        low, high = ChunkSpan(pieces, chunk, b.add(chunk, constant(I64, 1))).steps(b, length)
        with for_range(b, low, high) as k:
            at = _counter(b, counters, chunk, _digit(b, items, items.load(b, source, k), bit))
            b.store(b.add(b.load(at, typ=I64), constant(I64, 1)), at)
    e.finish()


def _all_alike(
    b: ir.IRBuilder, items: Items, length: int, pieces: int, bit: ir.Value, counters: ir.Value, source: ir.Value
) -> ir.Value:
    """Whether every item has the digit of the first one."""
    digit = _digit(b, items, items.load(b, source, constant(I64, 0)), bit)
    total: ir.Value = constant(I64, 0)
    for chunk in range(pieces):
        total = b.add(total, b.load(_counter(b, counters, constant(I64, chunk), digit), typ=I64))
    return b.icmp_unsigned("==", total, constant(I64, length))


def _begin(e: CpuEmitter, pieces: int, counters: ir.Value) -> None:
    """Counters become where the first item with a digit goes, chunk by chunk."""
    b = e.entry.builder
    total = e.slot(I64)
    b.store(constant(I64, 0), total)
    with for_range(b, 0, COUNTERS) as digit, for_range(b, 0, pieces) as chunk:
        at = _counter(b, counters, chunk, digit)
        before = b.load(total, typ=I64)
        b.store(b.add(before, b.load(at, typ=I64)), total)
        b.store(before, at)


def _move(part: PhaseKernel, items: Items, length: int, pieces: int) -> None:
    e = part.emitter({})
    b = e.entry.builder
    shift, counters, source, target, places, other = part.shared
    bit = b.load(shift, typ=I64)
    with for_range(b, part.begin, part.end) as chunk:
        low, high = ChunkSpan(pieces, chunk, b.add(chunk, constant(I64, 1))).steps(b, length)
        with for_range(b, low, high) as k:
            item = items.load(b, source, k)
            at = _counter(b, counters, chunk, _digit(b, items, item, bit))
            to = b.load(at, typ=I64)
            b.store(b.add(to, constant(I64, 1)), at)
            items.store(b, item, target, to)
            if items.beside:
                place = b.load(b.gep(places, [k], source_etype=I32), typ=I32, align=4)
                b.store(place, b.gep(other, [to], source_etype=I32), align=4)
    e.finish()
