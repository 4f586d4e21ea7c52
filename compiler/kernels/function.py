"""A kernel being made, and the general way to make one: a loop nest over the elements of its results."""

from __future__ import annotations

from collections.abc import Mapping

from llvmlite import ir

from shardc.compiler.kernels.affine import Mask
from shardc.compiler.kernels.elements import Element, Elements, Index
from shardc.compiler.kernels.emitter import Emitter
from shardc.compiler.kernels.mapping import Output, emit_map
from shardc.compiler.kernels.rules import RULES
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir import Computation, Instruction
from shardc.hlo.types import Shape
from shardc.native.target import Target

__all__ = ["Kernel", "fused_kernel", "loop_kernel"]


class Kernel:
    """A function being filled: the instruction, a pointer per operand leaf and per result leaf, the device number."""

    def __init__(self, function: ir.Function, instruction: Instruction, target: Target) -> None:
        self.function = function
        self.instruction = instruction
        self.target = target
        shapes = [s for o in instruction.operands for s in o.shape.leaves()]
        self.operands: list[ir.Value] = list(function.args[: len(shapes)])
        self.result_shapes: list[Shape] = [s for s in instruction.shape.leaves() if s.is_array]
        self.results: list[ir.Value] = list(function.args[len(shapes) : -1])
        self.device: ir.Value = function.args[-1]

    def pointers(self) -> dict[Instruction, ir.Value]:
        """Where each (array) operand lies."""
        return dict(zip(self.instruction.operands, self.operands, strict=True))

    def emitter(self, pointers: Mapping[Instruction, ir.Value] | None = None) -> Emitter:
        """An element emitter whose leaves are the operands (or what ``pointers`` says)."""
        return Emitter(self.function, self.pointers() if pointers is None else pointers, RULES, self.target.vector_bits)


def loop_kernel(kernel: Kernel) -> None:
    """Any op with an element rule: a map over its result."""
    i = kernel.instruction
    if i.opcode not in RULES:
        raise UnsupportedError(f"{i.opcode} has no CPU code", where=f"%{i.name}")
    e = kernel.emitter()

    def element(part: int) -> Element:
        def get(e: Elements, index: Index, mask: Mask) -> object:
            value = RULES[i.opcode](e, i, index, mask) if not i.shape.is_tuple else e.value(i, index, mask)
            return value[part] if isinstance(value, list) else value

        return get

    outputs = [Output(p, s, element(n)) for n, (p, s) in enumerate(_results(kernel))]
    _fill(e, outputs)
    e.finish()


def _results(kernel: Kernel) -> list[tuple[ir.Value, Shape]]:
    return list(zip(kernel.results, kernel.result_shapes, strict=True))


def _fill(e: Emitter, outputs: list[Output]) -> None:
    """One loop nest for each run of results of the same dimensions."""
    start = 0
    for end in range(1, len(outputs) + 1):
        if end == len(outputs) or outputs[end].shape.dims != outputs[start].shape.dims:
            emit_map(e, outputs[start].shape.dims, outputs[start:end])
            start = end


def fused_kernel(kernel: Kernel, computation: Computation) -> None:
    """A kernel that evaluates ``computation`` on the instruction's operands."""
    e = kernel.emitter(dict(zip(computation.parameters, kernel.operands, strict=True)))
    root = computation.root
    roots = root.operands if root.opcode == "tuple" else (root,)

    def element(i: Instruction, part: int | None) -> Element:
        def get(e: Elements, index: Index, mask: Mask) -> object:
            value = e.value(i, index, mask)
            return value if part is None else value[part]

        return get

    elements = [
        element(r, part if r.shape.is_tuple else None) for r in roots for part, _ in enumerate(r.shape.leaves())
    ]
    outputs = [Output(p, s, f) for (p, s), f in zip(_results(kernel), elements, strict=True)]
    _fill(e, outputs)
    e.finish()
