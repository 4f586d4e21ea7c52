"""Calls become the instructions of their computation, so that no layout is fixed at a call's border."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from shardc.hlo.ir.build import reachable_computations
from shardc.hlo.ir.ir import Computation, Instruction, Module, Rebuilt, has_side_effect, rebuild_computation
from shardc.partitioner.rewrite.manual import is_manual

__all__ = ["InlineShardedCalls"]

#: Ops that run a computation once, and the attribute that holds it.
_CALLS = {"call": "to_apply", "fusion": "calls"}


@dataclass(frozen=True, slots=True)
class InlineShardedCalls:
    """Calls are opened, but for those with side effects, those inside manual computations, and those of large callees.

    A callee keeps its own propagated layouts. Partial values then leave it as they are, and what a loop's body does
    through calls is in sight of the passes over loops. A callee stays one, partitioned once, where opening its calls
    would add more than ``most`` instructions.
    """

    most: int = 2000
    name: str = "inline-sharded-calls"
    why: str = "the boundary of a call would reduce and reshard values that only pass through"

    def run(self, module: Module) -> Module:
        called = Rebuilt()
        calls = [i.attrs[_CALLS[i.opcode]] for i in module.instructions() if i.opcode in _CALLS]
        if not calls:
            return module
        sites = Counter(calls)

        roots = {c.root for c in module.computations}

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            if old.opcode == "get-tuple-element" and old.operands[0].opcode in _CALLS and operands[0].opcode == "tuple":
                return operands[0].operands[old.attrs["index"]] if old not in roots else None
            if old.opcode not in _CALLS or has_side_effect(old):
                return None
            before: Computation = old.attrs[_CALLS[old.opcode]]
            callee = called[before]
            large = (sites[before] - 1) * len(callee.instructions) > self.most
            return None if large or any(map(is_manual, (old, *callee))) else _inline(callee, operands)

        for c in module.computations:
            called[c] = rebuild_computation(c, change, called)
        if all(k is v for k, v in called.items()):
            return module
        entry = called[module.entry]
        return module.with_(computations=reachable_computations(entry), entry=entry)


def _inline(callee: Computation, operands: tuple[Instruction, ...]) -> Instruction:
    """The value of a callee on ``operands``, as new instructions."""
    new: dict[Instruction, Instruction] = dict(zip(callee.parameters, operands, strict=True))
    for i in callee:
        if i.opcode != "parameter":
            new[i] = i.replace(operands=tuple(new[o] for o in i.operands))
    return new[callee.root]
