"""Fetch ahead: a loop fetches from host memory in each iteration what the next one reads.

What an iteration cuts out of an array on the host is there when the iteration begins: the one before fetched it, and
the first is fetched before the loop. So the fetch goes on beside everything that an iteration computes, for one more
value in the device's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardc.hlo.ir.host_memory.memory_kinds import has_host_memory
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.transforms.host_values import HostValues

if TYPE_CHECKING:
    from shardc.compiler.lower.schedule.overlap import Overlap
    from shardc.costs.machines.host_link import HostLink
    from shardc.partitioner.optimise.loops.carry import Carry

__all__ = ["FetchAhead"]

#: Iterations below which a loop stays as it is: the last one is written again behind it.
_LEAST = 4


@dataclass(frozen=True, slots=True)
class FetchAhead:
    """Carry what loops fetch by their count, where that hides more than a pair of a start and a done has to."""

    overlap: Overlap | None = None
    name: str = "fetch-ahead"
    why: str = "an iteration does not wait for what it reads from host memory"

    def run(self, module: Module) -> Module:
        overlap = self.overlap
        if overlap is None or not overlap.transfers or overlap.machine.host is None or not has_host_memory(module):
            return module
        # The rewriting of loops comes with the cost model, which most programs never ask.
        from shardc.partitioner.optimise.loops.carry import change_loops

        host, link = HostValues(module), overlap.machine.host
        return change_loops(module, lambda carry, _: _ahead(carry, host, overlap, link), least=_LEAST)


def _ahead(carry: Carry, host: HostValues, overlap: Overlap, link: HostLink) -> Sequence[Instruction] | None:
    """The loop that fetches ahead and its last iteration, as values by element of its state; None where it stays."""
    from shardc.costs.kernels.work import compute_seconds
    from shardc.partitioner.optimise.loops.prefetch_gathers import rotate_loop
    from shardc.partitioner.optimise.loops.stages import counting, splittable

    count = counting(carry)
    if count is None or (count.trips or 0) < _LEAST or not splittable(carry):
        return None
    fetched = _fetched(carry, host)
    travel = sum(link.seconds(i.shape.nbytes) for i in fetched)
    hidden = min(travel, compute_seconds(overlap.machine.device, carry.body))
    if not fetched or (hidden <= overlap.least_seconds and not overlap.everything):
        return None
    return rotate_loop(carry, count, fetched)


def _fetched(carry: Carry, host: HostValues) -> list[Instruction]:
    """What the body cuts out of arrays on the host, at places that the next iteration's count gives."""
    from shardc.partitioner.optimise.loops.prefetch_gathers import computed_from, known_early

    known = computed_from(carry.body, known_early(carry.body), travelling=False)
    cuts = (i for i in carry.body if i.opcode == "dynamic-slice" and i in known)
    return [i for i in cuts if any(host.of(i.operands[0]))]
