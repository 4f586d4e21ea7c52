"""Collectives on what a loop never changes happen once, before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.hlo.ir import Computation, Instruction, Module
from shardc.hlo.opset import COLLECTIVES
from shardc.partitioner.optimise.carry import Carry, change_loops
from shardc.partitioner.optimise.hoist import hoist, invariant

__all__ = ["HoistCollectives"]


@dataclass(frozen=True, slots=True)
class HoistCollectives:
    """A collective whose operands are the same in every iteration becomes an element of the loop's state."""

    name: str = "hoist-collectives"
    why: str = "weights that a loop does not change are gathered once"

    def run(self, module: Module) -> Module:
        return change_loops(module, _hoisted)


def _hoisted(carry: Carry, around: Computation) -> Sequence[Instruction] | None:
    still = invariant(carry.body)
    return hoist(carry, [i for i in carry.body if i in still and i.opcode in COLLECTIVES and not i.shape.is_tuple])
