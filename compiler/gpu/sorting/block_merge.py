"""Sorting what a block holds in its shared memory: stable merges along merge paths, by any comparator.

An item is one element of each array that moves (keys, and what goes with them). Every thread has the same number of
consecutive places; where its share of two merged runs begins in either of them is found by bisection on a diagonal of
the merge path (Green, McColl and Bader, "GPU Merge Path", ICS 2012), so that all threads merge equally much whatever
the values are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from shardc.compiler.elements.arithmetic.registers import decode, memory_type, part_count
from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.frames import Val
from shardc.compiler.gpu.function import GpuEmitter
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I32, constant, intrinsic

__all__ = ["Item", "ItemTypes", "SortTile", "load", "merge_path", "shared_bytes", "smaller", "store"]

#: An element of each moving array, as memory holds it: one value, or two for complex numbers.
Item = list[tuple[ir.Value, ...]]
#: A place is left free behind so many, so that threads that walk with equal strides meet different banks.
_BANKS = 32


class ItemTypes:
    """What an item is made of. ``moved`` says which of the comparator's operands they are, in order; the comparator
    does not look at others, and at what is moved beyond its operands."""

    def __init__(self, comparator: Computation, dtypes: Sequence[DType], moved: Sequence[int]) -> None:
        self.comparator, self.dtypes, self.moved = comparator, tuple(dtypes), tuple(moved)

    @property
    def nbytes(self) -> int:
        return sum(d.nbytes for d in self.dtypes)

    def load(self, b: ir.IRBuilder, places: Sequence[ir.Value], at: ir.Value) -> Item:
        return [load(b, p, at, d) for p, d in zip(places, self.dtypes, strict=True)]

    def store(self, b: ir.IRBuilder, item: Item, places: Sequence[ir.Value], at: ir.Value) -> None:
        for parts, place, dtype in zip(item, places, self.dtypes, strict=True):
            store(b, parts, place, at, dtype)

    def before(self, e: GpuEmitter, x: Item, y: Item) -> ir.Value:
        """Whether the comparator puts ``x`` before ``y``."""
        b = e.entry.builder
        values = {m: [self._value(e, b, i[n], n) for i in (x, y)] for n, m in enumerate(self.moved)}
        arguments: list[Val] = []
        for n in range(0, len(self.comparator.parameters), 2):
            unread = e.constant(0, self.comparator.parameters[n].shape.dtype)
            arguments += values.get(n // 2, [unread, unread])
        return e.call(self.comparator, arguments)[0].value

    def _value(self, e: GpuEmitter, b: ir.IRBuilder, parts: tuple[ir.Value, ...], n: int) -> Val:
        return Val(parts if len(parts) == 2 else (decode(b, parts[0], self.dtypes[n]),), e.entry)


def load(b: ir.IRBuilder, place: ir.Value, at: ir.Value, dtype: DType) -> tuple[ir.Value, ...]:
    """An element as memory holds it."""
    t, parts = memory_type(dtype), part_count(dtype)
    align = dtype.nbytes // parts
    return tuple(b.load(p, typ=t, align=align) for p in _places(b, place, at, t, parts))


def store(b: ir.IRBuilder, value: tuple[ir.Value, ...], place: ir.Value, at: ir.Value, dtype: DType) -> None:
    """Write the parts of an element to place ``at`` of shared memory."""
    parts = len(value)
    for v, p in zip(value, _places(b, place, at, memory_type(dtype), parts), strict=True):
        b.store(v, p, align=dtype.nbytes // parts)


def _places(b: ir.IRBuilder, place: ir.Value, at: ir.Value, t: ir.Type, parts: int) -> list[ir.Value]:
    if parts == 1:
        return [b.gep(place, [at], source_etype=t)]
    first = b.shl(at, constant(at.type, 1))
    return [b.gep(place, [b.add(first, constant(at.type, n))], source_etype=t) for n in range(parts)]


def choose(b: ir.IRBuilder, condition: ir.Value, x: Item, y: Item) -> Item:
    """``x`` where the condition holds, else ``y``."""
    return [tuple(b.select(condition, p, q) for p, q in zip(u, v, strict=True)) for u, v in zip(x, y, strict=True)]


def smaller(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """The smaller of two signed integers."""
    return intrinsic(b, "llvm.smin", x.type, [x, y])


def merge_path(
    b: ir.IRBuilder,
    left: ir.Value,
    right: ir.Value,
    diagonal: ir.Value,
    right_first: Callable[[ir.Value, ir.Value], ir.Value],
) -> ir.Value:
    """How many of the first ``diagonal`` items of two merged runs are of the left one; it wins ties.

    ``left`` and ``right`` are the runs' lengths (i32). ``right_first(i, j)`` says whether item j of the right run is to
    be before item i of the left.
    """
    zero, one = constant(I32, 0), constant(I32, 1)
    least = intrinsic(b, "llvm.smax", I32, [b.sub(diagonal, right), zero])
    before = b.block
    head, body, after = (b.append_basic_block(name) for name in ("bisect", "look", "found"))
    most = smaller(b, diagonal, left)
    b.branch(head)
    b.position_at_end(head)
    low, high = b.phi(I32), b.phi(I32)
    low.add_incoming(least, before)
    high.add_incoming(most, before)
    b.cbranch(b.icmp_signed("<", low, high), body, after)
    b.position_at_end(body)
    middle = b.lshr(b.add(low, high), one)
    stop = right_first(middle, b.sub(b.sub(diagonal, one), middle))
    low.add_incoming(b.select(stop, low, b.add(middle, one)), b.block)
    high.add_incoming(b.select(stop, middle, high), b.block)
    b.branch(head)
    b.position_at_end(after)
    return low


def shared_bytes(dtypes: Sequence[DType], places: int) -> int:
    """Shared memory for that many places."""
    return sum(_array_bytes(d, places) for d in dtypes)


def _array_bytes(dtype: DType, places: int) -> int:
    return -(-(places + places // _BANKS) * dtype.nbytes // 16) * 16


class _RegisterItems:
    """A thread's items in registers, while a loop changes them."""

    def __init__(self, e: GpuEmitter, items: Sequence[Item]) -> None:
        self.b: ir.IRBuilder = e.entry.builder
        self._slots = [[tuple(e.slot(p.type) for p in parts) for parts in item] for item in items]
        self.put(items)

    def put(self, items: Sequence[Item]) -> None:
        for slots, item in zip(self._slots, items, strict=True):
            for places, parts in zip(slots, item, strict=True):
                for place, part in zip(places, parts, strict=True):
                    self.b.store(part, place)

    def get(self) -> list[Item]:
        return [[tuple(self.b.load(p) for p in places) for places in slots] for slots in self._slots]


