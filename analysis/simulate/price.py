"""Steps of a lowered program with their costs, as rows for people and as what the simulator's clock runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardc.analysis.categories import category_of
from shardc.analysis.simulate.simulated_step import LoopInfo, SimulatedWork
from shardc.analysis.simulate.timed import Timed, TimedBranches, TimedDone, TimedLoop, TimedStart, TimedWork
from shardc.compiler.describe import describe_instruction
from shardc.compiler.lower.lowered import (
    AwaitStep,
    BranchStep,
    BufferCopy,
    Collective,
    KernelStep,
    Lowered,
    PredicateCheck,
    Step,
    WhileStep,
)
from shardc.compiler.lower.schedule.step_work import work_of
from shardc.compiler.times.step_times import step_times
from shardc.costs.kernels.kernel_model import KernelTime
from shardc.costs.kernels.trips import loop_trips
from shardc.costs.machines.host_link import HostLink
from shardc.costs.network.collective_cost import collective_cost
from shardc.costs.network.host_move import host_link_for
from shardc.costs.network.placement import Placement
from shardc.costs.network.wire_bytes import group_size, wire_bytes
from shardc.hlo.ir.groups import AxisGroups, AxisPairs, Pairs, ReplicaGroups
from shardc.hlo.ir.host_memory.host_moves import host_move_bytes, is_host_move, moves_to_host
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.part_names import numbered_parts

__all__ = ["Priced", "price"]

_Groups = ReplicaGroups | Pairs


@dataclass(slots=True)
class Priced:
    """``steps`` for the clock; ``work`` by number (counts and waits are filled in later), with the step that each is
    (None for the call of all of them) and the ``groups`` of collectives; the ``loops`` and ``branches`` that there are.
    """

    steps: tuple[Timed, ...] = ()
    work: list[SimulatedWork] = field(default_factory=list)
    leaves: list[Step | None] = field(default_factory=list)
    groups: list[_Groups | None] = field(default_factory=list)
    loops: list[LoopInfo] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)


def price(
    lowered: Lowered,
    placement: Placement,
    positions: Mapping[Step, int],
    *,
    start_seconds: float,
    measured: Mapping[str, float],
) -> Priced:
    """What each step of ``lowered`` takes. ``positions`` number leaf steps; a start and a done cost the processor
    ``start_seconds`` each; ``measured`` seconds by name of kernel or collective count instead of the model's. Parts of
    one collective are numbered (`numbered_parts`)."""
    times = step_times(lowered, placement.machine, measured)
    pricing = _Pricing(lowered, placement, positions, start_seconds, measured, times, _arguments(lowered.module))
    pricing.out.steps = (*pricing.block(lowered.steps), *pricing.call())
    shown = numbered_parts(w.name for w in pricing.out.work)
    pricing.out.work = [replace(w, name=shown[w.name]) for w in pricing.out.work]
    return pricing.out


@dataclass(slots=True)
class _Pricing:
    lowered: Lowered
    placement: Placement
    positions: Mapping[Step, int]
    start_seconds: float
    measured: Mapping[str, float]
    times: Mapping[Step, KernelTime]
    names: Mapping[str, str]
    out: Priced = field(default_factory=Priced)
    _loops: tuple[str, ...] = ()
    _started: dict[Step, int] = field(default_factory=dict)

    def block(self, steps: Sequence[Step]) -> tuple[Timed, ...]:
        return tuple(t for step in steps if (t := self._step(step)) is not None)

    def call(self) -> tuple[TimedWork, ...]:
        """Of a calibrated computer, what a call of the step takes around all that is in it."""
        known = self.placement.machine.measured
        if known is None:
            return ()
        seconds = known.step_seconds(self.placement.devices, len(self.lowered.parameters) + len(self.lowered.results))
        self.out.work.append(
            SimulatedWork(
                "copy", "call of the step", "copy", seconds=seconds, limit="measured", efficiency=1.0, category="copies"
            )
        )
        self.out.leaves.append(None)
        self.out.groups.append(None)
        return (TimedWork(len(self.out.work) - 1, seconds, "copy", max(self.positions.values(), default=0)),)

    def _step(self, step: Step) -> Timed | None:
        if isinstance(step, PredicateCheck):
            return None
        at = self.positions[step]
        if isinstance(step, KernelStep) and is_host_move(step.instruction):
            link = host_link_for(self.placement.machine)
            if link is not None:
                return self._move(step, link, at)
        if isinstance(step, KernelStep | BufferCopy):
            number = self._number(step, self._computed(step))
            work = self.out.work[number]
            return TimedWork(number, work.seconds, work.kind, at)
        if isinstance(step, Collective):
            return self._collective(step, at)
        if isinstance(step, AwaitStep):
            return TimedDone(self._started[step.started], self.start_seconds, at)
        if isinstance(step, BranchStep):
            self.out.branches.append(step.instruction.name)
            return TimedBranches(tuple(self.block(branch) for branch in step.branches))
        return self._loop(step)

    def _loop(self, step: WhileStep) -> TimedLoop:
        i, outer = step.instruction, self._loops
        trips, known = loop_trips(i)
        op_name = i.metadata.op_name if i.metadata else ""
        self.out.loops.append(LoopInfo(i.name, op_name, i.source, trips, known))
        self._loops = (*outer, i.name)
        made = TimedLoop(i.name, trips, self.block(step.condition), self.block(step.body))
        self._loops = outer
        return made

    def _number(self, step: Step, work: SimulatedWork, groups: _Groups | None = None) -> int:
        self.out.work.append(work)
        self.out.leaves.append(step)
        self.out.groups.append(groups)
        return len(self.out.work) - 1

    def _computed(self, step: KernelStep | BufferCopy) -> SimulatedWork:
        done, time = work_of(step, self.lowered.plan), self.times[step]
        row = (
            SimulatedWork(
                "copy", f"copy to {step.target.name}", "copy", dtype=step.target.shape.dtype.name, category="copies"
            )
            if isinstance(step, BufferCopy)
            else _kernel(step.instruction, done.dtype)
        )
        return replace(
            row, seconds=time.seconds, flops=done.flops, read=done.read, written=done.written, limit=time.limit,
            efficiency=time.efficiency, loops=self._loops,
        )  # fmt: skip

    def _move(self, step: KernelStep, link: HostLink, at: int) -> TimedStart:
        """A copy between host and device, over one direction of the link between them."""
        i = step.instruction
        nbytes, channel = host_move_bytes(i), link.channel(to_host=moves_to_host(i))
        seconds = self.measured.get(i.name, link.seconds(nbytes))
        row = SimulatedWork(
            "move", i.name, i.opcode, *_where(i), dtype=i.shape.dtype.name, seconds=seconds, payload_bytes=nbytes,
            link_bytes={channel: float(nbytes)}, algorithm=channel, loops=self._loops, category="host moves",
        )  # fmt: skip
        number = self._started[step] = self._number(step, row)
        waits = not step.asynchronous
        return TimedStart(number, seconds, {channel: seconds}, 0.0 if waits else self.start_seconds, waits, at)

    def _value(self, i: Instruction) -> str:
        """The values that a collective serves; several stand with commas between them."""
        given = i.origin.value if i.origin else ""
        return ", ".join(self.names.get(name, name) for name in given.split(", "))

    def _collective(self, step: Collective, at: int) -> TimedStart:
        i = step.instruction
        devices = self.lowered.module.num_partitions * self.lowered.module.replica_count
        groups = i.attrs.get("replica_groups", i.attrs.get("source_target_pairs"))
        nbytes = sum(s.nbytes for s in i.shape.leaves())
        cost = collective_cost(self.placement, i.opcode, nbytes, groups)
        seconds = self.measured.get(i.name, cost.seconds)
        sent = wire_bytes(i, devices)
        axes = tuple(str(a) for a in groups.axes) if isinstance(groups, AxisGroups | AxisPairs) else ()
        row = SimulatedWork(
            "collective", i.name, i.opcode, *_where(i), dtype=next(i.shape.leaves()).dtype.name, seconds=seconds,
            axes=axes, group_size=group_size(i, devices), algorithm=cost.algorithm, payload_bytes=nbytes,
            wire_bytes=round(sent), link_bytes=cost.link_bytes,
            reason=i.origin.reason if i.origin else "", value=self._value(i), loops=self._loops, category="collectives",
        )  # fmt: skip
        number = self._number(step, row, groups)
        self._started[step] = number
        share = seconds / cost.seconds if cost.seconds else 1.0
        loads = {load.resource: load.seconds * share for load in cost.loads}
        waits = not step.asynchronous
        return TimedStart(number, seconds, loads, 0.0 if waits else self.start_seconds, waits, at)


def _arguments(module: Module) -> dict[str, str]:
    """What people call the program's parameters."""
    return {p.name: name for p, name in zip(module.parameters, module.arg_names, strict=False) if name}


def _kernel(i: Instruction, dtype: str) -> SimulatedWork:
    return SimulatedWork(
        "kernel", i.name, i.opcode, *_where(i), describe_instruction(i), dtype, category=category_of(i)
    )


def _where(i: Instruction) -> tuple[str, str]:
    return (i.metadata.op_name if i.metadata else ""), i.source
