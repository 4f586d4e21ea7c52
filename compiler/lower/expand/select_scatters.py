"""A scatter of one element per row into equal elements becomes a selection, which kernels around it compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shardc.compiler.lower.expand.expand_one_per_row import scatter_by_rows
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module

__all__ = ["SelectScatters"]


@dataclass(frozen=True, slots=True)
class SelectScatters:
    """Where there is one update per row (the gradient of `take_along_axis`), no array of zeros is made for it."""

    name: str = "select-scatters"
    why: str = "one-hot values need no memory"
    looks_at: ClassVar[frozenset[str]] = frozenset({"scatter"})

    def run(self, module: Module) -> Module:
        return rebuild_module(module, _selected, {"scatter"})


def _selected(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    return scatter_by_rows(old if operands is old.operands else old.replace(operands=operands))
