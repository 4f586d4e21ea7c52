"""Maps over elements on a grid: every thread computes a few vectors of 16 bytes, neighbours side by side.

The loops of the CPU's maps become one counter of vectors, which blocks and threads count; see `GridMap`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from llvmlite import ir

from shardc.compiler.gpu.function import GpuEmitter, GpuKernel
from shardc.compiler.gpu.launches import Argument
from shardc.compiler.kernels import memory
from shardc.compiler.kernels.affine import Expr, LoopVar, Mask, VarSource, linear
from shardc.compiler.kernels.called import is_scalar_program
from shardc.compiler.kernels.elements import Access, Element, Elements, Index, bases
from shardc.compiler.kernels.frames import Branch, Frame, Loop, Val, deepest
from shardc.compiler.kernels.loops import group_size, merge
from shardc.compiler.kernels.mapping import plan_space
from shardc.compiler.kernels.rules import RULES
from shardc.hlo.ir import Computation, Instruction, called_computations
from shardc.hlo.types import Shape
from shardc.native.vector import I32, I64, constant

__all__ = ["GridMap", "GridOutput", "computed_by_rules", "emit_loop", "emit_maps", "grid_outputs", "takes_loop"]

#: Threads of a block.
THREADS = 256
#: Bytes of a thread's widest access, and of all it holds of its widest type.
_VECTOR, _HELD = 16, 32
#: Bytes that a thread asks for before it waits.
_IN_FLIGHT = 64
#: Arrays so many times smaller than the largest one do not decide how memory is walked.
_SMALL = 8
#: Elementwise operations from which on a thread computes two vectors at most, or one.
_MANY, _VERY_MANY = 24, 96


@dataclass(frozen=True)
class GridOutput:
    """An array to fill: its elements, and which index an index of the iteration writes (default: the same)."""

    array: Argument
    shape: Shape
    element: Element
    place: Callable[[Elements, Index], Index] | None = None


def computed_by_rules(computation: Computation) -> bool:
    """Can element rules compute everything in it, with called computations that are arithmetic?"""
    inside = [i for i in computation if i.opcode not in ("parameter", "tuple")]
    called = [c for i in inside for _, c in called_computations(i)]
    return all(i.opcode in RULES for i in inside) and all(map(is_scalar_program, called))


def takes_loop(kernel: GpuKernel) -> bool:
    return computed_by_rules(kernel.computation)


def emit_loop(kernel: GpuKernel) -> None:
    """Everything that has an element rule: one launch per run of results of the same dimensions."""
    emit_maps(kernel, kernel.leaves(), grid_outputs(kernel))


def grid_outputs(kernel: GpuKernel) -> list[GridOutput]:
    """The results of the kernel's computation, element by element."""
    root = kernel.computation.root
    roots = root.operands if root.opcode == "tuple" else (root,)

    def element(i: Instruction, part: int | None) -> Element:
        def get(e: Elements, index: Index, mask: Mask) -> object:
            value = e.value(i, index, mask)
            return value if part is None else value[part]

        return get

    elements = [
        element(r, part if r.shape.is_tuple else None) for r in roots for part, _ in enumerate(r.shape.leaves())
    ]
    rows = zip(kernel.results, kernel.result_shapes, elements, strict=True)
    return [GridOutput(*row) for row in rows]


def emit_maps(kernel: GpuKernel, leaves: Mapping[Instruction, Argument], outputs: Sequence[GridOutput]) -> None:
    """Launches that fill ``outputs`` from ``leaves``, those of the same dimensions together."""
    for dims, run in groupby(outputs, key=lambda o: o.shape.dims):
        if 0 not in dims:
            GridMap(kernel, leaves, dims, list(run)).emit()


