"""A quicksort of integers in vector lanes, as functions that kernels call; not stable.

A part goes to the other one of two arrays around a *pivot*: a vector's lanes that are not greater to its front, the
others to its back, in one permutation (`false_first`). Both ends are written whole, over what comes later. Parts that
fit into sixteen registers are sorted there by a network. The pivot is a median of medians of 27 elements. Where such
pivots have failed to shorten a part often enough, the pivot is the middle between the least and the greatest: then each
bit of the elements costs one pass at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.cpu.loops.tiles import transpose_square
from shardc.compiler.cpu.reductions.networks import batcher_pairs, bitonic_pairs
from shardc.compiler.elements.control_flow import for_range
from shardc.native.math.lane_order import ORDERED_BITS, false_first
from shardc.native.math.vector import (
    I1,
    I32,
    I64,
    PTR,
    constant,
    intrinsic,
    shuffle,
    splat,
    vector_constant,
    with_lanes,
)

__all__ = ["Finish", "Quicksort"]

#: Vectors that are sorted in registers, at most; vectors that a step of a partition takes.
_ROWS, _UNROLLED = 16, 4
#: Vectors that a pivot is made of.
_SAMPLED = 9
_VOID = ir.VoidType()


@dataclass(frozen=True)
class Finish:
    """What is made of sorted integers, one or a vector of them, as many bits; the name tells it from others."""

    name: str
    make: Callable[[ir.IRBuilder, ir.Value], ir.Value]


class Quicksort:
    """The functions for signed integers of 32 or 64 bits in a module; what comes out sorted is `Finish`ed."""

    def __init__(self, module: ir.Module, bits: int, finish: Finish | None = None) -> None:
        self.finish = finish or Finish("", lambda _, x: x)
        self.module, self.kind, self.lanes = module, ir.IntType(bits), ORDERED_BITS // bits
        self.vector = with_lanes(self.kind, self.lanes)
        self.least, self.most = (constant(self.kind, n) for n in (-(1 << (bits - 1)), (1 << (bits - 1)) - 1))
        #: Elements that are sorted in registers.
        self.longest = _ROWS * self.lanes

    # -- what kernels call ---------------------------------------------------------------------------------------------

    def sort(
        self,
        b: ir.IRBuilder,
        here: ir.Value,
        there: ir.Value,
        count: ir.Value,
        *,
        to_there: bool = False,
        medians: int | None = None,
    ) -> None:
        """Sort ``count`` elements of ``here``; they come out ``there`` or stay. Both arrays are written.

        ``medians``: how many times in a row parts are split by medians, twice the digits of ``count`` if not given.
        """
        digits = b.sub(constant(I64, 64), intrinsic(b, "llvm.ctlz", I64, [count, constant(I1, 0)]))
        often = b.shl(digits, constant(I64, 1)) if medians is None else constant(I64, medians)
        b.call(self._sort(), [here, there, count, constant(I1, to_there), often])

    def split(self, b: ir.IRBuilder, here: ir.Value, there: ir.Value, count: ir.Value) -> ir.Value:
        """Move elements ``there``, so that none is greater than those behind the first so many (the answer)."""
        return b.call(self._split(), [here, there, count])

    # -- functions -----------------------------------------------------------------------------------------------------

    def _function(
        self, name: str, result: ir.Type, arguments: list[ir.Type], fill: Callable[[ir.IRBuilder, ir.Function], None]
    ) -> ir.Function:
        """The module's function of that name; ``fill`` makes its body when it is asked for first."""
        full = f"shardc.quicksort{self.kind.width}.{name}"
        found = self.module.globals.get(full)
        if found is None:
            found = ir.Function(self.module, ir.FunctionType(result, arguments), full)
            found.linkage = "internal"
            for attribute in ("nounwind", "noinline"):
                found.attributes.add(attribute)
            fill(ir.IRBuilder(found.append_basic_block("entry")), found)
        return found

    def _at(self, b: ir.IRBuilder, base: ir.Value, k: ir.Value | int) -> ir.Value:
        return b.gep(base, [constant(I64, k) if isinstance(k, int) else k], source_etype=self.kind)

    def _load(self, b: ir.IRBuilder, base: ir.Value, k: ir.Value | int, kind: ir.Type) -> ir.Value:
        return b.load(self._at(b, base, k), typ=kind, align=self.kind.width // 8)

    def _store(self, b: ir.IRBuilder, value: ir.Value, base: ir.Value, k: ir.Value | int) -> None:
        b.store(value, self._at(b, base, k), align=self.kind.width // 8)

    def _split(self) -> ir.Function:
        """``split(here, there, count)``; a few elements are all on the left."""

        def fill(b: ir.IRBuilder, function: ir.Function) -> None:
            here, there, count = function.args
            pivot = b.alloca(self.kind)
            b.store(self.most, pivot)
            with b.if_then(b.icmp_signed(">", count, constant(I64, self.longest))):
                b.store(b.call(self._pivot(), [here, count]), pivot)
            b.ret(b.call(self._partition(), [here, there, count, b.load(pivot)]))

        return self._function("split", I64, [PTR, PTR, I64], fill)

    def _sort(self) -> ir.Function:
        """``sort(here, there, count, to there, medians)``."""

        def fill(b: ir.IRBuilder, function: ir.Function) -> None:
            here, there, count, swap, medians = function.args
            one, pivot = constant(I64, 1), b.alloca(self.kind)
            target = b.select(swap, there, here)
            rows = self.lanes
            while rows <= _ROWS:
                with b.if_then(b.icmp_signed("<=", count, constant(I64, rows * self.lanes))):
                    b.call(self._leaf(rows), [here, target, count])
                    b.ret_void()
                rows *= 2
            tired = b.icmp_signed("<=", medians, constant(I64, 0))
            with b.if_else(tired, likely=False) as (long, usual):
                with long:
                    b.store(b.call(self._middle(), [here, count]), pivot)
                with usual:
                    b.store(b.call(self._pivot(), [here, count]), pivot)
            wanted = b.load(pivot)
            left = b.call(self._partition(), [here, there, count, wanted])
            back = b.not_(swap)
            with b.if_then(b.icmp_signed("==", left, count), likely=False):
                # The pivot is the greatest: what equals it is in its place.
                with b.if_then(b.icmp_signed("!=", wanted, self.least)):
                    below = b.sub(wanted, constant(self.kind, 1))
                    less = b.call(self._partition(), [here, there, count, below])
                    b.call(function, [there, here, less, back, b.sub(medians, one)])
                    b.call(self._fill(), [target, less, count, wanted])
                    b.ret_void()
                b.call(self._fill(), [target, constant(I64, 0), count, wanted])
                b.ret_void()
            b.call(function, [there, here, left, back, b.sub(medians, one)])
            beside, behind = self._at(b, there, left), self._at(b, here, left)
            b.call(function, [beside, behind, b.sub(count, left), back, b.sub(medians, one)])
            b.ret_void()

        return self._function("sort" + self.finish.name, _VOID, [PTR, PTR, I64, I1, I64], fill)

    def _partition(self) -> ir.Function:
        """``partition(here, there, count, pivot)``: how many are not greater than the pivot; they come first."""

        def fill(b: ir.IRBuilder, function: ir.Function) -> None:
            here, there, count, pivot = function.args
            left = b.alloca(I64)
            b.store(constant(I64, 0), left)
            limits = splat(b, pivot, self.lanes)

            def take(k: ir.Value, vectors: int) -> None:
                """Between both ends of what is written there is as much room as elements from ``k`` on."""
                places = [b.add(k, constant(I64, n * self.lanes)) for n in range(vectors)]
                loaded = [self._load(b, here, at, self.vector) for at in places]
                ordered = [false_first(b, x, b.icmp_signed(">", x, limits)) for x in loaded]
                for at, (moved, greater) in zip(places, ordered, strict=True):
                    to = b.load(left)
                    self._store(b, moved, there, to)
                    self._store(b, moved, there, b.add(to, b.sub(b.sub(count, at), constant(I64, self.lanes))))
                    b.store(b.add(to, b.sub(constant(I64, self.lanes), greater)), left)

            # One by one at first: where the ends meet, what is left is one vector, and both write the same.
            head, step = b.and_(count, constant(I64, self.lanes - 1)), _UNROLLED * self.lanes
            with for_range(b, 0, head) as k:
                x, to = self._load(b, here, k, self.kind), b.load(left)
                self._store(b, x, there, to)
                self._store(b, x, there, b.add(to, b.sub(b.sub(count, k), constant(I64, 1))))
                b.store(b.add(to, b.zext(b.icmp_signed("<=", x, pivot), I64)), left)
            many = b.add(head, b.and_(b.sub(count, head), constant(I64, -step)))
            with for_range(b, head, many, step) as k:
                take(k, _UNROLLED)
            with for_range(b, many, count, self.lanes) as k:
                take(k, 1)
            b.ret(b.load(left))

        return self._function("partition", I64, [PTR, PTR, I64, self.kind], fill)

    def _pivot(self) -> ir.Function:
        """``pivot(here, count)``: an element, of more than `longest`."""

        def fill(b: ir.IRBuilder, function: ir.Function) -> None:
            here, count = function.args
            step = b.udiv(b.sub(count, constant(I64, self.lanes)), constant(I64, _SAMPLED - 1))
            some = [self._load(b, here, b.mul(step, constant(I64, n)), self.vector) for n in range(_SAMPLED)]
            while len(some) > 1:
                some = [self._median(b, *some[n : n + 3]) for n in range(0, len(some), 3)]
            turned = [shuffle(b, some[0], None, [(k + n) % self.lanes for k in range(self.lanes)]) for n in (1, 2)]
            b.ret(b.extract_element(self._median(b, some[0], *turned), constant(I32, 0)))

        return self._function("pivot", self.kind, [PTR, I64], fill)

    def _median(self, b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        low, high = self._ordered(b, x, y)
        return self._ordered(b, low, self._ordered(b, high, z)[0])[1]

    def _middle(self) -> ir.Function:
        """``middle(here, count)``: between the least and the greatest element; the greatest only if all are equal."""

        def fill(b: ir.IRBuilder, function: ir.Function) -> None:
            here, count = function.args
            ends = [(b.alloca(self.kind), "llvm.smin", self.most), (b.alloca(self.kind), "llvm.smax", self.least)]
            for slot, _, start in ends:
                b.store(start, slot)
            with for_range(b, 0, count) as k:
                x = self._load(b, here, k, self.kind)
                for slot, name, _ in ends:
                    b.store(intrinsic(b, name, self.kind, [b.load(slot), x]), slot)
            low, high = (b.load(slot) for slot, *_ in ends)
            b.ret(b.add(low, b.lshr(b.sub(high, low), constant(self.kind, 1))))

        return self._function("middle", self.kind, [PTR, I64], fill)

    def _fill(self) -> ir.Function:
        """``fill(array, first, past, value)``."""

        def fill(b: ir.IRBuilder, function: ir.Function) -> None:
            array, first, past, value = function.args
            with for_range(b, first, past) as k:
                self._store(b, self.finish.make(b, value), array, k)
            b.ret_void()

        return self._function("fill" + self.finish.name, _VOID, [PTR, I64, I64, self.kind], fill)

    # -- a network in registers ----------------------------------------------------------------------------------------

    def _ordered(self, b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
        low, high = (intrinsic(b, name, x.type, [x, y]) for name in ("llvm.smin", "llvm.smax"))
        return low, high

    def _leaf(self, rows: int) -> ir.Function:
        """``leaf(source, target, count)``: sort up to ``rows`` vectors; the target may be the source."""

        def fill(b: ir.IRBuilder, function: ir.Function) -> None:
            source, target, count = function.args
            block = b.alloca(ir.ArrayType(self.kind, rows * self.lanes))
            block.align, block.type = 32, PTR
            beyond, held = constant(self.vector, self.most.constant), []
            counts = splat(b, count if self.kind == I64 else b.trunc(count, self.kind), self.lanes)
            for row in range(rows):
                first = row * self.lanes
                there = b.icmp_signed("<", vector_constant(range(first, first + self.lanes), self.kind), counts)
                at = self._at(b, source, first)
                align = constant(I32, self.kind.width // 8)
                held.append(intrinsic(b, "llvm.masked.load", self.vector, [at, align, there, beyond]))
            for row, value in enumerate(self._network(b, held)):
                self._store(b, self.finish.make(b, value), block, row * self.lanes)
            last = b.sub(count, constant(I64, self.lanes))
            with b.if_else(b.icmp_signed(">=", last, constant(I64, 0))) as (long, short):
                with long:
                    with for_range(b, 0, last, self.lanes) as k:
                        self._store(b, self._load(b, block, k, self.vector), target, k)
                    self._store(b, self._load(b, block, last, self.vector), target, last)
                with short, for_range(b, 0, count) as k:
                    self._store(b, self._load(b, block, k, self.kind), target, k)
            b.ret_void()

        return self._function(f"leaf{rows}{self.finish.name}", _VOID, [PTR, PTR, I64], fill)

    def _network(self, b: ir.IRBuilder, held: list[ir.Value]) -> list[ir.Value]:
        """Sort the elements of vectors. Until the end they are in order by lane first: lanes are sorted one by one, and
        merged with neighbours."""
        rows = len(held)

        def exchange(pairs: list[tuple[int, int]]) -> None:
            for low, high in pairs:
                held[low], held[high] = self._ordered(b, held[low], held[high])

        exchange(list(batcher_pairs(rows)))
        group = 2
        while group <= self.lanes:
            mirror = [k ^ (group - 1) for k in range(self.lanes)]
            for row in range(rows // 2):
                low, high = self._ordered(b, held[row], shuffle(b, held[rows - 1 - row], None, mirror))
                held[row] = self._blend(b, low, high, group // 2)
                held[rows - 1 - row] = shuffle(b, self._blend(b, high, low, group // 2), None, mirror)
            apart = group // 4
            while apart:
                for row in range(rows):
                    beside = shuffle(b, held[row], None, [k ^ apart for k in range(self.lanes)])
                    held[row] = self._blend(b, *self._ordered(b, held[row], beside), apart)
                apart //= 2
            exchange(list(bitonic_pairs(rows)))
            group *= 2
        squares = [
            transpose_square(b, held[k : k + self.lanes], self.kind.width // 8) for k in range(0, rows, self.lanes)
        ]
        return [square[lane] for lane in range(self.lanes) for square in squares]

    def _blend(self, b: ir.IRBuilder, x: ir.Value, y: ir.Value, bit: int) -> ir.Value:
        """Lanes of ``y`` where the bit of their number is set."""
        return shuffle(b, x, y, [k + self.lanes if k & bit else k for k in range(self.lanes)])
