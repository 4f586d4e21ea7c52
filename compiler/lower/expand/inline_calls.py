"""Inline calls: the step is one function, and fusion sees through former call boundaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shardc.hlo.ir.ir import Instruction, Module, Rebuilt, rebuild_computation
from shardc.hlo.ir.make import inline, keep_reachable

__all__ = ["InlineCalls"]


#: Ops that run a computation once, and the attribute that holds it. An async pair runs it where it starts. Fusions of
#: another compiler are taken apart too: what pays here is decided here.
_CALLS = {"call": "to_apply", "async-start": "calls", "fusion": "calls"}


@dataclass(frozen=True, slots=True)
class InlineCalls:
    """Every ``call``, ``async-start`` and ``fusion`` becomes the instructions of its computation."""

    name: str = "inline-calls"
    why: str = "one function holds the whole step, so that fusion sees all of it"
    looks_at: ClassVar[frozenset[str]] = frozenset({*_CALLS, "async-update", "async-done"})

    def run(self, module: Module) -> Module:
        new = Rebuilt()
        kept: dict[Instruction, list[Instruction]] = {}

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            if old.opcode in _CALLS:
                return inline(new[old.attrs[_CALLS[old.opcode]]], operands, kept.setdefault(old, []))
            return operands[0] if old.opcode in ("async-update", "async-done") else None

        for c in module.computations:
            new[c] = rebuild_computation(c, change, new, inlined=kept)
        return keep_reachable(module, new[module.entry])
