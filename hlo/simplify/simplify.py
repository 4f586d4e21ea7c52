"""Simplify: local rewrite rules, applied until none fits (peephole optimisation to a fixed point).

Rules keep every bit of a float result that a program can see: no reassociation, no reciprocal for a division, and
``x + 0.0`` stays because it turns -0.0 into 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.make import keep_reachable
from shardc.hlo.simplify.eliminate_dead import EliminateDead
from shardc.hlo.simplify.rules import RULES

__all__ = ["Rule", "Simplify", "simplify_instruction"]

#: Looks at one instruction; returns what to use instead, or None.
Rule = Callable[[Instruction], Instruction | None]

_MAX_SWEEPS = 20
_MAX_CHAIN = 100


@dataclass(frozen=True, slots=True)
class Simplify:
    """Apply the rule table to a fixed point."""

    name: str = "simplify"
    why: str = "identities, constants and chains of data movement cost nothing at run time"
    rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=lambda: RULES, repr=False)

    def run(self, module: Module) -> Module:
        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            current = old if operands is old.operands else old.replace(operands=operands)
            better = simplify_instruction(current, self.rules)
            return None if better is current else better

        for _ in range(_MAX_SWEEPS):
            after = rebuild_module(module, change)
            if after is module:
                break
            module = EliminateDead().run(keep_reachable(after, after.entry))
        return module


def simplify_instruction(instruction: Instruction, rules: Mapping[str, tuple[Rule, ...]] = RULES) -> Instruction:
    """The end of the chain of rules that start at ``instruction``."""
    for _ in range(_MAX_CHAIN):
        for rule in rules.get(instruction.opcode, ()):
            better = rule(instruction)
            if better is not None and better is not instruction:
                instruction = better
                break
        else:
            return instruction
    raise AssertionError(f"simplification rules undo each other on {instruction!r}")
