"""Folds as loops with accumulators in vector lanes, which a fixed tree combines at the end.

Long sums are added up in blocks, whose totals have accumulators of their own: rounding errors grow with the length of a
block, not of the sum (Higham, "The Accuracy of Floating Point Summation", 1993).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llvmlite import ir

from shardc.compiler.elements.affine import Expr, LoopVar, Mask, Rest
from shardc.compiler.elements.arithmetic.registers import is_small_float, part_count, register_type
from shardc.compiler.elements.elements import Fold, Index, Recorder
from shardc.compiler.elements.emitter import ElementEmitter
from shardc.compiler.elements.frames import ForLoop, Frame, Val, apply, deepest
from shardc.compiler.elements.loop_space import (
    Space,
    bind_group,
    contiguous,
    counter_of,
    element_bits,
    group_size,
    merge,
    power_above,
    power_below,
)
from shardc.compiler.elements.scalar_programs import is_scalar_program
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.reducers import identity_of
from shardc.hlo.ir.types import DType
from shardc.native.math.small_floats import round_mantissa
from shardc.native.math.vector import I32, I64, constant, intrinsic, shuffle

__all__ = ["FoldEmitter", "across_lanes", "plan_fold", "round_element"]

#: Steps that one accumulator lane takes before it is added to a second one.
_CHUNK = 512


class FoldEmitter(ElementEmitter):
    """An emitter that computes folds as loops."""

    def fold(self, key: Instruction, index: Index, mask: Mask, fold: Fold) -> list[Val]:
        done = self.folded.get(key)
        return _emit_fold(self, index, mask, fold) if done is None else done()


def _emit_fold(e: ElementEmitter, index: Index, mask: Mask, fold: Fold) -> list[Val]:
    """The accumulators' final values, in the frame that ``index`` lives in."""
    inits = list(fold.init(e)) if fold.init is not None else None
    if 0 in fold.sizes or _never(e, fold):
        return inits if inits is not None else [e.constant(0, d) for d in fold.dtypes]
    space, recorder = plan_fold(e, mask, fold)
    groups = merge(space.variables, [a.offset for a in recorder.accesses], recorder.expressions())
    outer_lanes = _outer_lanes(e, index, mask, recorder, space)
    parent = _parent(e, index, mask, recorder, space)
    starts = _neutral_values(e, fold)
    lanes = 1
    if fold.order == "steps":
        starts = inits or starts
        parent = deepest(inits or [], parent)
    elif fold.order == "runs" and outer_lanes == 1 and is_scalar_program(fold.reducer):
        groups, lanes = _runs(e, space, recorder, fold)
    elif fold.order == "any":
        groups, lanes = _choose_lanes(e, groups, recorder, fold, outer_lanes, None in starts)
    state = _Fold(e, fold, mask, space, groups, lanes, max(lanes, outer_lanes), None in starts)
    state.start(parent, starts)
    state.loops(parent)
    results = state.results(parent)
    if lanes > 1:
        results = across_lanes(e, results, fold.reducer, lanes, wide=fold.wide, runs=fold.order == "runs")
    if inits is not None and fold.order != "steps":
        results = e.call(fold.reducer, [*inits, *results], wide=True)
    return [round_element(e, r, d) for r, d in zip(results, fold.dtypes, strict=True)]


def _neutral_values(e: ElementEmitter, fold: Fold) -> list[Val | None]:
    if len(fold.dtypes) > 1:
        return [None] * len(fold.dtypes)
    (dtype,) = fold.dtypes
    value = identity_of(fold.reducer, dtype)
    return [None if value is None else e.constant(value, dtype)]


def _never(e: ElementEmitter, fold: Fold) -> bool:
    """Whether the conditions of a fold hold nowhere."""
    if fold.taken is None:
        return False
    return fold.taken(e, tuple(Expr.of(e.source.loop(n)) for n in fold.sizes)) is None


def plan_fold(e: ElementEmitter, mask: Mask, fold: Fold) -> tuple[Space, Recorder]:
    """The fold's loops, split where that makes addresses plain, and the memory that it reads."""
    space = Space(e.source, fold.sizes)
    for _ in range(8):
        recorder = Recorder(e.source, e.leaves, e.rules)
        taken = (() if fold.taken is None else fold.taken(recorder, space.index)) or ()
        recorder.uses.extend(c.expr for c in taken)
        fold.element(recorder, space.index, (*mask, *taken))
        if not space.split_for([a.offset for a in recorder.accesses] + recorder.uses):
            break
    return space, recorder


def _free_expressions(recorder: Recorder, index: Index, mask: Mask) -> list[Expr]:
    found = [*index, *(c.expr for c in mask), *recorder.expressions()]
    return found + [a.offset for a in recorder.accesses]


def _without(e: Expr, own: Sequence[LoopVar]) -> Expr:
    """The loop variables of an expression that are not the fold's own."""
    return Expr(0, tuple((v, 1) for v, _ in e.terms if v not in own and isinstance(v, LoopVar)))


