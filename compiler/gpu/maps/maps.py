"""Maps over elements on a grid: what all of them share, whichever way their threads walk."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import Expr, LoopVar, Mask, VarSource, linear
from shardc.compiler.elements.elements import Access, Element, Elements, Index, bases
from shardc.compiler.elements.frames import Frame, Val, deepest
from shardc.compiler.elements.loop_space import merge, plan_space
from shardc.compiler.elements.rules import RULES
from shardc.compiler.elements.scalar_programs import is_scalar_program
from shardc.compiler.gpu.function import GpuEmitter, GpuFunction, GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.hlo.ir.ir import Computation, Instruction, called_computations
from shardc.hlo.ir.types import Shape
from shardc.native.math.vector import I32, I64, constant

__all__ = [
    "Found",
    "GridOutput",
    "PlannedMap",
    "big_accesses",
    "extend_number",
    "is_computed_by_rules",
    "split_number",
    "traffic",
    "value_of",
]

#: Arrays so many times smaller than the largest one do not decide how memory is walked.
_SMALL = 8


@dataclass(frozen=True)
class GridOutput:
    """An array to fill with elements.

    With ``place``, the iteration is over indices below ``over``, and ``place`` says which index of the array an index
    of the iteration writes.
    """

    array: LaunchArray
    shape: Shape
    element: Element
    place: Callable[[Elements, Index], Index] | None = None
    over: tuple[int, ...] = ()

    @property
    def dims(self) -> tuple[int, ...]:
        """What the iteration is over."""
        return self.shape.dims if self.place is None else self.over


def is_computed_by_rules(computation: Computation) -> bool:
    """Whether element rules can compute everything in the computation, and called computations are arithmetic."""
    inside = [i for i in computation if i.opcode not in ("parameter", "tuple")]
    called = [c for i in inside for _, c in called_computations(i)]
    return all(i.opcode in RULES for i in inside) and all(map(is_scalar_program, called))


def value_of(instruction: Instruction) -> Element:
    """The elements of an instruction."""

    def element(e: Elements, index: Index, mask: Mask) -> object:
        return e.value(instruction, index, mask)

    return element


@dataclass(frozen=True, slots=True)
class Found:
    """What a thread is to write: the element or elements, and the offset of the first, or of each."""

    frame: Frame
    value: Val
    at: Val
    lanes: int


class PlannedMap:
    """The map of one launch, planned: for every index of an iteration, that element of each output.

    ``groups`` are the loops, outermost first; those that all accesses treat as one are merged. `begin` makes the
    function; then, with the loop variables bound, `evaluate` and `store` are what an iteration does.
    """

    def __init__(
        self, kernel: GpuKernel, leaves: Mapping[Instruction, LaunchArray], outputs: Sequence[GridOutput]
    ) -> None:
        self.kernel, self.leaves, self.outputs = kernel, dict(leaves), list(outputs)
        self.source = VarSource()
        elements = Elements(self.source, leaves, RULES)
        self.space, self.recorder = plan_space(elements, outputs[0].dims, [o.element for o in outputs])
        index = self.space.index
        places = [index if o.place is None else o.place(elements, index) for o in outputs]
        self.stores = [linear(at, o.shape.dims) for at, o in zip(places, outputs, strict=True)]
        stored = [Access(o.shape, s, (), o) for o, s in zip(outputs, self.stores, strict=True)]
        self.accesses = [*self.recorder.accesses, *stored]
        uses = [*self.recorder.expressions(), *(part for s in self.stores for part in _inner(s))]
        self.groups = merge(self.space.variables, [a.offset for a in self.accesses], uses)
        self.function: GpuFunction
        self.e: GpuEmitter

    @property
    def plain(self) -> bool:
        """Whether each element is arithmetic on elements that are read, without loops of its own."""
        return not (self.recorder.folds or self.recorder.one_by_one)

    def begin(self, threads: int) -> GpuEmitter:
        """The function, for blocks of ``threads``."""
        arrays = dict.fromkeys([*self.leaves.values(), *(o.array for o in self.outputs)])
        self.function = self.kernel.function(list(arrays), threads)
        self.e = self.function.emitter(self.leaves)
        self.e.source = self.source
        return self.e

    def finish(self, blocks: int, shared_bytes: int = 0) -> None:
        self.e.finish()
        self.kernel.launch(self.function, (blocks,), shared_bytes)

    def bind(self, group: Sequence[LoopVar], counter: Val, lanes: int = 1) -> None:
        """The group's last variable counts for all of it, in multiples of ``lanes``; the others stay 0."""
        zero = Val((constant(I64, 0),), self.e.entry)
        for v in group[:-1]:
            self.e.bind(v, zero)
        self.e.bind(group[-1], counter, lanes, whole=lanes > 1)

    def evaluate(self, frame: Frame) -> list[Found]:
        """The elements of all outputs where the variables are now, and where they go."""
        e = self.e
        found = []
        for o, offset in zip(self.outputs, self.stores, strict=True):
            value = o.element(e, self.space.index, ())
            at, step, lanes, vector = e.split(offset)
            scattered = lanes > 1 and (step != 1 or vector is not None)
            found.append(Found(frame, value, e.index(offset) if scattered else at, lanes))
        return found

    def store(self, found: Sequence[Found]) -> None:
        for o, x in zip(self.outputs, found, strict=True):
            place = self.function.pointer(o.array)
            parts = x.value.wide(x.lanes)
            b = deepest([x.value, x.at], x.frame).builder
            if x.at.lanes > 1:
                memory.scatter(b, parts, place, x.at.value, o.shape.dtype)
            else:
                memory.store(b, parts, place, x.at.value, o.shape.dtype, None)


def _inner(e: Expr) -> list[Expr]:
    """What the variables of an expression are made from."""
    return [Expr.of(v) for w in e.variables() if not isinstance(w, LoopVar) for v in bases(Expr.of(w)) if v is not w]


def extend_number(e: GpuEmitter, number: ir.Value, past: int) -> ir.Value:
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
