"""What kernels and collectives cost on a described machine: measured, where somebody did, else by its roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from shardc.collectives.cost import collective_cost, members_of
from shardc.collectives.machine import Machine
from shardc.compiler.lower.linearise import Part
from shardc.compiler.lower.lowered import Copy, Kernel, Lowered, Step, leaf_steps
from shardc.compiler.lower.overlap import Overlap
from shardc.compiler.lower.traffic import work_of
from shardc.hlo.asynchronous import is_done, is_start, joined
from shardc.hlo.groups import AxisGroups, AxisPairs, groups_grid
from shardc.hlo.ir import Computation, Instruction
from shardc.hlo.opset import COLLECTIVES
from shardc.hlo.simplify.rules.control import branches_of
from shardc.partitioner.kernel_model import KernelTime, kernel_seconds
from shardc.partitioner.schedule import Transfer
from shardc.partitioner.trips import trip_count

__all__ = ["KernelCosts", "step_times", "transfer_of"]

#: Iterations of a loop that nobody can count.
_TRIPS = 10

_NONE: Mapping[str, float] = MappingProxyType({})


class KernelCosts:
    """The costs (`shardc.partitioner.schedule.Costs`) of the instructions of one computation.

    ``part`` has its steps, ``called`` the seconds of computations that its loops and branches run.
    """

    def __init__(self, part: Part, overlap: Overlap, called: Mapping[Computation, float], devices: int) -> None:
        self._part = part
        self._overlap = overlap
        self._called = called
        self._devices = devices
        self._seconds: dict[Instruction, float] = {}
        self._transfers: dict[Instruction, Transfer | None] = {}

    def seconds(self, i: Instruction) -> float:
        found = self._seconds.get(i)
        if found is None:
            found = self._seconds[i] = self._own_seconds(i)
        return found

    def transfer(self, i: Instruction) -> Transfer | None:
        if i not in self._transfers:
            self._transfers[i] = transfer_of(i, self._overlap, self._devices)
        return self._transfers[i]

    def _own_seconds(self, i: Instruction) -> float:
        if is_start(i) or is_done(i):
            return self._overlap.start_seconds
        if i.opcode in COLLECTIVES:
            return 0.0
        if i.opcode == "while":
            trips = trip_count(i)
            return (_TRIPS if trips is None else trips) * sum(self._called[i.attrs[k]] for k in ("condition", "body"))
        if i.opcode == "conditional":
            return max(self._called[c] for c in branches_of(i))
        measured = self._overlap.measured.get(i.name)
        return self._kernels(i) if measured is None else measured

    def _kernels(self, i: Instruction) -> float:
        device = self._overlap.machine.device
        steps = self._part.steps.get(i, ())
        return sum(kernel_seconds(device, work_of(step)).seconds for step in steps if isinstance(step, Kernel))


def step_times(lowered: Lowered, machine: Machine, measured: Mapping[str, float] = _NONE) -> Mapping[Step, KernelTime]:
    """The time of each kernel and copy of ``lowered`` on ``machine``; ``measured`` seconds by kernel count instead."""
    times: dict[Step, KernelTime] = {}
    for step in leaf_steps(lowered.steps):
        if not isinstance(step, Kernel | Copy):
            continue
        time = kernel_seconds(machine.device, work_of(step, lowered.plan))
        if isinstance(step, Kernel) and step.instruction.name in measured:
            time = replace(time, seconds=measured[step.instruction.name])
        times[step] = time
    return times


def transfer_of(i: Instruction, overlap: Overlap, devices: int) -> Transfer | None:
    """What the collective ``i``, or the one that it starts, takes of which links."""
    if is_start(i):
        i = joined(i)
    if i.opcode not in COLLECTIVES:
        return None
    machine = overlap.machine
    members = _members(i, machine, devices)
    outermost = max((n for n, g in enumerate(members) if g > 1), default=0)
    seconds = overlap.measured.get(i.name)
    if seconds is None:
        nbytes = sum(s.nbytes for s in i.shape.leaves())
        seconds = collective_cost(machine, i.opcode, nbytes, members).seconds
    links = machine.levels[outermost]
    return Transfer(seconds, (links.name or str(outermost)) + (_way(i) if links.kind == "torus" else ""))


def _way(i: Instruction) -> str:
    """Around a ring, permutes ahead and back use different wires."""
    pairs = i.attrs.get("source_target_pairs")
    if pairs is None:
        return ""
    ahead = sum((t > s) - (t < s) for s, t in pairs.pairs)
    return " ahead" if ahead > 0 else " back" if ahead < 0 else ""


def _members(i: Instruction, machine: Machine, devices: int) -> tuple[int, ...]:
    """How many of a group meet at each level of links; of a permute, the two that are farthest apart."""
    pairs = i.attrs.get("source_target_pairs")
    if pairs is not None:
        listed: Sequence[Sequence[int]] = pairs.pairs
        if isinstance(pairs, AxisPairs):
            row = groups_grid(pairs.mesh, pairs.axes)[0]
            listed = [(int(row[s]), int(row[t])) for s, t in pairs.pairs]
        met = [members_of(machine, pair) for pair in listed if len(set(pair)) > 1]
        return max(met, key=lambda m: m[::-1], default=(1,) * len(machine.levels))
    groups = i.attrs.get("replica_groups")
    if isinstance(groups, AxisGroups):
        return members_of(machine, [int(d) for d in groups_grid(groups.mesh, groups.axes)[0]])
    first = next(iter(groups.expand()), ()) if groups is not None else ()
    return members_of(machine, first or range(devices))
