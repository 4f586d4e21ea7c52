"""select-and-scatter: each window's selected element receives the window's source value.

Dimensions along which windows are single elements are independent: leading ones (images) run in parallel, trailing ones
(channels) in vector lanes. In between, windows are taken in order. Where windows tile the operand, every element is
written once; elsewhere they add to what other windows have left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.parallel import PhaseKernel, chunks, phase
from shardc.compiler.elements import memory
from shardc.compiler.elements.arithmetic.registers import part_count, register_type
from shardc.compiler.elements.control_flow import for_range, nest
from shardc.compiler.elements.frames import Val
from shardc.compiler.elements.loop_space import element_bits, power_below
from shardc.compiler.elements.scalar_programs import is_scalar_program
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import WindowDim
from shardc.native.math.vector import I1, I32, I64, constant, intrinsic, splat, with_lanes

__all__ = ["emit_select_and_scatter"]

#: Windows of at most so many elements are unrolled, where all of them lie inside.
_UNROLLED = 16
#: Channels that one piece of the work takes at least, where there are few images.
_CHANNELS = 64


def emit_select_and_scatter(kernel: CpuKernel) -> None:
    """Windows in row-major order; padding is never selected; the first element stays unless ``select`` refuses it."""
    i = kernel.instruction
    e = kernel.emitter({})
    plan = _SelectionPlan(i, kernel.target.vector_bits)
    nbytes = sum(o.shape.nbytes for o in i.operands) + 2 * i.shape.nbytes
    count = chunks(nbytes=nbytes, most=plan.pieces, tuning=kernel.tuning)
    if i.shape.size:
        phase(kernel, e, count, partial(_part, plan, count))
    e.finish()


class _SelectionPlan:
    """Images, what windows slide over, channels."""

    def __init__(self, i: Instruction, vector_bits: int) -> None:
        self.instruction = i
        dims = i.operands[0].shape.dims
        window = i.attrs["window"].dims
        still = [w.size == w.stride == 1 and not w.pad_low and not w.pad_high for w in window]
        rank = len(dims)
        first = next((d for d in range(rank) if not still[d]), rank)
        past = next((d + 1 for d in reversed(range(rank)) if not still[d]), first)
        self.images = math.prod(dims[:first])
        self.dims, self.window = dims[first:past], window[first:past]
        self.outputs = i.operands[1].shape.dims[first:past]
        self.channels = math.prod(dims[past:])
        scalar = is_scalar_program(i.attrs["select"]) and is_scalar_program(i.attrs["scatter"])
        widest = vector_bits // element_bits([i.shape.dtype])
        self.lanes = min(widest, power_below(self.channels)) if scalar and self.channels else 1
        blocks = max(1, self.channels // _CHANNELS) if self.images < 8 else 1
        #: Channels that a piece of the work takes, a multiple of the lanes.
        self.block = -(-self.channels // (blocks * self.lanes)) * self.lanes
        self.pieces = self.images * -(-self.channels // self.block) if self.channels else 0
        pairs = list(zip(self.dims, self.outputs, self.window, strict=True))
        #: No window reaches outside.
        self.inside = all(
            w.pad_low <= 0 and (n - 1) * w.stride - w.pad_low + (w.size - 1) * w.rhs_dilate < size
            for size, n, w in pairs
        )
        self.unrolled = self.inside and math.prod(w.size for w in self.window) <= _UNROLLED
        #: Every element lies in one window.
        self.tiles = all(
            w.size == w.stride and w.rhs_dilate == 1 and not w.pad_low and n * w.size == size for size, n, w in pairs
        )


def _part(plan: _SelectionPlan, count: int, part: PhaseKernel) -> None:
    """Some of the pieces: an image, or some of its channels."""
    e = part.emitter({})
    b = e.entry.builder
    blocks = plan.pieces // plan.images if plan.images else 1
    first, past = (b.udiv(b.mul(n, constant(I64, plan.pieces)), constant(I64, count)) for n in (part.begin, part.end))
    with for_range(b, first, past) as piece:
        image, block = b.udiv(piece, constant(I64, blocks)), b.urem(piece, constant(I64, blocks))
        start = b.mul(block, constant(I64, plan.block))
        end = intrinsic(b, "llvm.umin", I64, [b.add(start, constant(I64, plan.block)), constant(I64, plan.channels)])
        _SelectionPiece(plan, part, e, image, start, end).emit()
    e.finish()


class _SelectionPiece:
    """The code for one piece: channels [start, end) of an image."""

    def __init__(
        self, plan: _SelectionPlan, part: PhaseKernel, e: CpuEmitter, image: ir.Value, start: ir.Value, end: ir.Value
    ) -> None:
        self.plan, self.part, self.e, self.b = plan, part, e, e.entry.builder
        self.image, self.start, self.end = image, start, end
        self.dtype = plan.instruction.shape.dtype
        loaded = memory.load(self.b, part.operands[2], constant(I64, 0), self.dtype, 1)
        self.neutral = Val(loaded, e.entry)
        for lanes in (1, plan.lanes):  # made here, before any loop
            self.neutral.wide(lanes)

    def emit(self) -> None:
        plan, b = self.plan, self.b
        if not plan.tiles:
            with nest(b, plan.dims) as at:
                self._channels(lambda c, lanes: self._fill(at, c, lanes))
        if 0 not in plan.outputs and 0 not in plan.dims:
            with nest(b, plan.outputs) as out:
                self._channels(lambda c, lanes: self._window(out, c, lanes))

    def _channels(self, body: Callable[[ir.Value, int], None]) -> None:
        """``body(channel, lanes)`` for all channels of the piece."""
        b, lanes = self.b, self.plan.lanes
        whole = self.end if lanes == 1 else b.and_(self.end, constant(I64, -lanes))
        with for_range(b, self.start, whole, lanes) as c:
            body(c, lanes)
        if self.plan.channels % lanes:
            with for_range(b, whole, self.end) as c:
                body(c, 1)

    def _offset(self, dims: Sequence[int], at: Sequence[ir.Value], channel: ir.Value) -> ir.Value:
        b = self.b
        offset = self.image
        for n, x in zip(dims, at, strict=True):
            offset = b.add(b.mul(offset, constant(I64, n)), x)
        return b.add(b.mul(offset, constant(I64, self.plan.channels)), channel)

    def _fill(self, at: Sequence[ir.Value], channel: ir.Value, lanes: int) -> None:
        place = self._offset(self.plan.dims, at, channel)
        memory.store(self.b, self.neutral.wide(lanes), self.part.results[0], place, self.dtype, None)

    def _window(self, out: Sequence[ir.Value], channel: ir.Value, lanes: int) -> None:
        """Select, then deposit, in ``lanes`` windows side by side."""
        source = self._offset(self.plan.outputs, out, channel)
        loaded = memory.load(self.b, self.part.operands[1], source, self.dtype, lanes)
        given = Val(loaded, self.e.entry, lanes)
        if self.plan.unrolled:
            self._unrolled(given, [offset for _, offset in self._elements(out, channel)], lanes)
        else:
            self._looped(given, out, channel, lanes)

    def _unrolled(self, given: Val, offsets: Sequence[ir.Value], lanes: int) -> None:
        """All elements exist: which of them is selected last in each lane is a mask."""
        b = self.b
        old = self._operand(offsets[0], lanes)
        chosen: list[ir.Value] = []
        for offset in offsets[1:]:
            new = self._operand(offset, lanes)
            keep = self._keeps(old, new, lanes)
            old = tuple(b.select(keep, x, y) for x, y in zip(old, new, strict=True))
            chosen.append(b.not_(keep))
        later = constant(with_lanes(I1, lanes), 0)
        here: list[ir.Value] = []
        for mask in reversed(chosen):
            here.append(b.and_(mask, b.not_(later)))
            later = b.or_(later, mask)
        for mask, offset in zip((b.not_(later), *reversed(here)), offsets, strict=True):
            self._deposit(mask, given, offset, lanes)

    def _operand(self, offset: ir.Value, lanes: int) -> tuple[ir.Value, ...]:
        return memory.load(self.b, self.part.operands[0], offset, self.dtype, lanes)

    def _keeps(self, old: tuple[ir.Value, ...], new: tuple[ir.Value, ...], lanes: int) -> ir.Value:
        """Where ``select`` stays with the old element."""
        entry = self.e.entry
        values = [Val(old, entry, lanes), Val(new, entry, lanes)]
        return self.e.call(self.plan.instruction.attrs["select"], values)[0].wide(lanes)[0]

    def _looped(self, given: Val, out: Sequence[ir.Value], channel: ir.Value, lanes: int) -> None:
        """Elements that may not exist, or many: which one is selected is a number, -1 at first."""
        e, b = self.e, self.b
        kind, part = with_lanes(I32, lanes), register_type(self.dtype, lanes)
        chosen, value = e.slot(kind), [e.slot(part) for _ in range(part_count(self.dtype))]
        b.store(constant(kind, -1), chosen)
        for slot, neutral in zip(value, self.neutral.wide(lanes), strict=True):
            b.store(neutral, slot)
        for number, offset in self._elements(out, channel):
            new, old = self._operand(offset, lanes), tuple(b.load(s, typ=part) for s in value)
            known = b.load(chosen, typ=kind)
            keep = b.and_(self._keeps(old, new, lanes), b.icmp_signed(">=", known, constant(kind, 0)))
            for slot, x, y in zip(value, old, new, strict=True):
                b.store(b.select(keep, x, y), slot)
            b.store(b.select(keep, known, splat(b, number, lanes)), chosen)
        known = b.load(chosen, typ=kind)
        for number, offset in self._elements(out, channel):
            self._deposit(b.icmp_signed("==", known, splat(b, number, lanes)), given, offset, lanes)

    def _deposit(self, here: ir.Value, given: Val, offset: ir.Value, lanes: int) -> None:
        e, b = self.e, self.b
        target = self.part.results[0]
        old = self.neutral
        if not self.plan.tiles:
            old = Val(memory.load(b, target, offset, self.dtype, lanes), e.entry, lanes)
        total = e.call(self.plan.instruction.attrs["scatter"], [old, given])[0]
        parts = zip(total.wide(lanes), old.wide(lanes), strict=True)
        memory.store(b, tuple(b.select(here, t, o) for t, o in parts), target, offset, self.dtype, None)

    def _elements(self, out: Sequence[ir.Value], channel: ir.Value) -> Iterator[tuple[ir.Value, ir.Value]]:
        """Number (i32) and offset of each element of a window that exists, as code inside loops or unrolled."""
        b, plan = self.b, self.plan
        starts = [
            b.sub(b.mul(o, constant(I64, w.stride)), constant(I64, w.pad_low))
            for o, w in zip(out, plan.window, strict=True)
        ]
        if plan.unrolled:
            for numbers in product(*(range(w.size) for w in plan.window)):
                yield self._element(starts, [constant(I64, k) for k in numbers], channel)
            return
        with ExitStack() as loops:
            steps: list[ir.Value] = []
            for start, w, n in zip(starts, plan.window, plan.dims, strict=True):
                steps.append(loops.enter_context(for_range(b, *self._bounds(start, w, n))))
            yield self._element(starts, steps, channel)

    def _bounds(self, start: ir.Value, w: WindowDim, size: int) -> tuple[ir.Value, ir.Value]:
        """The elements of a window that lie inside: those from the first, up to the second."""
        b = self.b

        def steps_to(distance: ir.Value) -> ir.Value:
            """How many elements lie before something so far from the window's start."""
            distance = intrinsic(b, "llvm.smax", I64, [distance, constant(I64, 0)])
            return b.udiv(b.add(distance, constant(I64, w.rhs_dilate - 1)), constant(I64, w.rhs_dilate))

        past = steps_to(b.sub(constant(I64, size), start))
        return steps_to(b.neg(start)), intrinsic(b, "llvm.smin", I64, [past, constant(I64, w.size)])

    def _element(
        self, starts: Sequence[ir.Value], steps: Sequence[ir.Value], channel: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        b, plan = self.b, self.plan
        number: ir.Value = constant(I64, 0)
        at = []
        for start, step, w in zip(starts, steps, plan.window, strict=True):
            number = b.add(b.mul(number, constant(I64, w.size)), step)
            at.append(b.add(start, b.mul(step, constant(I64, w.rhs_dilate))))
        return b.trunc(number, I32), self._offset(plan.dims, at, channel)
