"""Folds as code: loops with accumulators in vector lanes, combined at the end by a fixed tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llvmlite import ir

from shardc.compiler.kernels.affine import Expr, LoopVar, Mask, Rest
from shardc.compiler.kernels.elements import Fold, Index, Recorder
from shardc.compiler.kernels.emitter import Emitter
from shardc.compiler.kernels.frames import Frame, Loop, Val, apply, deepest
from shardc.compiler.kernels.loops import Space, contiguous, element_bits, merge, power_above, power_below
from shardc.compiler.kernels.mapping import bind_group, counter_of, group_size
from shardc.compiler.kernels.registers import is_small_float, part_count, register_type
from shardc.compiler.kernels.small_floats import round_mantissa
from shardc.hlo.ir import Computation
from shardc.hlo.types import DType
from shardc.native.vector import I32, I64, constant, intrinsic, shuffle

__all__ = ["emit_fold", "identity_of"]


#: Steps that one accumulator lane takes before it is added to a second one.
_CHUNK = 512


def identity_of(reducer: Computation, dtype: DType) -> Any:
    """The neutral value of a one-op reducer such as add or maximum; None for any other."""
    root, parameters = reducer.root, reducer.parameters
    if len(parameters) != 2 or set(root.operands) != set(parameters) or (dtype.is_complex and root.opcode != "add"):
        return None
    if root.shape.dtype is not dtype:
        return None
    if dtype.kind == "pred":
        return {"or": False, "maximum": False, "add": False, "and": True, "minimum": True, "multiply": True}.get(
            root.opcode
        )
    if dtype.is_float:
        return {"add": -0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}.get(root.opcode)
    if dtype.is_complex:
        return 0.0
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0
    high = (1 << (dtype.bits - (1 if dtype.kind == "signed" else 0))) - 1
    table = {"add": 0, "multiply": 1, "maximum": low, "minimum": high, "or": 0, "xor": 0}
    table["and"] = -1 if dtype.kind == "signed" else high
    return table.get(root.opcode)


def emit_fold(e: Emitter, index: Index, mask: Mask, fold: Fold) -> list[Val]:
    """The accumulators' final values, in the frame that ``index`` lives in."""
    inits = list(fold.init(e)) if fold.init is not None else None
    if 0 in fold.sizes:
        return inits if inits is not None else [e.constant(0, d) for d in fold.dtypes]
    space, recorder = _plan(e, mask, fold)
    groups = merge(space.variables, [a.offset for a in recorder.accesses], recorder.expressions())
    outer_lanes = _outer_lanes(e, index, mask, recorder, space)
    identities = [identity_of(fold.reducer, d) for d in fold.dtypes] if len(fold.dtypes) == 1 else [None]
    seeded = any(x is None for x in identities)
    groups, lanes = _choose_lanes(e, groups, recorder, fold, outer_lanes, seeded)
    parent = _parent(e, index, mask, recorder, space)
    state = _Fold(e, fold, mask, space, groups, lanes, max(lanes, outer_lanes), seeded)
    state.start(parent, identities)
    state.loops(parent)
    results = state.results(parent)
    if lanes > 1:
        results = _across_lanes(e, results, fold, lanes)
    if inits is not None:
        results = e.call(fold.reducer, [*inits, *results], wide=True)
    return [_rounded(e, r, d) for r, d in zip(results, fold.dtypes, strict=True)]


def _plan(e: Emitter, mask: Mask, fold: Fold) -> tuple[Space, Recorder]:
    space = Space(e.source, fold.sizes)
    for _ in range(8):
        recorder = Recorder(e.source, e.leaves, e.rules)
        fold.element(recorder, space.index, mask)
        if not space.split_for([a.offset for a in recorder.accesses] + recorder.uses):
            break
    return space, recorder


def _free_expressions(recorder: Recorder, index: Index, mask: Mask) -> list[Expr]:
    found = [*index, *(c.expr for c in mask), *recorder.expressions()]
    return found + [a.offset for a in recorder.accesses]


def _without(e: Expr, own: Sequence[Any]) -> Expr:
    """The loop variables of an expression that are not the fold's own."""
    return Expr(0, tuple((v, 1) for v, _ in e.terms if v not in own and isinstance(v, LoopVar)))


def _outside(e: Emitter, recorder: Recorder, index: Index, mask: Mask, space: Space) -> Index:
    out = [_without(x, space.variables) for x in _free_expressions(recorder, index, mask)]
    return tuple(Expr(0, tuple((v, c) for v, c in x.terms if v in e.bindings)) for x in out)


def _outer_lanes(e: Emitter, index: Index, mask: Mask, recorder: Recorder, space: Space) -> int:
    return e.depends_on_lanes(_outside(e, recorder, index, mask, space), ())


