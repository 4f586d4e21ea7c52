"""Expand ops that have no code of their own: the table in `expansions` writes them as programs of simpler ops."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.compiler.lower.expansions import EXPANSIONS
from shardc.hlo.ir import Computation, Instruction, Module, rebuild_computation
from shardc.hlo.simplify.make import inline, keep_reachable, with_effects

__all__ = ["ExpandOps"]


@dataclass(frozen=True, slots=True)
class ExpandOps:
    """Ragged and scaled products, scans, random numbers, stochastic rounding, run-time sizes become simpler ops."""

    name: str = "expand-ops"
    why: str = "one way to say it is enough for every target"

    def run(self, module: Module) -> Module:
        new: dict[Computation, Computation] = {}
        kept: list[Instruction] = []

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            expand = EXPANSIONS.get(old.opcode)
            if expand is None:
                return None
            attrs = {k: new.get(v, v) if isinstance(v, Computation) else v for k, v in old.attrs.items()}
            return inline(expand(old.replace(attrs=attrs)), operands, kept)

        for c in module.computations:
            kept.clear()
            new[c] = with_effects(rebuild_computation(c, change, new), kept)
        return keep_reachable(module, new[module.entry])
