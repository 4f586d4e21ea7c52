"""Sorts by keys: a radix sort by bytes, or a merge where the row is a few sorted runs; stable.

What is moved is an *item* per element: its key as an unsigned integer and, where more than the key comes out, its place
behind it (``key << 32 | place``), or in an array of its own beside keys of 64 bits. Several keys are sorted one after
the other, the last one first. The operands are gathered by place in the end.

Of one operand only the keys are sorted, and elements are made of keys again. Zeros of both signs have one key, and so
have NaNs: where there are such, they are put into their places as they come in the operand. Where the result takes the
memory of the operand, such elements first get a copy of the operand to come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.parallel import ChunkSpan, PhaseKernel, chunks, in_pieces, phase
from shardc.compiler.cpu.reductions.equal_keys import exact, is_shared, put_equals
from shardc.compiler.cpu.reductions.lanes import over_lanes
from shardc.compiler.cpu.reductions.merging import emit_merges
from shardc.compiler.cpu.reductions.quicksort import Finish
from shardc.compiler.cpu.reductions.radix import COUNTERS, Items, emit_radix_passes
from shardc.compiler.cpu.reductions.vector_sorting import emit_vector_sort
from shardc.compiler.cpu.scratch import allocate, allocate_parts, release
from shardc.compiler.elements import memory
from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.key_bits import at_key, key_of, value_of
from shardc.compiler.elements.sorting import Rows
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sort_keys import SortKey
from shardc.native.llvm.target import Target
from shardc.native.math.lane_order import can_order
from shardc.native.math.vector import I1, I64, PTR, constant, splat, vector_constant, with_lanes

__all__ = ["emit_key_sort", "takes_keys", "takes_vectors"]

#: A pass by bytes looks at 256 counters, however few the elements are.
_SHORTEST, _LONGEST = 97, 1 << 32
#: Rows from which on a quicksort in vector lanes is as fast as a network on many rows side by side, as measured.
_SHORTEST_IN_LANES = 64
#: Rows from which on each is sorted by one thread; elements that are worth a chunk of their own.
_MANY_ROWS, _CHUNK = 16, 1 << 15
#: Simple operations that the sort of an element takes by the byte of its key, roughly.
_PASS_COST = 16
_PLACE_BITS = 32


def takes_keys(rows: Rows) -> bool:
    """Whether rows have a length for which a sort by keys is worth it."""
    return _SHORTEST <= rows.length < _LONGEST


def takes_vectors(target: Target, keys: Sequence[SortKey], rows: Rows, alone: bool) -> bool:
    """Whether rows lie in one piece, and a quicksort by one key sorts them as fast as anything else."""
    fits = len(keys) == 1 and can_order(target) and (alone or 8 * keys[0].dtype.nbytes <= _PLACE_BITS)
    return fits and rows.stride == 1 and _SHORTEST_IN_LANES <= rows.length < _LONGEST


def _items(key: SortKey, alone: bool, signed: bool) -> Items:
    bits = 8 * key.dtype.nbytes
    if alone:
        return Items(max(bits, 32), 0, bits, beside=False, signed=signed)
    if bits == 64:
        return Items(64, 0, bits, beside=True)
    return Items(64, _PLACE_BITS, bits, beside=False, signed=signed)


def emit_key_sort(kernel: CpuKernel, keys: Sequence[SortKey], rows: Rows, first: int | None = None) -> None:
    """Sort rows along one dimension: many of them on a thread each, a few by all threads together.

    ``first``: only so many of each row come out, with their places; rows lie one after the other.
    """
    total = rows.outer * rows.stride
    flops = _PASS_COST * sum(k.dtype.nbytes for k in keys) * rows.length
    if total >= _MANY_ROWS:
        in_pieces(kernel, total, flops * total, lambda k, span: _KeySort(k, keys, rows, 1, first).emit(span))
        return
    most = max(1, min(64, rows.length // _CHUNK))
    _KeySort(kernel, keys, rows, chunks(flops=flops, most=most, tuning=kernel.tuning), first).emit(None)


class _KeySort:
    """The function that sorts some rows, each in ``pieces``."""

    def __init__(self, kernel: CpuKernel, keys: Sequence[SortKey], rows: Rows, pieces: int, first: int | None) -> None:
        self.kernel, self.keys, self.rows, self.pieces, self.first = kernel, tuple(keys), rows, pieces, first
        self.dtypes = [o.shape.dtype for o in kernel.instruction.operands]
        self.alone = len(self.dtypes) == 1 and len(self.keys) == 1 and first is None
        # Places make items different, and rise, when the last key is sorted by.
        by_parts = can_order(kernel.target)
        self.items = [_items(k, self.alone, by_parts and k is self.keys[-1]) for k in self.keys]
        #: Whether keys' items are as wide as elements, which lie side by side. They are then made and sorted in the
        #: result.
        self.in_result = self.alone and rows.stride == 1 and self.items[0].bits == self.items[0].key_bits
        self.finish = self._finish() if self.in_result and by_parts else None
        #: Whether the result may take the memory of an operand whose equal elements differ (`in_place_pairs`).
        self.overwrites = self.alone and not self.keys[0].is_exact and rows.outer * rows.stride == 1

    def _finish(self) -> Finish:
        """Elements made of sorted items at once."""
        key, items = self.keys[0], self.items[0]
        name = f".{key.dtype.name}{'.descending' * key.descending}"
        return Finish(name, lambda b, item: value_of(b, items.turned(b, item), key))

    def emit(self, span: ChunkSpan | None) -> None:
        kernel, rows = self.kernel, self.rows
        self.e = e = kernel.emitter({})
        b = e.entry.builder
        self.numbers = e.slot(ir.ArrayType(I64, 4))
        self.numbers.type = PTR
        wide = max(w.bits for w in self.items) // 8
        beside = any(w.beside for w in self.items)
        places = rows.length * 4 if beside else 64
        sizes = [rows.length * wide] * (1 if self.in_result else 2) + [places] * 2
        *taken, counters = allocate_parts(e, [*sizes, self.pieces * COUNTERS * 8])
        self.current = [e.slot(PTR) for _ in range(4)]
        self.given = e.slot(PTR)
        b.store(kernel.operands[0], self.given)
        total = rows.outer * rows.stride
        first, past = (0, total) if span is None else span.steps(b, total)
        with for_range(b, first, past) as row:
            stride = constant(I64, rows.stride)
            base = rows.base(b, b.udiv(row, stride), b.urem(row, stride))
            first_items = [b.gep(kernel.results[0], [base], source_etype=self.items[0].kind)] if self.in_result else []
            for slot, place in zip(self.current, [*first_items, *taken], strict=True):
                b.store(place, slot)
            self._number(b, 0, base)
            for n in reversed(range(len(self.keys))):
                merged = self._sort_by(n, counters)
            if self.alone:
                self._write_values(merged)
            elif self.first is None:
                self._gather()
            else:
                self._number(b, 2, b.mul(row, constant(I64, self.first)))
                self._write_first(self.first)
        if self.overwrites:
            given = b.load(self.given, typ=PTR)
            with b.if_then(b.icmp_unsigned("!=", given, kernel.operands[0]), likely=False):
                release(e, [given])
        release(e, taken[:1])
        e.finish()

    # -- what phases are given -----------------------------------------------------------------------------------------

    def _number(self, b: ir.IRBuilder, n: int, value: ir.Value) -> None:
        b.store(value, b.gep(self.numbers, [constant(I64, n)], source_etype=I64))

    def _places(self) -> list[ir.Value]:
        b = self.e.entry.builder
        return [b.load(slot, typ=PTR) for slot in self.current]

    def _over_elements(
        self,
        fill: Callable[[CpuEmitter, PhaseKernel, ir.Value, int], None],
        lanes: int = 1,
        count: int | None = None,
    ) -> None:
        """``fill`` elements side by side, given the number of the first in the row and how many they are, in a phase;
        base and places are shared."""
        length = self.rows.length if count is None else count

        def some(part: PhaseKernel) -> None:
            e = part.emitter({})
            b = e.entry.builder
            low, high = ChunkSpan(self.pieces, part.begin, part.end).steps(b, length)
            over_lanes(b, low, high, lanes, lambda k, together: fill(e, part, k, together))
            e.finish()

        phase(self.kernel, self.e, self.pieces, some, [self.numbers, *self._places()])

    def _lanes(self, items: Items) -> int:
        """How many elements that lie side by side are taken at once."""
        return max(1, self.kernel.target.vector_bits // items.bits) if self.rows.stride == 1 else 1

    # -- the steps -----------------------------------------------------------------------------------------------------

    def _sort_by(self, n: int, counters: ir.Value) -> ir.Value:
        """Put items of key ``n`` where items are, and sort them; elements are in the order of the keys behind it.

        Whether they were merged: then none is finished.
        """
        key, items, rows = self.keys[n], self.items[n], self.rows
        last = n == len(self.keys) - 1
        before = self.items[n + 1] if not last else items
        b = self.e.entry.builder
        self._number(b, 1, constant(I64, 0))

        def fill(e: CpuEmitter, part: PhaseKernel, k: ir.Value, lanes: int) -> None:
            b = e.entry.builder
            numbers, source, _, places, _ = part.shared
            base = b.load(numbers, typ=I64)
            place = k if last else _place(b, before, source, places, k)
            value = at_key(b, part.operands[key.operand], rows.at(b, base, place), key.dtype, lanes)
            bits, changed = key_of(b, value, key)
            if self.overwrites and self.in_result:
                bits = b.select(_same(b, part), key_of(b, value, exact(key))[0], bits)
            if self.alone and not key.is_exact:
                with b.if_then(_any(b, changed), likely=False):
                    b.store(constant(I64, 1), b.gep(numbers, [constant(I64, 1)], source_etype=I64))
            bits = items.widened(b, bits)
            if lanes > 1:
                place = b.add(splat(b, place, lanes), vector_constant(range(lanes), I64))
            if items.shift:
                bits = b.or_(b.shl(bits, constant(bits.type, items.shift)), place)
            # Each item is written where the one that it is made of was read.
            items.store(b, bits, source, k)
            if items.beside and (last or not before.beside):
                narrow = ir.IntType(_PLACE_BITS)
                at = b.gep(places, [k], source_etype=narrow)
                b.store(b.trunc(place, with_lanes(narrow, lanes)), at, align=4)

        self._over_elements(fill, self._lanes(items) if last else 1)
        if self.overwrites:
            self._keep_equals(key, items)
        done = emit_merges(self.kernel, self.e, items, rows.length, self.pieces, self.current)
        with b.if_then(b.not_(done)):
            if items.signed:
                emit_vector_sort(self.kernel, self.e, items.bits, rows.length, self.pieces, self.current, self.finish)
            else:
                emit_radix_passes(self.kernel, self.e, items, rows.length, self.pieces, self.current, counters)
        return done

    def _keep_equals(self, key: SortKey, items: Items) -> None:
        """Copy an operand whose memory the result takes, if equal elements differ; then only their keys are sorted."""

        def some(part: PhaseKernel) -> None:
            e = part.emitter({})
            b = e.entry.builder
            copy, source = part.shared
            low, high = ChunkSpan(self.pieces, part.begin, part.end).steps(b, self.rows.length)

            def take(k: ir.Value, lanes: int) -> None:
                if self.in_result:
                    value = value_of(b, items.load(b, source, k, lanes), exact(key))
                    items.store(b, key_of(b, value, key)[0], source, k)
                else:
                    value = at_key(b, part.operands[0], k, key.dtype, lanes)
                b.store(value, b.gep(copy, [k], source_etype=ir.IntType(8 * key.dtype.nbytes)), align=key.dtype.nbytes)

            over_lanes(b, low, high, self._lanes(items), take)
            e.finish()

        b = self.e.entry.builder
        changed = b.load(b.gep(self.numbers, [constant(I64, 1)], source_etype=I64), typ=I64)
        with b.if_then(b.and_(b.icmp_unsigned("!=", changed, constant(I64, 0)), _same(b, self.kernel)), likely=False):
            b.store(allocate(self.e, self.rows.length * key.dtype.nbytes), self.given)
            shared = [b.load(slot, typ=PTR) for slot in (self.given, self.current[0])]
            phase(self.kernel, self.e, self.pieces, some, shared)

    def _write_values(self, merged: ir.Value) -> None:
        key, items, rows = self.keys[0], self.items[0], self.rows

        def fill(e: CpuEmitter, part: PhaseKernel, k: ir.Value, lanes: int) -> None:
            b = e.entry.builder
            numbers, source, *_ = part.shared
            value = value_of(b, items.load(b, source, k, lanes), key)
            to = rows.at(b, b.load(numbers, typ=I64), k)
            narrow = ir.IntType(items.key_bits)
            b.store(value, b.gep(part.results[0], [to], source_etype=narrow), align=key.dtype.nbytes)

        b = self.e.entry.builder
        if self.finish is None:
            self._over_elements(fill, self._lanes(items))
        else:
            with b.if_then(merged):
                self._over_elements(fill, self._lanes(items))
        if not key.is_exact:
            changed = b.load(b.gep(self.numbers, [constant(I64, 1)], source_etype=I64), typ=I64)
            with b.if_then(b.icmp_unsigned("!=", changed, constant(I64, 0)), likely=False):
                put_equals(
                    self.e,
                    b.load(self.given, typ=PTR),
                    self.kernel.results[0],
                    key,
                    rows,
                    b.load(self.numbers, typ=I64),
                )

    def _gather(self) -> None:
        """All operands by place; keys and places themselves are known, and are not read from afar."""
        items, key, rows, operands = self.items[0], self.keys[0], self.rows, self.kernel.instruction.operands

        def fill(e: CpuEmitter, part: PhaseKernel, k: ir.Value, _lanes: int) -> None:
            b = e.entry.builder
            numbers, source, _, places, _ = part.shared
            base = b.load(numbers, typ=I64)
            place = _place(b, items, source, places, k)
            at, to = rows.at(b, base, place), rows.at(b, base, k)

            def read(n: int) -> None:
                dtype = self.dtypes[n]
                memory.store(b, memory.load(b, part.operands[n], at, dtype, 1), part.results[n], to, dtype, None)

            for n, operand in enumerate(operands):
                kind = ir.IntType(8 * self.dtypes[n].nbytes)
                result = b.gep(part.results[n], [to], source_etype=kind)
                if n == key.operand:
                    bits = items.key(b, items.load(b, source, k))
                    bits = bits if bits.type == kind else b.trunc(bits, kind)
                    b.store(value_of(b, bits, key), result, align=key.dtype.nbytes)
                    with b.if_then(is_shared(b, bits, key), likely=False):
                        read(n)
                elif self._counts_places(operand):
                    b.store(place if kind == I64 else b.trunc(place, kind), result, align=kind.width // 8)
                else:
                    read(n)

        self._over_elements(fill)

    def _counts_places(self, operand: Instruction) -> bool:
        """Whether each element of the operand is its own place in the row."""
        dtype = operand.shape.dtype
        wide = dtype.kind in ("signed", "unsigned") and 8 * dtype.nbytes >= _PLACE_BITS
        along = self.kernel.instruction.attrs["dimensions"][0]
        return wide and operand.opcode == "iota" and operand.attrs["iota_dimension"] == along

    def _write_first(self, count: int) -> None:
        """The first elements, and their places."""
        items, dtype = self.items[0], self.dtypes[0]

        def fill(e: CpuEmitter, part: PhaseKernel, k: ir.Value, _lanes: int) -> None:
            b = e.entry.builder
            numbers, source, _, places, _ = part.shared
            values, positions = part.results
            place = _place(b, items, source, places, k)
            at = b.add(b.load(numbers, typ=I64), place)
            to = b.add(b.load(b.gep(numbers, [constant(I64, 2)], source_etype=I64), typ=I64), k)
            memory.store(b, memory.load(b, part.operands[0], at, dtype, 1), values, to, dtype, None)
            narrow = ir.IntType(_PLACE_BITS)
            b.store(b.trunc(place, narrow), b.gep(positions, [to], source_etype=narrow), align=4)

        self._over_elements(fill, count=count)


def _place(b: ir.IRBuilder, items: Items, source: ir.Value, places: ir.Value, k: ir.Value) -> ir.Value:
    """The place of item ``k``, as an i64."""
    narrow = ir.IntType(_PLACE_BITS)
    if items.beside:
        return b.zext(b.load(b.gep(places, [k], source_etype=narrow), typ=narrow, align=4), I64)
    return b.and_(items.load(b, source, k), constant(I64, (1 << _PLACE_BITS) - 1))


def _same(b: ir.IRBuilder, kernel: CpuKernel) -> ir.Value:
    """Whether the only result has the memory of the only operand."""
    return b.icmp_unsigned("==", kernel.operands[0], kernel.results[0])


def _any(b: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Whether any lane of ``mask`` is true."""
    if mask.type == I1:
        return mask
    bits = b.bitcast(mask, ir.IntType(mask.type.count))
    return b.icmp_unsigned("!=", bits, constant(bits.type, 0))
