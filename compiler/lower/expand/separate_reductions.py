"""Separate reductions: all-reduces of several operands come apart, until they are combined where all are ready."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Module
from shardc.hlo.transforms.separate_collectives import separate

__all__ = ["SeparateReductions"]


@dataclass(frozen=True, slots=True)
class SeparateReductions:
    """One all-reduce per operand; `CombineCollectives` joins them again once the program has its order."""

    name: str = "separate-reductions"
    why: str = "what makes one operand need not wait for what makes the others"

    def run(self, module: Module) -> Module:
        return separate(module, ("all-reduce",))
