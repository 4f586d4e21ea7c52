"""Code for elements in kernels for CPUs: what they call besides arithmetic is a function of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llvmlite import ir

from shardc.compiler.cpu.called import EmitProgram, call_function
from shardc.compiler.elements.elements import ElementRule
from shardc.compiler.elements.fold_emitter import FoldEmitter
from shardc.compiler.elements.frames import Val, deepest
from shardc.hlo.ir.ir import Computation, Instruction

__all__ = ["CpuEmitter"]


class CpuEmitter(FoldEmitter):
    """An element emitter in the body of a kernel; ``emit_program`` makes the functions that it calls."""

    def __init__(
        self,
        function: ir.Function,
        pointers: Mapping[Instruction, ir.Value],
        rules: Mapping[str, ElementRule],
        vector_bits: int,
        emit_program: EmitProgram,
    ) -> None:
        super().__init__(function, pointers, rules, vector_bits)
        self._emit_program = emit_program

    def call_program(self, computation: Computation, arguments: Sequence[Val]) -> list[Val]:
        frame = deepest(arguments, self.entry)
        lanes = max((v.lanes for v in arguments), default=1)
        program = self._emit_program(frame.builder.module, computation)
        found = call_function(program, self._slots, frame.builder, computation, arguments)
        return [Val(parts, frame, lanes) for parts in found]
