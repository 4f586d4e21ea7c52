"""Accumulators of a thread, and combining those of neighbouring threads by a fixed tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from shardc.compiler.elements.arithmetic.registers import part_count, register_type
from shardc.compiler.elements.elements import Fold
from shardc.compiler.elements.frames import Frame, IfBlock, Val, deepest
from shardc.compiler.gpu.function import GpuEmitter
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.reducers import identity_of
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I8, I32, I64, constant, lanes_of, scalar_of, with_lanes

__all__ = [
    "Reducer",
    "SharedSpace",
    "Totals",
    "across_threads",
    "exchange_words",
    "load_words",
    "store_words",
    "word_bytes",
]


@dataclass(frozen=True, slots=True)
class Reducer:
    """How accumulators combine; ``wide``: narrow floats stay f32. ``ordered``: neighbours must stay neighbours."""

    computation: Computation
    dtypes: tuple[DType, ...]
    wide: bool = True
    ordered: bool = False

    @staticmethod
    def of(fold: Fold) -> Reducer:
        return Reducer(fold.reducer, fold.dtypes, fold.wide, fold.order != "any")

    @property
    def neutral(self) -> Any:
        """The neutral value of a reducer with one accumulator, None where there is none."""
        return identity_of(self.computation, self.dtypes[0]) if len(self.dtypes) == 1 else None

    @property
    def part_types(self) -> list[ir.Type]:
        """The types of all parts of the accumulators in shared or scratch memory."""
        return [word_type(register_type(d)) for d in self.dtypes for _ in range(part_count(d))]

    def combine(self, e: GpuEmitter, first: Sequence[Val], second: Sequence[Val]) -> list[Val]:
        return e.call(self.computation, [*first, *second], self.wide)

    def tree(self, e: GpuEmitter, values: Sequence[Sequence[Val]]) -> list[Val]:
        """All values in one, neighbour by neighbour."""
        rest = [list(v) for v in values]
        while len(rest) > 1:
            pairs = range(0, len(rest), 2)
            rest = [self.combine(e, rest[k], rest[k + 1]) if k + 1 < len(rest) else rest[k] for k in pairs]
        return rest[0]


class Totals:
    """A thread's accumulators of some reductions side by side, ``lanes`` wide, in slots that become registers."""

    def __init__(self, e: GpuEmitter, reducers: Sequence[Reducer], lanes: int) -> None:
        self.e, self.reducers, self.lanes = e, tuple(reducers), lanes
        self._slots = [
            [[e.slot(register_type(d, lanes)) for _ in range(part_count(d))] for d in r.dtypes] for r in reducers
        ]

    def start(self, frame: Frame) -> None:
        """Neutral values, where there are any: `add` is told which step is the first."""
        for reducer, slots in zip(self.reducers, self._slots, strict=True):
            if reducer.neutral is not None:
                self._write(frame, slots, [self.e.constant(reducer.neutral, reducer.dtypes[0])])

    def add(
        self,
        frame: Frame,
        values: Sequence[Sequence[Sequence[Val]]],
        first: bool | ir.Value = False,
        holds: ir.Value | None = None,
    ) -> None:
        """Combine with what some steps give (per step and reduction the accumulators' new values), where i1 ``holds``.

        The ``first`` values of reducers without a neutral value are taken as they are.
        """
        for n, (reducer, slots) in enumerate(zip(self.reducers, self._slots, strict=True)):
            new = reducer.tree(self.e, [step[n] for step in values])
            if first is True and reducer.neutral is None:
                assert holds is None, "every thread has a first step"
                self._write(frame, slots, new)
                continue
            old = self._read(frame, n)
            total = reducer.combine(self.e, old, new)
            if first is not False and reducer.neutral is None:
                total = [self._select(frame, first, x, y) for x, y in zip(new, total, strict=True)]
            if holds is not None:
                total = [self._select(frame, holds, x, y) for x, y in zip(total, old, strict=True)]
            self._write(frame, slots, total)

    def read(self, frame: Frame) -> list[list[Val]]:
        """Per reduction, the accumulators."""
        return [self._read(frame, n) for n in range(len(self.reducers))]

    def set(self, frame: Frame, values: Sequence[Sequence[Val]]) -> None:
        for slots, new in zip(self._slots, values, strict=True):
            self._write(frame, slots, new)

    def _select(self, frame: Frame, choice: ir.Value, yes: Val, no: Val) -> Val:
        pairs = zip(yes.wide(self.lanes), no.wide(self.lanes), strict=True)
        return Val(tuple(frame.builder.select(choice, x, y) for x, y in pairs), frame, self.lanes)

    def _read(self, frame: Frame, number: int) -> list[Val]:
        b = frame.builder
        kinds = [register_type(d, self.lanes) for d in self.reducers[number].dtypes]
        return [
            Val(tuple(b.load(slot, typ=t) for slot in slots), frame, self.lanes)
            for slots, t in zip(self._slots[number], kinds, strict=True)
        ]

    def _write(self, frame: Frame, slots: Sequence[Sequence[ir.Value]], values: Sequence[Val]) -> None:
        for places, value in zip(slots, values, strict=True):
            for place, part in zip(places, value.wide(self.lanes), strict=True):
                frame.builder.store(part, place)


