"""Expand custom calls: those that stand for other ops become these ops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from shardc.hlo.ir.custom_calls import CustomCalls
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.make import inline, keep_reachable
from shardc.hlo.transforms.known_custom_calls import expand_custom_call

__all__ = ["ExpandCustomCalls"]


@dataclass(frozen=True, slots=True)
class ExpandCustomCalls:
    """Top-k and the like, written as HLO's own ops; users' calls where they say how."""

    name: str = "expand-custom-calls"
    why: str = "an operation that HLO has needs no code of its own"
    custom_calls: CustomCalls = field(default_factory=dict, hash=False)
    looks_at: ClassVar[frozenset[str]] = frozenset({"custom-call"})

    def run(self, module: Module) -> Module:
        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            computation = expand_custom_call(old, self.custom_calls) if old.opcode == "custom-call" else None
            return None if computation is None else inline(computation, operands, [])

        module = rebuild_module(module, change)
        return keep_reachable(module, module.entry)
