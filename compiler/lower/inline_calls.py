"""Inline calls: the step is one function, and fusion sees through former call boundaries."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.compiler.lower.make import inline, keep_reachable
from shardc.hlo.ir import Computation, Instruction, Module, rebuild_computation

__all__ = ["InlineCalls"]


@dataclass(frozen=True, slots=True)
class InlineCalls:
    """Every ``call`` becomes the instructions of its computation."""

    name: str = "inline-calls"
    why: str = "one function for the whole step, and nothing hidden from fusion"

    def run(self, module: Module) -> Module:
        new: dict[Computation, Computation] = {}

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            return inline(new[old.attrs["to_apply"]], operands) if old.opcode == "call" else None

        for c in module.computations:
            new[c] = rebuild_computation(c, change, new)
        return keep_reachable(module, new[module.entry])
