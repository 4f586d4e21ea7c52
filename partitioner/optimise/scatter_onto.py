"""Updates are added to what they would be added to afterwards, not to zeros first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, rebuild_computations, users_of
from shardc.hlo.ir.make import scalar_value
from shardc.hlo.ir.reducers import reducer_kind

__all__ = ["ScatterOnto"]


@dataclass(frozen=True, slots=True)
class ScatterOnto:
    """``x + scatter-add(0, updates)`` becomes ``scatter-add(x, updates)`` where nobody else reads the scatter."""

    name: str = "scatter-onto"
    why: str = "saves an array of zeros and an addition of whole arrays"
    looks_at: ClassVar[frozenset[str]] = frozenset({"scatter"})

    def run(self, module: Module) -> Module:
        return rebuild_computations(module, _rewritten)


def _rewritten(computation: Computation, called: Mapping[Computation, Computation]) -> Computation:
    if not any(i.opcode == "scatter" for i in computation):
        return rebuild_computation(computation, None, called)
    users = users_of(computation)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old.opcode != "add":
            return None
        for k, (was, new) in enumerate(zip(old.operands, operands, strict=True)):
            if _adds_to_zeros(new) and len(users[was]) == 1 and was is not computation.root:
                return new.replace(operands=(operands[1 - k], *new.operands[1:]))
        return None

    return rebuild_computation(computation, change, called)


def _adds_to_zeros(i: Instruction) -> bool:
    if i.opcode != "scatter" or i.shape.is_tuple:
        return False
    zero = scalar_value(i.operands[0])
    return reducer_kind(i.attrs["to_apply"]) == "sum" and zero is not None and not zero
