"""Costs of kernels and collectives on a described machine: the measured time if there is one, else its roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.compiler.lower.buffers.linearise import ComputationSteps
from shardc.compiler.lower.lowered import KernelStep
from shardc.compiler.lower.schedule.overlap import Overlap
from shardc.compiler.lower.schedule.step_work import work_of
from shardc.costs.kernels.kernel_model import kernel_seconds
from shardc.costs.kernels.trips import likely_trips
from shardc.costs.network.placement import Placement
from shardc.costs.network.transfer import Transfer, transfer_of
from shardc.hlo.ir.asynchronous import is_done, is_start
from shardc.hlo.ir.host_memory.host_moves import is_host_move
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.simplify.rules.control import branches_of
from shardc.partitioner.schedule import Inside, timeline

__all__ = ["CalledComputation", "KernelCosts"]

#: Iterations of a loop that nobody can count.
_TRIPS = 10


@dataclass(frozen=True, slots=True)
class CalledComputation:
    """A computation of a loop or a branch: its time in its present order, its instructions' costs, and whether it has
    transfers."""

    seconds: float
    computation: Computation
    costs: KernelCosts
    travels: bool

    @staticmethod
    def of(computation: Computation, costs: KernelCosts) -> CalledComputation:
        run = timeline(computation.instructions, costs)
        travels = any(costs.transfer(i) is not None or costs.inside(i) is not None for i in computation)
        return CalledComputation(run.seconds, computation, costs, travels)


class KernelCosts:
    """The costs (`shardc.partitioner.schedule.ScheduleCosts`) of the instructions of one computation.

    ``part`` has its steps, ``called`` the computations that its loops and branches run.
    """

    def __init__(
        self,
        part: ComputationSteps,
        overlap: Overlap,
        called: Mapping[Computation, CalledComputation],
        placement: Placement,
    ) -> None:
        self._part = part
        self._overlap = overlap
        self._called = called
        self._placement = placement
        self._seconds: dict[Instruction, float] = {}
        self._transfers: dict[Instruction, Transfer | None] = {}

    def seconds(self, i: Instruction) -> float:
        found = self._seconds.get(i)
        if found is None:
            found = self._seconds[i] = self._own_seconds(i)
        return found

    def transfer(self, i: Instruction) -> Transfer | None:
        if i not in self._transfers:
            self._transfers[i] = transfer_of(i, self._placement, self._overlap.measured)
        return self._transfers[i]

    def inside(self, i: Instruction) -> Inside | None:
        if i.opcode not in ("while", "conditional"):
            return None
        loop = i.opcode == "while"
        parts = [self._called[c] for c in ((i.attrs["condition"], i.attrs["body"]) if loop else branches_of(i))]
        if not any(p.travels for p in parts):
            return None
        return Inside([(p.computation.instructions, p.costs) for p in parts], _trips(i) if loop else 1, one=not loop)

    def _own_seconds(self, i: Instruction) -> float:
        if is_start(i) or is_done(i):
            return self._overlap.start_seconds
        if i.opcode in COLLECTIVES or (is_host_move(i) and self._overlap.machine.host is not None):
            return 0.0
        if i.opcode == "while":
            return _trips(i) * sum(self._called[i.attrs[k]].seconds for k in ("condition", "body"))
        if i.opcode == "conditional":
            return max(self._called[c].seconds for c in branches_of(i))
        measured = self._overlap.measured.get(i.name)
        return self._kernels(i) if measured is None else measured

    def _kernels(self, i: Instruction) -> float:
        device = self._overlap.machine.device
        steps = self._part.steps.get(i, ())
        return sum(kernel_seconds(device, work_of(step)).seconds for step in steps if isinstance(step, KernelStep))


def _trips(loop: Instruction) -> int:
    return likely_trips(loop, _TRIPS)