def _parent(e: Emitter, index: Index, mask: Mask, recorder: Recorder, space: Space) -> Frame:
    return e.frame_of(_outside(e, recorder, index, mask, space), ())


def _choose_lanes(
    e: Emitter, groups: list[list[LoopVar]], recorder: Recorder, fold: Fold, outer_lanes: int, seeded: bool
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


@dataclass
class _Fold:
    """A fold being emitted: its accumulators live in stack slots that become registers."""

    e: Emitter
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

    def start(self, parent: Frame, identities: Sequence[Any]) -> None:
        if self._is_long():
            kind = self.fold.dtypes[0]
            self.totals = [self.e.slot(register_type(kind, self.width)) for _ in range(part_count(kind))]
            zero = self.e.constant(identities[0], kind)
            for slot, part in zip(self.totals, zero.wide(self.width), strict=True):
                parent.builder.store(part, slot)
        for number, dtype in enumerate(self.fold.dtypes):
            t = register_type(dtype, self.width)
            slots = [self.e.slot(t) for _ in range(part_count(dtype))]
            self.slots.append(slots)
            if not self.seeded:
                self.neutral = self.e.constant(identities[number], dtype)
                for slot, part in zip(slots, self.neutral.wide(self.width), strict=True):
                    parent.builder.store(part, slot)

    def loops(self, parent: Frame) -> None:
        frame = parent
        opened: list[Loop] = []
        for group in self.groups[:-1]:
            loop = Loop(frame, group_size(group))
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
            loop = Loop(frame, whole * self.lanes, self.lanes)
            self.bind(group, Val((loop.index,), loop.frame), self.lanes)
            self._accumulate(loop.frame, self.mask, None)
            self.counters.pop()
            loop.close()
        if rest:
            self._rest(frame, group, size, whole * self.lanes)

    def _is_long(self) -> bool:
        """Would so many steps in one accumulator lose accuracy?"""
        kind = self.fold.dtypes[0]
        if not self.groups or group_size(self.groups[-1]) // self.lanes <= 2 * _CHUNK:
            return False
        return not self.seeded and self.fold.reducer.root.opcode == "add" and (kind.is_float or kind.is_complex)

    def _chunks(self, frame: Frame, group: list[LoopVar], end: int) -> None:
        """A long sum in pieces that are added up in accumulators of their own: errors grow with the piece only."""
        chunk = _CHUNK * self.lanes
        outer = Loop(frame, end, chunk)
        b = outer.frame.builder
        past = intrinsic(b, "llvm.umin", I64, [b.add(outer.index, constant(I64, chunk)), constant(I64, end)])
        loop = Loop(outer.frame, past, self.lanes, outer.index)
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
        new = list(self.fold.element(e, self.space.index, mask))
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
        """Is this the first iteration of all loops?"""
        result: ir.Value = constant(ir.IntType(1), 1)
        for counter in self.counters:
            same = frame.builder.icmp_unsigned("==", counter.value, constant(I64, 0))
            result = frame.builder.and_(result, same)
        return result

    def _read(self, frame: Frame, places: Sequence[Sequence[ir.Value]]) -> list[Val]:
        return [
            Val(
                tuple(frame.builder.load(s, typ=register_type(d, self.width)) for s in slots),
                frame,
                self.width,
            )
            for slots, d in zip(places, self.fold.dtypes, strict=True)
        ]

    def results(self, parent: Frame) -> list[Val]:
        if self.totals:
            self._flush(parent)
            return self._read(parent, [self.totals])
        return self._read(parent, self.slots)


def _across_lanes(e: Emitter, values: list[Val], fold: Fold, lanes: int) -> list[Val]:
    """Halve the lanes until one is left: lane i with lane i + half."""
    while lanes > 1:
        half = lanes // 2
        lower = [_piece(e, v, range(half)) for v in values]
        upper = [_piece(e, v, range(half, lanes)) for v in values]
        values = e.call(fold.reducer, [*lower, *upper], fold.wide)
        lanes = half
    return values


def _piece(e: Emitter, v: Val, lanes: range) -> Val:
    b = v.frame.builder
    if len(lanes) == 1:
        return Val(tuple(b.extract_element(p, constant(I32, lanes[0])) for p in v.parts), v.frame)
    return Val(tuple(shuffle(b, p, None, lanes) for p in v.parts), v.frame, len(lanes))


def _rounded(e: Emitter, v: Val, dtype: DType) -> Val:
    if not is_small_float(dtype):
        return v
    return apply(lambda b, x: round_mantissa(b, x, dtype), [v], e.entry)