def _outside(e: ElementEmitter, recorder: Recorder, index: Index, mask: Mask, space: Space) -> Index:
    out = [_without(x, space.variables) for x in _free_expressions(recorder, index, mask)]
    return tuple(Expr(0, tuple((v, c) for v, c in x.terms if v in e.bindings)) for x in out)


def _outer_lanes(e: ElementEmitter, index: Index, mask: Mask, recorder: Recorder, space: Space) -> int:
    return e.depends_on_lanes(_outside(e, recorder, index, mask, space), ())


def _parent(e: ElementEmitter, index: Index, mask: Mask, recorder: Recorder, space: Space) -> Frame:
    return e.frame_of(_outside(e, recorder, index, mask, space), ())


def _choose_lanes(
    e: ElementEmitter, groups: list[list[LoopVar]], recorder: Recorder, fold: Fold, outer_lanes: int, seeded: bool
) -> tuple[list[list[LoopVar]], int]:
    """Which loop runs in lanes (moved innermost), and how many lanes; 1 when the lanes are outside already."""
    if outer_lanes > 1 or not groups:
        return groups, 1
    best = max(range(len(groups)), key=lambda k: (contiguous(recorder.accesses, groups[k][-1]), k))
    groups = [*groups[:best], *groups[best + 1 :], groups[best]]
    size = group_size(groups[-1])
    bits = element_bits([*(a.shape.dtype for a in recorder.accesses), *fold.dtypes])
    fits = power_below(size) if seeded else power_above(size)
    return groups, min(4 * e.vector_bits // bits, fits)


def _runs(e: ElementEmitter, space: Space, recorder: Recorder, fold: Fold) -> tuple[list[list[LoopVar]], int]:
    """Each lane takes a run of consecutive positions: the outermost loop is cut into as many as there are lanes."""
    variables = space.variables
    bits = element_bits([*(a.shape.dtype for a in recorder.accesses), *fold.dtypes])
    widest = 2 * e.vector_bits // bits
    lanes = max(
        (n for n in (1, 2, 4, 8, 16, 32, 64) if variables and n <= widest and variables[0].size % n == 0), default=1
    )
    if lanes == 1:
        return [[v] for v in variables], 1
    if lanes < variables[0].size:
        space.split(variables[0], variables[0].size // lanes)
    first, *rest = space.variables
    return [*([v] for v in rest), [first]], lanes


@dataclass
class _Fold:
    """A fold being emitted: its accumulators live in stack slots that become registers."""

    e: ElementEmitter
    fold: Fold
    mask: Mask
    space: Space
    groups: list[list[LoopVar]]
    lanes: int
    width: int
    seeded: bool
    slots: list[list[ir.Value]] = field(default_factory=list)
    counters: list[Val] = field(default_factory=list)
    totals: list[ir.Value] = field(default_factory=list)
    neutral: Val | None = None

    def start(self, parent: Frame, values: Sequence[Val | None]) -> None:
        """Set the accumulators to ``values``; None: the first step will."""
        self.neutral = values[0]
        if self.neutral is not None and self._is_long():
            kind = self.fold.dtypes[0]
            self.totals = [self.e.slot(register_type(kind, self.width)) for _ in range(part_count(kind))]
            for slot, part in zip(self.totals, self.neutral.wide(self.width), strict=True):
                parent.builder.store(part, slot)
        for value, dtype in zip(values, self.fold.dtypes, strict=True):
            t = register_type(dtype, self.width)
            slots = [self.e.slot(t) for _ in range(part_count(dtype))]
            self.slots.append(slots)
            if value is not None and not self.seeded:
                for slot, part in zip(slots, value.wide(self.width), strict=True):
                    parent.builder.store(part, slot)

    def loops(self, parent: Frame) -> None:
        frame = parent
        opened: list[ForLoop] = []
        for group in self.groups[:-1]:
            loop = ForLoop(frame, group_size(group))
            self.bind(group, Val((loop.index,), loop.frame))
            opened.append(loop)
            frame = loop.frame
        if self.groups:
            self._inner(frame, self.groups[-1])
        else:
            self._accumulate(parent, self.mask, None)
        for loop in reversed(opened):
            loop.close()

    def bind(self, group: Sequence[LoopVar], counter: Val, lanes: int = 1) -> None:
        bind_group(self.e, group, counter, lanes)
        self.counters.append(counter)

    def _inner(self, frame: Frame, group: list[LoopVar]) -> None:
        size = group_size(group)
        whole, rest = divmod(size, self.lanes)
        if self.totals:
            self._chunks(frame, group, whole * self.lanes)
        elif whole:
            loop = ForLoop(frame, whole * self.lanes, self.lanes)
            self.bind(group, Val((loop.index,), loop.frame), self.lanes)
            self._accumulate(loop.frame, self.mask, None)
            self.counters.pop()
            loop.close()
        if rest:
            self._rest(frame, group, size, whole * self.lanes)

    def _is_long(self) -> bool:
        """Whether so many steps in one accumulator would lose accuracy."""
        kind = self.fold.dtypes[0]
        if not self.groups or group_size(self.groups[-1]) // self.lanes <= 2 * _CHUNK:
            return False
        summing = self.fold.reducer.root.opcode == "add" and (kind.is_float or kind.is_complex)
        return summing and not self.seeded and self.fold.order == "any"

    def _chunks(self, frame: Frame, group: list[LoopVar], end: int) -> None:
        """A long sum in pieces that are added up in accumulators of their own: errors grow with the piece only."""
        chunk = _CHUNK * self.lanes
        outer = ForLoop(frame, end, chunk)
        b = outer.frame.builder
        past = intrinsic(b, "llvm.umin", I64, [b.add(outer.index, constant(I64, chunk)), constant(I64, end)])
        loop = ForLoop(outer.frame, past, self.lanes, outer.index)
        self.bind(group, Val((loop.index,), loop.frame), self.lanes)
        self._accumulate(loop.frame, self.mask, None)
        self.counters.pop()
        loop.close()
        self._flush(outer.frame)
        outer.close()

    def _flush(self, frame: Frame) -> None:
        """Add the accumulator to the totals and start it anew."""
        total = self._read(frame, [self.totals])
        summed = self.e.call(self.fold.reducer, [*total, *self._read(frame, self.slots)], self.fold.wide)[0]
        for slot, part in zip(self.totals, summed.wide(self.width), strict=True):
            frame.builder.store(part, slot)
        assert self.neutral is not None
        for slot, part in zip(self.slots[0], self.neutral.wide(self.width), strict=True):
            frame.builder.store(part, slot)

    def _rest(self, frame: Frame, group: list[LoopVar], size: int, start: int) -> None:
        """One masked vector for what does not fill one."""
        self.bind(group, Val((constant(I64, start),), self.e.entry), self.lanes)
        holds = Rest(counter_of(group), 0, size)
        self._accumulate(frame, (*self.mask, holds), self.e.mask((holds,)))
        self.counters.pop()

    def _accumulate(self, frame: Frame, mask: Mask, holds: Val | None) -> None:
        e = self.e
        taken = () if self.fold.taken is None else self.fold.taken(e, self.space.index) or ()
        new = list(self.fold.element(e, self.space.index, (*mask, *taken)))
        inside = e.mask(taken)
        if inside is not None:
            holds = inside if holds is None else apply(lambda b, x, y: b.and_(x, y), [inside, holds], e.entry)
        frame = deepest(new if holds is None else [*new, holds], frame)
        old = self._read(frame, self.slots)
        total = e.call(self.fold.reducer, [*old, *new], self.fold.wide)
        first = self._first(frame) if self.seeded else None
        for slots, value, before, fresh in zip(self.slots, total, old, new, strict=True):
            parts = value.wide(self.width)
            if first is not None:
                starting = fresh.wide(self.width)
                parts = tuple(frame.builder.select(first, s, p) for s, p in zip(starting, parts, strict=True))
            if holds is not None:
                kept = before.parts
                m = holds.wide(self.width)[0]
                parts = tuple(frame.builder.select(m, p, k) for p, k in zip(parts, kept, strict=True))
            for slot, part in zip(slots, parts, strict=True):
                frame.builder.store(part, slot)

    def _first(self, frame: Frame) -> ir.Value:
        """Whether this is the first iteration of all loops."""
        result: ir.Value = constant(ir.IntType(1), 1)
        for counter in self.counters:
            same = frame.builder.icmp_unsigned("==", counter.value, constant(I64, 0))
            result = frame.builder.and_(result, same)
        return result

    def _read(self, frame: Frame, places: Sequence[Sequence[ir.Value]]) -> list[Val]:
        return [
            Val(tuple(frame.builder.load(s, typ=register_type(d, self.width)) for s in slots), frame, self.width)
            for slots, d in zip(places, self.fold.dtypes, strict=True)
        ]

    def results(self, parent: Frame) -> list[Val]:
        if self.totals:
            self._flush(parent)
            return self._read(parent, [self.totals])
        return self._read(parent, self.slots)


def across_lanes(
    e: ElementEmitter, values: list[Val], reducer: Computation, lanes: int, *, wide: bool = True, runs: bool = False
) -> list[Val]:
    """Halve the lanes until one is left: lane i with lane i + half, or (``runs``) with its neighbour."""
    while lanes > 1:
        half = lanes // 2
        lower = [_piece(e, v, range(0, lanes, 2) if runs else range(half)) for v in values]
        upper = [_piece(e, v, range(1, lanes, 2) if runs else range(half, lanes)) for v in values]
        values = e.call(reducer, [*lower, *upper], wide)
        lanes = half
    return values


def _piece(e: ElementEmitter, v: Val, lanes: range) -> Val:
    b = v.frame.builder
    if len(lanes) == 1:
        return Val(tuple(b.extract_element(p, constant(I32, lanes[0])) for p in v.parts), v.frame)
    return Val(tuple(shuffle(b, p, None, lanes) for p in v.parts), v.frame, len(lanes))


def round_element(e: ElementEmitter, v: Val, dtype: DType) -> Val:
    """An accumulator as an element of ``dtype``."""
    if not is_small_float(dtype):
        return v
    return apply(lambda b, x: round_mantissa(b, x, dtype), [v], e.entry)
