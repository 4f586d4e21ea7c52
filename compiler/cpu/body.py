"""A kernel being made: the function, its pointers, and the instruction that it computes."""

from __future__ import annotations

from collections.abc import Mapping

from llvmlite import ir

from shardc.compiler.cpu.called import EmitProgram
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.elements.elements import ElementRule
from shardc.compiler.elements.rules import RULES
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape
from shardc.native.llvm.target import Target

__all__ = ["CpuKernel"]


class CpuKernel:
    """A function being filled: the instruction, a pointer per operand leaf and per result leaf, the device number.

    A ``counted`` one computes only the first ``count`` elements, an argument in front of the device's number.
    """

    def __init__(
        self,
        function: ir.Function,
        instruction: Instruction,
        target: Target,
        emit_program: EmitProgram,
        tuning: Tuning = DEFAULT,
        *,
        counted: bool = False,
    ) -> None:
        self.function = function
        self.instruction = instruction
        self.target = target
        self.emit_program = emit_program
        self.tuning = tuning
        shapes = [s for o in instruction.operands for s in o.shape.leaves()]
        self.result_shapes: list[Shape] = [s for s in instruction.shape.leaves() if s.is_array]
        end = len(shapes) + len(self.result_shapes)
        self.operands: list[ir.Value] = list(function.args[: len(shapes)])
        self.results: list[ir.Value] = list(function.args[len(shapes) : end])
        self.device: ir.Value = function.args[-1]
        self.count: ir.Value | None = function.args[-2] if counted else None

    def pointers(self) -> dict[Instruction, ir.Value]:
        """Where each (array) operand lies."""
        return dict(zip(self.instruction.operands, self.operands, strict=True))

    def emitter(
        self, pointers: Mapping[Instruction, ir.Value] | None = None, rules: Mapping[str, ElementRule] = RULES
    ) -> CpuEmitter:
        """An element emitter whose leaves are the operands (or what ``pointers`` says)."""
        leaves = self.pointers() if pointers is None else pointers
        return CpuEmitter(self.function, leaves, rules, self.target.vector_bits, self.emit_program)