class SharedSpace:
    """Gives out a block's shared memory; ``nbytes`` is how much has been."""

    def __init__(self) -> None:
        self.nbytes = 0

    def take(self, nbytes: int) -> int:
        """The offset of so many bytes, a multiple of 16."""
        offset = self.nbytes
        self.nbytes += -(-nbytes // 16) * 16
        return offset


def word_type(t: ir.Type) -> ir.Type:
    """How a register part lies in shared or scratch memory: as it is, or a byte."""
    scalar = scalar_of(t)
    narrow = isinstance(scalar, ir.IntType) and scalar.width < 8
    return with_lanes(I8, lanes_of(t)) if narrow else t


def _to_word(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    t = word_type(x.type)
    return x if t == x.type else b.zext(x, t)


def _from_word(b: ir.IRBuilder, x: ir.Value, t: ir.Type) -> ir.Value:
    return x if x.type == t else b.trunc(x, t)


def store_words(b: ir.IRBuilder, values: Sequence[Val], places: Sequence[ir.Value], at: ir.Value, lanes: int) -> None:
    """Write accumulators, a part to each of ``places``, from element ``at`` (i64, a multiple of ``lanes``) on."""
    parts = [p for v in values for p in v.wide(lanes)]
    for part, place in zip(parts, places, strict=True):
        word = _to_word(b, part)
        b.store(word, b.gep(place, [at], source_etype=scalar_of(word.type)), align=_alignment(word.type))


def load_words(
    frame: Frame, dtypes: Sequence[DType], places: Sequence[ir.Value], at: ir.Value, lanes: int = 1
) -> list[Val]:
    """Read accumulators of ``dtypes`` as `store_words` has written them."""
    b, rest, out = frame.builder, iter(places), []
    for dtype in dtypes:
        t = register_type(dtype, lanes)
        word, parts = word_type(t), []
        for _ in range(part_count(dtype)):
            place = b.gep(next(rest), [at], source_etype=scalar_of(word))
            parts.append(_from_word(b, b.load(place, typ=word, align=_alignment(word)), t))
        out.append(Val(tuple(parts), frame, lanes))
    return out


def word_bytes(t: ir.Type) -> int:
    """Bytes of one element of a word's type."""
    scalar = scalar_of(t)
    if isinstance(scalar, ir.IntType):
        return int(scalar.width) // 8
    return 8 if isinstance(scalar, ir.DoubleType) else 4


def exchange_words(frame: Frame, values: Sequence[Val], move: Callable[[ir.Value], ir.Value]) -> list[Val]:
    """Accumulators of one lane, every part sent through ``move`` as a word (a shuffle)."""
    b = frame.builder
    return [Val(tuple(_from_word(b, move(_to_word(b, p)), p.type) for p in v.parts), frame) for v in values]


def _alignment(t: ir.Type) -> int:
    return min(16, word_bytes(t) * lanes_of(t))


def across_threads(
    e: GpuEmitter, frame: Frame, totals: Sequence[tuple[Reducer, list[Val]]], width: int, threads: int, s: SharedSpace
) -> list[list[Val]]:
    """What ``width`` neighbouring threads (a power of two) hold, combined, in all of them.

    All threads of the block come here. Warps exchange by shuffles, and meet in shared memory of ``s``.
    """
    code = e.code
    thread = code.thread(frame.builder)
    values = _butterfly(e, frame, totals, min(width, code.warp), thread)
    if width <= code.warp:
        return values
    b = frame.builder
    warps = threads // code.warp
    places = [[code.shared(b, s.take(warps * word_bytes(t))) for t in r.part_types] for r, _ in totals]
    lane, warp = b.urem(thread, constant(I32, code.warp)), b.udiv(thread, constant(I32, code.warp))
    writing = IfBlock(frame, b.icmp_unsigned("==", lane, constant(I32, 0)))
    for row, mine in zip(places, values, strict=True):
        inner = writing.frame.builder
        store_words(inner, mine, row, inner.zext(warp, I64), 1)
    writing.close()
    code.barrier(b)
    each = width // code.warp
    group = b.and_(warp, constant(I32, -each))
    at = b.zext(b.or_(group, b.and_(lane, constant(I32, each - 1))), I64)
    read = [(r, load_words(frame, r.dtypes, row, at)) for (r, _), row in zip(totals, places, strict=True)]
    return _butterfly(e, frame, read, each, lane)


def _butterfly(
    e: GpuEmitter, frame: Frame, totals: Sequence[tuple[Reducer, list[Val]]], width: int, lane: ir.Value
) -> list[list[Val]]:
    """Combined over groups of ``width`` lanes: first with the neighbour, then pairs with pairs."""
    values = [list(v) for _, v in totals]
    mask = 1
    while mask < width:
        for n, (reducer, _) in enumerate(totals):
            values[n] = _exchange(e, frame, reducer, values[n], mask, lane)
        mask *= 2
    return values


def _exchange(e: GpuEmitter, frame: Frame, reducer: Reducer, mine: list[Val], mask: int, lane: ir.Value) -> list[Val]:
    frame = deepest(mine, frame)
    b = frame.builder
    other = exchange_words(frame, mine, lambda x: e.code.shuffle_xor(b, x, mask))
    if not reducer.ordered:
        return reducer.combine(e, mine, other)
    low = b.icmp_unsigned("==", b.and_(lane, constant(I32, mask)), constant(I32, 0))

    def pick(first: list[Val], second: list[Val]) -> list[Val]:
        pairs = zip(first, second, strict=True)
        return [Val(tuple(b.select(low, p, q) for p, q in zip(x.parts, y.parts, strict=True)), frame) for x, y in pairs]

    return reducer.combine(e, pick(mine, other), pick(other, mine))
