"""A kernel being made for a GPU: its launches, and the function of one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from llvmlite import ir

from shardc.compiler.elements.affine import InRange
from shardc.compiler.elements.expansions import EXPANSIONS
from shardc.compiler.elements.fold_emitter import FoldEmitter
from shardc.compiler.elements.frames import Val, apply
from shardc.compiler.elements.rules import RULES
from shardc.compiler.gpu.launches import Fill, KernelLaunch, LaunchArray, Launches
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import Shape
from shardc.native.gpu.code import grid_code
from shardc.native.gpu.grid import GridCode
from shardc.native.gpu.runtime import LaunchShape
from shardc.native.gpu.target import GpuTarget
from shardc.native.math.vector import I64, constant

__all__ = ["ACCESS_BITS", "GpuEmitter", "GpuFunction", "GpuKernel"]

#: The widest access of a thread.
ACCESS_BITS = 128
_ALIGNMENT = 256


class GpuEmitter(FoldEmitter):
    """An element emitter in the body of a thread."""

    def __init__(self, code: GridCode, function: ir.Function, pointers: Mapping[Instruction, ir.Value]) -> None:
        super().__init__(function, pointers, RULES, ACCESS_BITS)
        self.code = code

    def finish(self) -> None:
        """End the function."""
        self.code.enter(self._slots)
        self._slots.branch(self._body)
        self.code.leave(self.entry.builder)

    def _condition(self, c: InRange) -> Val:
        """Bounds that lie between vectors hold for all lanes or for none: no masks, which GPUs do not have."""
        return self._uniform(c) or super()._condition(c)

    def _uniform(self, c: InRange) -> Val | None:
        bound = [(self.bound(v), k) for v, k in c.expr.terms]
        wide = [(x, k) for x, k in bound if x.lanes > 1]
        if len(wide) != 1 or wide[0][1] != 1 or not wide[0][0].whole or any(x.value.lanes > 1 for x, _ in bound):
            return None
        lanes = wide[0][0].lanes
        if any(n % lanes for n in (c.expr.const, c.low, c.high, *(k for x, k in bound if x.lanes == 1))):
            return None
        start = self.split(c.expr)[0]

        def emit(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
            return b.icmp_unsigned("<", b.sub(x, constant(I64, c.low)), constant(I64, c.high - c.low))

        return apply(emit, [start], self.entry)


class GpuFunction:
    """One kernel function: ``pointer`` of each of its arrays, and what a thread may ask for (``code``)."""

    def __init__(self, kernel: GpuKernel, symbol: str, arrays: Sequence[LaunchArray], threads: int) -> None:
        self.symbol, self.arrays, self.threads = symbol, tuple(arrays), threads
        self.code = grid_code(kernel.target)
        readonly = [n for n, a in enumerate(arrays) if a.role == "operand" and a.index not in kernel.aliased]
        self.function = self.code.define(kernel.module, symbol, len(arrays), readonly, threads)
        self._pointers = dict(zip(self.arrays, self.code.pointers(self.function), strict=True))
        self.device = self.code.device(self.function)

    def pointer(self, array: LaunchArray) -> ir.Value:
        return self._pointers[array]

    def emitter(self, leaves: Mapping[Instruction, LaunchArray]) -> GpuEmitter:
        """An element emitter whose ``leaves`` lie in arrays of this function. One per function; `finish` ends it."""
        return GpuEmitter(self.code, self.function, {i: self.pointer(a) for i, a in leaves.items()})


@dataclass
class _EmittedLaunches:
    """What there is of a kernel so far: launches, bytes of scratch memory, functions."""

    steps: list[KernelLaunch | Fill] = field(default_factory=list)
    scratch: int = 0
    functions: int = 0


class GpuKernel:
    """The launches of ``instruction``, being made in ``module``.

    ``aliased`` numbers the operand leaves that may lie in the memory of a result (where `in_place_pairs` allows it).
    """

    def __init__(
        self,
        module: ir.Module,
        instruction: Instruction,
        name: str,
        target: GpuTarget,
        aliased: frozenset[int] = frozenset(),
        tuning: Tuning = DEFAULT,
    ) -> None:
        self.module, self.instruction, self.name = module, instruction, name
        self.target, self.aliased, self.tuning = target, aliased, tuning
        shapes = [s for o in instruction.operands for s in o.shape.leaves()]
        self.result_shapes: list[Shape] = [s for s in instruction.shape.leaves() if s.is_array]
        self.operands = [LaunchArray("operand", n) for n in range(len(shapes))]
        self.results = [LaunchArray("result", n) for n in range(len(self.result_shapes))]
        self._made = _EmittedLaunches()

    def part(
        self, instruction: Instruction, operands: Sequence[LaunchArray], results: Sequence[LaunchArray]
    ) -> GpuKernel:
        """A kernel whose launches belong to this one's, on arrays of this one."""
        kernel = GpuKernel(self.module, instruction, self.name, self.target, self.aliased, self.tuning)
        kernel.operands, kernel.results, kernel._made = list(operands), list(results), self._made
        return kernel

    @cached_property
    def computation(self) -> Computation:
        """What the kernel computes: a fusion's computation, an op written as simpler ones, or the op alone; its
        parameters are the operands."""
        i = self.instruction
        if i.opcode == "fusion":
            inside: Computation = i.attrs["calls"]
            return inside
        if i.opcode in EXPANSIONS:
            return EXPANSIONS[i.opcode](i)
        parameters = [Instruction("parameter", o.shape, attrs={"index": n}) for n, o in enumerate(i.operands)]
        root = i.replace(operands=tuple(parameters))
        return Computation(i.name, (*parameters, root), root)

    def leaves(self) -> dict[Instruction, LaunchArray]:
        """The computation's parameters, and the arrays that they are."""
        return dict(zip(self.computation.parameters, self.operands, strict=True))

    def in_place(self, i: Instruction) -> bool:
        """Whether ``i`` of the computation lies in the memory of a result."""
        array = self.leaves().get(i)
        return array is not None and array.role == "operand" and array.index in self.aliased

    def scratch(self, nbytes: int) -> LaunchArray:
        """Uninitialised memory for what one launch leaves to the next."""
        begin = self._made.scratch
        self._made.scratch += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return LaunchArray("scratch", begin)

    def fill(self, place: LaunchArray, byte: int, nbytes: int) -> None:
        """Set memory before the next launch."""
        self._made.steps.append(Fill(place, byte, nbytes))

    def function(self, arrays: Sequence[LaunchArray], threads: int) -> GpuFunction:
        """A new kernel function on ``arrays`` (each once), for blocks of ``threads``."""
        number = self._made.functions
        symbol = f"{self.name}_{number}" if number else self.name
        self._made.functions += 1
        return GpuFunction(self, symbol, arrays, threads)

    def launch(
        self, function: GpuFunction, grid: Sequence[int], shared_bytes: int = 0, arrays: Sequence[LaunchArray] = ()
    ) -> None:
        """Launch a finished function on a grid of up to three dimensions, behind what was launched before; on
        ``arrays`` instead of those that it was made for, none of which is an operand."""
        x, y, z = (*grid, 1, 1, 1)[:3]
        self._made.steps.append(
            KernelLaunch(
                function.symbol,
                LaunchShape((x, y, z), function.threads, shared_bytes),
                tuple(arrays) or function.arrays,
            )
        )

    def launches(self) -> Launches:
        return Launches(tuple(self._made.steps), self._made.scratch)
