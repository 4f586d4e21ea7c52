"""Collectives on what a loop never changes happen once, before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.costs.kernels.peak_memory import estimate_peak
from shardc.costs.kernels.trips import trip_count
from shardc.costs.machines.machine import Machine
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.partitioner.optimise.loops.carry import Carry, change_loops
from shardc.partitioner.optimise.loops.hoist import hoist, invariant, needs
from shardc.partitioner.optimise.loops.stages import Worth

__all__ = ["HoistCollectives"]


@dataclass(frozen=True, slots=True)
class HoistCollectives:
    """A collective whose operands are the same in every iteration becomes an element of the loop's state.

    It then takes memory as long as the loop runs: on a ``machine`` no more than its devices have beside the program's
    estimated peak, else no more than ``growth`` times that peak; with ``memory`` no more than that has beside the peak.
    What does not fit stays in the loop. Loops whose names are in ``kept`` stay as they are.
    """

    machine: Machine | None = None
    growth: float = 1.0
    memory: float | None = None
    kept: frozenset[str] | None = None
    name: str = "hoist-collectives"
    why: str = "weights that a loop does not change are gathered once"

    def run(self, module: Module) -> Module:
        if not any(i.opcode == "while" for i in module.instructions()):
            return module
        peak = estimate_peak(module)
        left = round(self.growth * peak) if self.machine is None else self.machine.device.memory_bytes - peak
        room = _MemoryLeft(left if self.memory is None else min(left, self.memory - peak))
        return change_loops(module, lambda carry, _: _hoist(carry, room), kept=self.kept or frozenset())

    def may_be_hidden(self, module: Module, loop: str) -> bool:
        """Whether iterations of a loop of this name would hide what is hoisted out of it, and save time with that."""
        worth = Worth.of(module, "auto", self.machine)
        loops = [i for i in module.instructions() if i.opcode == "while" and i.name == loop]
        return worth is not None and any(_hidden(i, worth) for i in loops)


@dataclass(slots=True)
class _MemoryLeft:
    """Bytes that are left."""

    nbytes: float

    def take(self, wanted: int) -> bool:
        """Whether ``wanted`` bytes are left. If so, they are taken."""
        if wanted > self.nbytes:
            return False
        self.nbytes -= wanted
        return True


def _hidden(loop: Instruction, worth: Worth) -> bool:
    body, trips = loop.attrs["body"], trip_count(loop)
    return trips is not None and worth.hides(body, _invariant_collectives(body), trips)


def _invariant_collectives(body: Computation) -> list[Instruction]:
    still = invariant(body)
    return [i for i in body if i in still and i.opcode in COLLECTIVES and not i.shape.is_tuple]


def _hoist(carry: Carry, room: _MemoryLeft) -> Sequence[Instruction] | None:
    moved = _invariant_collectives(carry.body)
    return hoist(carry, _fitting(moved, invariant(carry.body), room))


def _fitting(moved: Sequence[Instruction], still: set[Instruction], room: _MemoryLeft) -> list[Instruction]:
    """Those of ``moved`` to keep during the loop; what they are computed from goes along with them.

    Where there is no room for one, there may be for what it is computed from.
    """
    sources = {i: needs(i, still) for i in moved}
    left, kept = list(moved), set[Instruction]()
    while left:
        last = [i for i in left if not any(i in sources[o] for o in left)]
        fit = [i for i in last if room.take(i.shape.nbytes)]
        kept.update(fit)
        gone = set(last).union(*(sources[i] for i in fit))
        left = [i for i in left if i not in gone]
    return [i for i in moved if i in kept]
