"""Arithmetic on what a loop never changes happens once, before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from shardc.costs.ops.table import instruction_flops
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.loops.loop_counter import carried_element
from shardc.partitioner.optimise.loops.carry import Carry, change_loops
from shardc.partitioner.optimise.loops.hoist import hoist, invariant, needs

__all__ = ["HoistArithmetic"]


@dataclass(frozen=True, slots=True)
class HoistArithmetic:
    """What costs operations and is always the same is carried, if it is no larger than what it is made of."""

    name: str = "hoist-arithmetic"
    why: str = "a loop computes only what changes"
    looks_at: ClassVar[frozenset[str]] = frozenset({"while"})

    def run(self, module: Module) -> Module:
        return change_loops(module, _hoist)


def _hoist(carry: Carry, around: Computation) -> Sequence[Instruction] | None:
    still = invariant(carry.body)

    def pays(i: Instruction) -> bool:
        if i not in still or not i.shape.is_array or not i.shape.dims or not instruction_flops(i):
            return False
        made_of = [x for x in needs(i, still) if carried_element(x, carry.body) is not None]
        return i.shape.nbytes <= sum(x.shape.nbytes for x in made_of)

    return hoist(carry, [i for i in carry.body if pays(i)])