class SortTile:
    """Places for ``threads * items`` items in shared memory, from byte ``begin`` on."""

    def __init__(self, e: GpuEmitter, types: ItemTypes, threads: int, items: int, begin: int = 0) -> None:
        self.e, self.types, self.items = e, types, items
        self.b: ir.IRBuilder = e.entry.builder
        self.size = threads * items
        self._arrays = []
        for d in types.dtypes:
            self._arrays.append(e.code.shared(self.b, begin))
            begin += _array_bytes(d, self.size)

    def read(self, slot: ir.Value) -> Item:
        return self.types.load(self.b, self._arrays, self._at(slot))

    def write(self, slot: ir.Value, item: Item) -> None:
        self.types.store(self.b, item, self._arrays, self._at(slot))

    def _at(self, slot: ir.Value) -> ir.Value:
        return self.b.add(slot, self.b.lshr(slot, constant(I32, _BANKS.bit_length() - 1)))

    def sort_own(self, first: ir.Value, count: ir.Value) -> None:
        """Sort the thread's items, ``count`` of which (i32) are there, at places ``first`` and after. Neighbours change
        places in turns (odd-even transposition), so that equal ones stay in order."""
        b, e = self.b, self.e
        held = _RegisterItems(e, [self.read(b.add(first, constant(I32, k))) for k in range(self.items)])
        with for_range(b, 0, self.items // 2):
            own = held.get()
            for k in [*range(0, self.items - 1, 2), *range(1, self.items - 1, 2)]:
                there = b.icmp_signed("<", constant(I32, k + 1), count)
                swap = b.and_(there, self.types.before(e, own[k + 1], own[k]))
                own[k], own[k + 1] = choose(b, swap, own[k + 1], own[k]), choose(b, swap, own[k], own[k + 1])
            held.put(own)
        self._write_own(first, held.get())

    def merge(self, begin: ir.Value, middle: ir.Value, end: ir.Value, diagonal: ir.Value, first: ir.Value) -> None:
        """Merge the sorted runs at places [begin, middle) and [middle, end); this thread's part is what comes from
        ``diagonal`` on (at most the runs' length), and goes to places ``first`` and after. All threads of the block
        come here, behind a barrier; the items are there after the next."""
        b, one = self.b, constant(I32, 1)

        def right_first(i: ir.Value, j: ir.Value) -> ir.Value:
            return self.types.before(self.e, self.read(b.add(middle, j)), self.read(b.add(begin, i)))

        taken = merge_path(b, b.sub(middle, begin), b.sub(end, middle), diagonal, right_first)
        i, j = b.add(begin, taken), b.add(middle, b.sub(diagonal, taken))
        last = constant(I32, self.size - 1)
        x, y = self.read(smaller(b, i, last)), self.read(smaller(b, j, last))
        merged: list[Item] = []
        for k in range(self.items):
            no_left = b.icmp_signed(">=", i, middle)
            right = b.and_(b.icmp_signed("<", j, end), b.or_(no_left, self.types.before(self.e, y, x)))
            merged.append(choose(b, right, y, x))
            if k == self.items - 1:
                break
            i, j = b.select(right, i, b.add(i, one)), b.select(right, b.add(j, one), j)
            following = self.read(smaller(b, b.select(right, j, i), last))
            x, y = choose(b, right, x, following), choose(b, right, following, y)
        self.e.code.barrier(b)
        self._write_own(first, merged)

    def _write_own(self, first: ir.Value, items: Sequence[Item]) -> None:
        for k, item in enumerate(items):
            self.write(self.b.add(first, constant(I32, k)), item)
