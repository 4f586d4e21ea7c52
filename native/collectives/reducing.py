"""Reductions of a group's members, element by element, by one fixed tree over their positions.

Neighbours are combined level by level, ``((0 1) (2 3)) ((4 5) 6)``; an odd last member moves up unchanged. Members are
read once: up to eight of them meet in registers (the subtrees over 8, 4, 3 or 2 neighbours), and what comes out is
combined in blocks that stay in the first-level cache, as a binary counter carries. Every element goes the same way
wherever it lies in a buffer, so a result does not depend on who computes which range.

The emitted function is ::

    void (ptr sources, i64 members, i64 from, ptr destinations, i64 copies, i64 to, i64 count, i1 streaming)

Elements ``0 .. count - 1`` behind byte ``from`` of every source go behind byte ``to`` of every destination; a
destination that is null or equal to the one before it is left out. A destination may be one of the sources, at the same
place. ``streaming`` writes other destinations past the caches; the caller must `fence`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.native.collectives.combining import Combining
from shardc.native.llvm.flow import at_byte, counted, define, least, number, row_of, wanted
from shardc.native.llvm.jit import TargetModule, new_module
from shardc.native.llvm.target import Target
from shardc.native.math.element import Element
from shardc.native.math.vector import F64, I1, I8, I64, PTR, constant, intrinsic
from shardc.native.memory.copying import LINE, emit_copy

__all__ = ["REDUCE", "reducing_module"]

REDUCE = "shardc_reduce"

#: Bytes of a block of partial results, and how many there may be: one per level of the tree.
_BLOCK, _LEVELS = 4096, 40
#: Members that meet in registers. The rest of a group is cut into these; all but the first are less than half of 8.
_SUBTREES = (8, 4, 3, 2, 1)


def reducing_module(reduction: str, element: Element, target: Target | None = None) -> TargetModule:
    """A module whose `REDUCE` combines members of ``element`` by ``reduction``."""
    name = f"reduce_{reduction}_{element.name}"
    module = new_module(name, target)
    _Reducer(module, Combining(reduction, element)).emit()
    return module


@dataclass(frozen=True, slots=True)
class _Reducer:
    module: ir.Module
    how: Combining

    @property
    def _wide_bytes(self) -> int:
        wide = self.how.wide
        bits = wide.width if isinstance(wide, ir.IntType) else 64 if wide == F64 else 32
        return int(self.how.parts * bits // 8)

    @property
    def _per_block(self) -> int:
        return _BLOCK // self._wide_bytes

    def emit(self) -> None:
        tree = self._tree()
        finish = self._finish()
        arguments = [PTR, I64, I64, PTR, I64, I64, I64, I1]
        function, b = define(self.module, REDUCE, arguments)
        sources, members, start, destinations, copies, to, count, streaming = function.args
        scratch = b.alloca(ir.ArrayType(I8, _BLOCK * _LEVELS))
        scratch.align = LINE
        with counted(b, number(0), count, self._per_block) as begin:
            n = least(b, b.sub(count, begin), number(self._per_block))
            skipped = b.mul(begin, number(self.how.element.nbytes))
            b.call(tree, [sources, members, b.add(start, skipped), scratch, n])
            places = [b.add(start, skipped), b.add(to, skipped)]
            b.call(finish, [scratch, sources, members, destinations, copies, *places, n, streaming])
        b.ret_void()

    def _each(self, b: ir.IRBuilder, count: ir.Value, body: Callable[[ir.Value, int], None]) -> None:
        """``body(element, lanes)`` for whole vectors of elements, then for single ones."""
        together = LINE // self._wide_bytes
        whole = b.and_(count, number(-together))
        with counted(b, number(0), whole, together) as at:
            body(at, together * self.how.parts)
        with counted(b, whole, count) as at:
            body(at, self.how.parts)

    def _wide_at(self, b: ir.IRBuilder, base: ir.Value, element: ir.Value) -> ir.Value:
        return at_byte(b, base, b.mul(element, number(self._wide_bytes)))

    def _stored_at(self, b: ir.IRBuilder, base: ir.Value, element: ir.Value) -> ir.Value:
        return at_byte(b, base, b.mul(element, number(self.how.element.nbytes)))

    def _subtree(self, members: int) -> ir.Function:
        """``void (ptr sources, i64 from, ptr out, i64 count)``: neighbours, combined in registers; ``out`` is wide."""
        function, b = define(self.module, f"subtree_{members}", [PTR, I64, PTR, I64], internal=True)
        sources, start, out, count = function.args
        bases = [at_byte(b, row_of(b, sources, number(k)), start) for k in range(members)]

        def body(at: ir.Value, lanes: int) -> None:
            values = [self.how.load(b, self._stored_at(b, base, at), lanes) for base in bases]
            b.store(self._combined(b, values), self._wide_at(b, out, at), align=1)

        self._each(b, count, body)
        b.ret_void()
        return function

    def _combined(self, b: ir.IRBuilder, level: Sequence[ir.Value]) -> ir.Value:
        while len(level) > 1:
            pairs = [self.how.combine(b, x, y) for x, y in zip(level[::2], level[1::2], strict=False)]
            level = [*pairs, *level[len(pairs) * 2 :]]
        return level[0]

    def _pair(self) -> ir.Function:
        """``void (ptr first, ptr second, i64 count)``: two blocks become the first."""
        function, b = define(self.module, "pair", [PTR, PTR, I64], internal=True)
        first, second, count = function.args

        def body(at: ir.Value, lanes: int) -> None:
            t = ir.VectorType(self.how.wide, lanes) if lanes > 1 else self.how.wide
            place = self._wide_at(b, first, at)
            x, y = b.load(place, typ=t, align=1), b.load(self._wide_at(b, second, at), typ=t, align=1)
            b.store(self.how.combine(b, x, y), place, align=1)

        self._each(b, count, body)
        b.ret_void()
        return function

    def _tree(self) -> ir.Function:
        """``void (ptr sources, i64 members, i64 from, ptr scratch, i64 count)``: the result is block 0.

        Blocks lie on a stack: that of each subtree on top. After the n-th eight, as many pairs are joined as n has
        zeros at its end; those are the complete subtrees. Behind the last member, what lies there is joined from the
        top down.
        """
        subtrees = {k: self._subtree(k) for k in _SUBTREES}
        pair = self._pair()
        function, b = define(self.module, "tree", [PTR, I64, I64, PTR, I64], internal=True)
        sources, members, start, scratch, count = function.args
        top, done = b.alloca(PTR), b.alloca(I64)
        b.store(scratch, top)
        b.store(number(0), done)

        def join() -> None:
            second = at_byte(b, b.load(top, typ=PTR), number(-_BLOCK))
            first = at_byte(b, second, number(-_BLOCK))
            b.call(pair, [first, second, count])
            b.store(second, top)

        def put(size: int) -> None:
            position, place = b.load(done, typ=I64), b.load(top, typ=PTR)
            of = b.gep(sources, [position], source_etype=PTR)
            b.call(subtrees[size], [of, start, place, count])
            b.store(at_byte(b, place, number(_BLOCK)), top)
            b.store(b.add(position, number(size)), done)

        largest = _SUBTREES[0]
        eights = b.sdiv(members, number(largest))
        with counted(b, number(0), eights) as n:
            put(largest)
            carries = intrinsic(b, "llvm.cttz", I64, [b.add(n, number(1)), constant(I1, 1)])
            with counted(b, number(0), carries):
                join()
        for size in _SUBTREES[1:]:
            left = b.sub(members, b.load(done, typ=I64))
            with b.if_then(b.icmp_signed(">=", left, number(size))):
                put(size)
        height = b.sub(b.ptrtoint(b.load(top, typ=PTR), I64), b.ptrtoint(scratch, I64))
        with counted(b, number(1), b.sdiv(height, number(_BLOCK))):
            join()
        b.ret_void()
        return function

    def _finish(self) -> ir.Function:
        """``void (ptr block, ptr sources, i64 members, ptr destinations, i64 copies, i64 from, i64 to, i64 count,
        i1 streaming)``: round a block and copy it to everybody who wants it."""
        arguments = [PTR, PTR, I64, PTR, I64, I64, I64, I64, I1]
        function, b = define(self.module, "finish", arguments, internal=True)
        block, sources, members, destinations, copies, start, to, count, streaming = function.args
        if self.how.narrows:

            def body(at: ir.Value, lanes: int) -> None:
                t = ir.VectorType(self.how.wide, lanes) if lanes > 1 else self.how.wide
                value = b.load(self._wide_at(b, block, at), typ=t, align=1)
                self.how.store(b, value, self._stored_at(b, block, at))

            self._each(b, count, body)
        nbytes = b.mul(count, number(self.how.element.nbytes))
        with wanted(b, destinations, copies) as (k, destination):
            place = at_byte(b, destination, to)
            has_source = b.icmp_signed("<", k, members)
            source = row_of(b, sources, b.select(has_source, k, number(0)))
            # What was just read is in the cache.
            elsewhere = b.icmp_unsigned("!=", place, at_byte(b, source, start))
            b.call(emit_copy(self.module), [place, block, nbytes, b.and_(streaming, elsewhere)])
        b.ret_void()
        return function