class GridMap:
    """The map of one launch: for every index below ``dims``, that element of each output.

    Loops that all accesses treat as one are merged. The innermost one is cut into vectors of ``lanes`` elements, as
    many as alignment allows. All vectors have a number; a thread takes ``unroll`` of them, a block's size apart, asks
    for what it needs of all of them and writes in the end. Elements that fill no vector are counted behind the vectors.
    """

    def __init__(
        self,
        kernel: GpuKernel,
        leaves: Mapping[Instruction, Argument],
        dims: Sequence[int],
        outputs: Sequence[GridOutput],
    ) -> None:
        self.kernel, self.leaves, self.outputs = kernel, leaves, outputs
        self.source = VarSource()
        elements = Elements(self.source, leaves, RULES)
        self.space, self.recorder = plan_space(elements, dims, [o.element for o in outputs])
        index = self.space.index
        places = [index if o.place is None else o.place(elements, index) for o in outputs]
        self.stores = [linear(at, o.shape.dims) for at, o in zip(places, outputs, strict=True)]
        stored = [Access(o.shape, s, (), o) for o, s in zip(outputs, self.stores, strict=True)]
        self.accesses = [*self.recorder.accesses, *stored]
        groups = merge(self.space.variables, [a.offset for a in self.accesses], self.recorder.expressions())
        self.outer, self.inner = groups[:-1], groups[-1] if groups else []
        self.lanes = self._lanes() if self.inner else 1
        width = group_size(self.inner)
        #: Vectors, and single elements behind them.
        self.vectors = group_size([v for g in self.outer for v in g]) * (width // self.lanes)
        self.singles = width % self.lanes
        self.threads, self.unroll = self._shape()

    # Planning.

    def _lanes(self) -> int:
        """The most lanes for which big arrays are read and written in aligned vectors."""
        if self.recorder.one_by_one or self.recorder.folds:
            return 1
        inner = self.inner[-1]
        big = big_accesses(self.accesses)
        narrow, wide = (f(a.shape.dtype.nbytes for a in big) for f in (min, max))
        lanes = max(1, min(_VECTOR // narrow, _HELD // wide))
        for a in big:
            lanes = math.gcd(lanes, _aligned(a, inner))
        if self.outer:
            lanes = math.gcd(lanes, group_size(self.inner))
        least = 64 * self.kernel.target.chip.multiprocessors
        total = group_size([v for g in (*self.outer, self.inner) for v in g])
        while lanes > 1 and total // lanes < least:
            lanes //= 2
        return lanes

    def _shape(self) -> tuple[int, int]:
        """Threads of a block, and vectors of a thread."""
        steps = self.vectors + self.singles
        chip = self.kernel.target.chip
        threads = THREADS if steps >= 2 * THREADS * chip.multiprocessors else THREADS // 2
        threads = min(threads, max(self.kernel.target.warp, -(-steps // 32) * 32))
        asked = sum(a.shape.dtype.nbytes for a in big_accesses(self.recorder.accesses)) * self.lanes
        unroll = min(4, max(1, _IN_FLIGHT // max(asked, 16)))
        if self.recorder.folds or self.recorder.one_by_one or self.recorder.operations > _VERY_MANY:
            unroll = 1
        elif self.recorder.operations > _MANY:
            unroll = min(unroll, 2)
        while unroll > 1 and steps < 4 * unroll * threads * chip.multiprocessors:
            unroll //= 2
        return threads, unroll

    # Code.

    def emit(self) -> None:
        """Define the function and launch it."""
        used = list(dict.fromkeys([*(self.leaves[i] for i in self.leaves), *(o.array for o in self.outputs)]))
        self.function = self.kernel.function(used, self.threads)
        e = self.e = self.function.emitter(self.leaves)
        e.source = self.source
        block = self.threads * self.unroll
        whole = self.vectors // block
        ragged = self.vectors % block + self.singles
        blocks = whole + -(-ragged // block)
        number = widened(e, self.function.code.block(e.entry.builder), blocks)
        thread = widened(e, self.function.code.thread(e.entry.builder), self.threads)
        b = e.entry.builder
        first = b.add(b.mul(number, constant(I64, block)), thread)
        if not ragged:
            self._vectors(e.entry, first, self.unroll)
        else:
            if whole:
                full = Branch(e.entry, b.icmp_unsigned("<", number, constant(I64, whole)))
                self._vectors(full.frame, first, self.unroll)
                full.close()
            rest = Branch(e.entry, b.icmp_unsigned(">=", number, constant(I64, whole)))
            self._rest(rest.frame, first)
            rest.close()
        e.finish()
        self.kernel.launch(self.function, (blocks,))

    def _rest(self, frame: Frame, first: ir.Value) -> None:
        """A block that is not full: a loop whose steps look whether there is something to do."""
        loop = Loop(frame, self.unroll)
        b = loop.frame.builder
        at = b.add(first, b.mul(loop.index, constant(I64, self.threads)))
        if self.vectors:
            some = Branch(loop.frame, b.icmp_unsigned("<", at, constant(I64, self.vectors)))
            self._vectors(some.frame, at, 1)
            some.close()
        if self.singles:
            past = b.sub(at, constant(I64, self.vectors))
            single = Branch(loop.frame, b.icmp_unsigned("<", past, constant(I64, self.singles)))
            element = single.frame.builder.add(past, constant(I64, group_size(self.inner) - self.singles))
            self._bind(single.frame, element, 1)
            self._store(self._evaluate(single.frame))
            single.close()
        loop.close()

    def _vectors(self, frame: Frame, first: ir.Value, count: int) -> None:
        """``count`` vectors of this thread: all reads come before all writes."""
        found = []
        for step in range(count):
            at = frame.builder.add(first, constant(I64, step * self.threads)) if step else first
            self._bind(frame, at, self.lanes)
            found.append(self._evaluate(frame))
        for values in found:
            self._store(values)

    def _bind(self, frame: Frame, at: ir.Value, lanes: int) -> None:
        """The loop variables of vector (or, of one lane, element) number ``at``."""
        e, b = self.e, frame.builder
        total = self.vectors if lanes > 1 else self.vectors * self.lanes + self.singles
        zero = Val((constant(I64, 0),), e.entry)
        for group in reversed([*self.outer, self.inner]):
            if not group:
                continue
            inner = group is self.inner
            steps = group_size(group) // (lanes if inner else 1)
            at, count = split_number(b, at, total, steps)
            total = -(-total // steps)
            if inner and lanes > 1:
                count = b.mul(count, constant(I64, lanes))
            for v in group[:-1]:
                e.bind(v, zero)
            e.bind(group[-1], Val((count,), frame), lanes if inner else 1, whole=inner and lanes > 1)

    def _evaluate(self, frame: Frame) -> list[_Found]:
        """The elements of all outputs where the variables are now, and where they go."""
        e = self.e
        found = []
        for o, offset in zip(self.outputs, self.stores, strict=True):
            value = o.element(e, self.space.index, ())
            at, step, lanes, vector = e.split(offset)
            apart = lanes > 1 and (step != 1 or vector is not None)
            found.append(_Found(frame, value, e.index(offset) if apart else at, lanes))
        return found

    def _store(self, found: Sequence[_Found]) -> None:
        for o, x in zip(self.outputs, found, strict=True):
            place = self.function.pointer(o.array)
            parts = x.value.wide(x.lanes)
            b = deepest([x.value, x.at], x.frame).builder
            if x.at.lanes > 1:
                memory.scatter(b, parts, place, x.at.value, o.shape.dtype)
            else:
                memory.store(b, parts, place, x.at.value, o.shape.dtype, None)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a thread is to write: the element or elements, and the offset of the first, or of each."""

    frame: Frame
    value: Val
    at: Val
    lanes: int


def widened(e: GpuEmitter, number: ir.Value, past: int) -> ir.Value:
    """An i32 below ``past`` as i64."""
    return constant(I64, 0) if past == 1 else e.entry.builder.zext(number, I64)


def split_number(b: ir.IRBuilder, at: ir.Value, past: int, size: int) -> tuple[ir.Value, ir.Value]:
    """Quotient and remainder by ``size`` of the i64 ``at``, which is below ``past``."""
    if size == 1:
        return at, constant(I64, 0)
    if size >= past:
        return constant(I64, 0), at
    if past > 1 << 31:
        return b.udiv(at, constant(I64, size)), b.urem(at, constant(I64, size))
    low = b.trunc(at, I32)
    quotient = b.udiv(low, constant(I32, size))
    remainder = b.sub(low, b.mul(quotient, constant(I32, size)))
    return b.zext(quotient, I64), b.zext(remainder, I64)


def traffic(a: Access) -> int:
    """Bytes of an array that a map touches."""
    counted = math.prod(v.size for v in bases(a.offset) if isinstance(v, LoopVar))
    return min(a.shape.size, counted) * a.shape.dtype.nbytes


def big_accesses(accesses: Sequence[Access]) -> list[Access]:
    """Those that decide how memory is walked."""
    most = max(map(traffic, accesses), default=0)
    return [a for a in accesses if traffic(a) * _SMALL >= most]


def _aligned(a: Access, inner: LoopVar) -> int:
    """The most elements that an access may take together along ``inner`` (0: any number)."""
    whole = math.gcd(*(_steps(c.expr - c.low, inner) for c in a.mask), *(c.high - c.low for c in a.mask))
    step = a.offset.coefficient(inner)
    if step in {0, 1}:
        return math.gcd(whole, _steps(a.offset, inner))
    return math.gcd(whole, _steps(a.offset * -1 - 1, inner)) if step == -1 else 1


def _steps(e: Expr, inner: LoopVar) -> int:
    """What everything in ``e`` besides ``inner`` is a multiple of; 0 where it does not depend on ``inner``."""
    others = [(v, c) for v, c in e.terms if v is not inner]
    if any(inner in bases(Expr.of(v)) for v, _ in others):
        return 1
    return math.gcd(e.const, *(c for _, c in others)) if e.coefficient(inner) else 0
