"""Eliminate what nobody reads."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Computation, Module, topological
from shardc.hlo.ir.make import effects, map_computations

__all__ = ["EliminateDead", "live_part"]


@dataclass(frozen=True, slots=True)
class EliminateDead:
    """Keep what the results or side effects need."""

    name: str = "eliminate-dead"
    why: str = "drop values that are never read"

    def run(self, module: Module) -> Module:
        return map_computations(module, live_part)


def live_part(computation: Computation) -> Computation:
    """The instructions that the root, the parameters and side effects need, in their present order."""
    keep = [i for i in computation if i.opcode == "parameter"]
    live = set(topological([*keep, *effects(computation), computation.root]))
    if len(live) == len(computation.instructions):
        return computation
    return Computation(computation.name, (i for i in computation if i in live), computation.root)
