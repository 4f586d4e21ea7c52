"""What passes that pipeline loops share: copies of a body's parts, and what overlapping them is worth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shardc.costs.kernels.peak_memory import estimate_peak
from shardc.costs.kernels.work import compute_seconds
from shardc.costs.machines.machine import Machine
from shardc.hlo.ir.groups import AxisGroups, AxisPairs
from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations, has_side_effect, topological
from shardc.hlo.ir.opset import COLLECTIVES, OPS
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.loops.loop_counter import LoopCounter, carried_element, find_counter
from shardc.partitioner.emit.layout import AxisTable
from shardc.partitioner.optimise.loops.carry import Carry
from shardc.partitioner.options import Choice
from shardc.partitioner.reshard.price import Seconds

__all__ = ["Worth", "cheap", "copy_instructions", "counting", "splittable"]

_LIGHT = ("elementwise", "shape", "indexing")
#: The part of a loop's time that pipelining has to save, and the seconds of an iteration: below that the schedule keeps
#: no transfer beside kernels.
_LEAST = 0.05
_LEAST_SECONDS = 5e-6
#: The part of a loop's state that pipelining may always add: estimates of peaks are too high where much is fused.
_LITTLE = 1 / 8


def cheap(i: Instruction) -> bool:
    """Whether ``i`` may be computed apart from the rest of its iteration. It only moves data or changes single
    elements."""
    light = OPS[i.opcode].family in _LIGHT or i.opcode in ("partition-id", "replica-id", "tuple", "get-tuple-element")
    return light and not has_side_effect(i) and not any(called_computations(i))


def splittable(carry: Carry) -> bool:
    """Whether parts of the body may run before or after the loop."""
    return not any(has_side_effect(i) for i in carry.body)


def counting(carry: Carry) -> LoopCounter | None:
    """How the loop counts, if the count is in its own instructions."""
    told = "known_trip_count" in str(carry.loop.attrs.get("backend_config", ""))
    return None if told else find_counter(carry.rebuilt(carry.initial, carry.condition, carry.body))


def copy_instructions(
    wanted: Iterable[Instruction], body: Computation, state: Sequence[Instruction], done: dict[Instruction, Instruction]
) -> list[Instruction]:
    """``wanted`` of the body computed from other elements of its state; ``done`` has and gets what is copied."""
    wanted = list(wanted)
    for x in topological(wanted):
        k = carried_element(x, body)
        if x is body.parameters[0] or x in done:
            continue
        done[x] = state[k] if k is not None else x.replace(operands=tuple(done[o] for o in x.operands))
    return [done[x] for x in wanted]


@dataclass(frozen=True, slots=True)
class Worth:
    """Whether it is worth pipelining a loop. It is worth it with the choice ``always``, else where there is ``memory``
    on a machine and it saves time. Collectives and an iteration's computing that overlap cost no more than the longer
    of both."""

    choice: Choice
    machine: Machine | None
    table: AxisTable | None
    memory: float
    room: float

    @staticmethod
    def of(module: Module, choice: Choice, machine: Machine | None, memory: float | None = None) -> Worth | None:
        """For the loops of a module, within ``memory`` if so many bytes are given; None when nothing is to be done."""
        if choice == "never" or (choice == "auto" and machine is None):
            return None
        if not any(i.opcode == "while" for i in module.instructions()):
            return None
        known = [g for i in module.instructions() if (g := _groups(i)) is not None]
        table = None
        if known:
            table = AxisTable(known[0].mesh, [Sharding(g.mesh, (DimSharding(g.axes),)) for g in known])
        most = math.inf if machine is None else float(machine.device.memory_bytes)
        most = most if memory is None else min(most, memory)
        return Worth(choice, machine, table, most, most - estimate_peak(module))

    def pays(self, body: Computation, moved: Sequence[Instruction], nbytes: int) -> bool:
        """Whether it is worth overlapping the collectives ``moved`` of a body, for ``nbytes`` more of buffers."""
        if self.choice == "always":
            return True
        if not self._fits(body.root.shape.nbytes, nbytes):
            return False
        times = self._times(body, moved)
        if times is None:
            return False
        computing, travel, moving = times
        return min(moving, computing) > max(_LEAST_SECONDS, _LEAST * (computing + travel))

    def hides(self, body: Computation, moved: Sequence[Instruction], trips: int) -> bool:
        """Whether every iteration may hide the collectives ``moved``, and the time of all ``trips`` would show that."""
        times = self._times(body, moved)
        if times is None:
            return False
        computing, travel, moving = times
        return max(_LEAST_SECONDS, _LEAST * trips * (computing + travel)) < moving <= computing

    def _times(self, body: Computation, moved: Sequence[Instruction]) -> tuple[float, float, float] | None:
        """Seconds of what an iteration computes, of all its collectives and of those ``moved``; None if not known."""
        if self.machine is None or self.table is None:
            return None
        travel = {i: self._seconds(i) for i in body if i.opcode in COLLECTIVES}
        if any(travel[i] is None for i in moved):
            return None
        computing = compute_seconds(self.machine.device, body)
        return computing, sum(t or 0.0 for t in travel.values()), sum(travel[i] or 0.0 for i in moved)

    def _fits(self, state: int, nbytes: int) -> bool:
        """Whether there is memory for ``nbytes`` more in a loop with ``state`` bytes of state."""
        little = nbytes <= _LITTLE * state and state + nbytes <= self.memory
        return little or nbytes <= self.room

    def _seconds(self, i: Instruction) -> float | None:
        """What a collective takes; None where its groups are not over axes."""
        groups = _groups(i)
        if groups is None or self.machine is None or self.table is None:
            return None
        price = Seconds(self.table, self.machine)
        return price.collective(i.opcode, i.shape.nbytes, self.table.atoms(groups.axes))


def _groups(i: Instruction) -> AxisGroups | AxisPairs | None:
    attrs: Mapping[str, object] = i.attrs
    groups = attrs.get("replica_groups", attrs.get("source_target_pairs")) if i.opcode in COLLECTIVES else None
    return groups if isinstance(groups, AxisGroups | AxisPairs) else None
