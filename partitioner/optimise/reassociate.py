"""One reduction of a sum instead of a sum of reductions."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir import Computation, Instruction, Module, rebuild_computation, users_of
from shardc.partitioner.optimise.reduction import again, kind, reducer

__all__ = ["Reassociate"]

_NOTE = "added up before it is reduced"


@dataclass(frozen=True, slots=True)
class Reassociate:
    """``R(a) + R(b)`` becomes ``R(a + b)`` where nobody else reads the two; likewise for differences, max and min."""

    name: str = "reassociate"
    why: str = "what is added up before the reduction travels once"

    def run(self, module: Module) -> Module:
        called: dict[Computation, Computation] = {}
        for c in module.computations:
            called[c] = _reassociated(c, called)
        if all(k is v for k, v in called.items()):
            return module
        return module.with_(computations=tuple(called.values()), entry=called[module.entry])


def _reassociated(computation: Computation, called: dict[Computation, Computation]) -> Computation:
    if sum(bool(reducer(i)) for i in computation) < 2:
        return rebuild_computation(computation, lambda old, operands: None, called)
    users = users_of(computation)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old.opcode not in ("add", "subtract", "maximum", "minimum"):
            return None
        a, b = operands
        fits = reducer(a) == ("add" if old.opcode == "subtract" else old.opcode) and reducer(b) == reducer(a)
        alone = all(len(users[o]) == 1 and o is not computation.root for o in old.operands)
        if not fits or not alone or kind(a) != kind(b):
            return None
        x, y = a.operands[0], b.operands[0]
        return again(a, old.replace(operands=(x, y), shape=x.shape), _NOTE)

    return rebuild_computation(computation, change, called)
