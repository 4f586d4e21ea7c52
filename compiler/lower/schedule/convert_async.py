"""Convert async: split collectives and host transfers into a start and a done, where that is worth it. Each done
follows its start for now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardc.hlo.ir.asynchronous import is_start, split, was_asynchronous
from shardc.hlo.ir.host_memory.host_moves import is_host_move
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.make import map_computations, step_computations
from shardc.hlo.ir.opset import COLLECTIVES

if TYPE_CHECKING:
    from shardc.compiler.lower.schedule.overlap import Overlap
    from shardc.costs.network.placement import Placement

__all__ = ["ConvertAsync"]

#: How many times the modelled time, and the time that a pair has to hide, a collective takes that waits.
_WAITING, _NOTICED = 3.0, 20.0


@dataclass(frozen=True, slots=True)
class ConvertAsync:
    """Make pairs of collectives that take longer than the least time that a pair must hide, and of those that came as
    pairs. If devices do their transfers themselves, make pairs of collectives that waited for other devices in a
    measurement. `Schedule` chooses the instructions between start and done, and joins pairs that overlap with nothing.
    Without ``overlap``, nothing changes.
    """

    overlap: Overlap | None = None
    name: str = "convert-async"
    why: str = "a transfer that runs during computation takes no time"

    def run(self, module: Module) -> Module:
        overlap = self.overlap
        if overlap is None or not any(i.opcode in COLLECTIVES or is_host_move(i) for i in module.instructions()):
            return module
        placement = overlap.place_devices(module)
        return map_computations(module, lambda c: _converted(c, overlap, placement), only=step_computations(module))


def _converted(computation: Computation, overlap: Overlap, placement: Placement) -> Computation:
    chosen = {i for i in computation if _pays(i, overlap, placement)}
    if not chosen:
        return computation
    new: dict[Instruction, Instruction] = {}
    order: list[Instruction] = []
    for old in computation:
        operands = tuple(new[o] for o in old.operands)
        i = old if operands == old.operands else old.replace(operands=operands)
        if old in chosen:
            start, i = split(i)
            order.append(start)
        new[old] = i
        order.append(i)
    return Computation(computation.name, order, new[computation.root])


def _pays(i: Instruction, overlap: Overlap, placement: Placement) -> bool:
    if is_host_move(i):
        return overlap.machine.host is not None and overlap.transfers > 0 and _pays_beside(i, overlap, placement)
    if i.opcode not in COLLECTIVES or is_start(i):
        return False
    if was_asynchronous(i):
        return True
    if not overlap.transfers:
        return _waits(i, overlap, placement)
    return _pays_beside(i, overlap, placement)


def _pays_beside(i: Instruction, overlap: Overlap, placement: Placement) -> bool:
    """Whether the collective takes longer than the least time that a pair must hide."""
    seconds = _seconds(i, placement, overlap.measured)
    return overlap.everything or (seconds is not None and seconds > overlap.least_seconds)


def _waits(i: Instruction, overlap: Overlap, placement: Placement) -> bool:
    """Whether the measured time exceeds the time for its bytes so much that devices must have waited for each other.
    They can compute during that wait, even if no other engine does the transfer."""
    measured = overlap.measured.get(i.name)
    if measured is None:
        return False
    seconds = _seconds(i, placement, {})
    return seconds is not None and measured > max(_WAITING * seconds, _NOTICED * overlap.least_seconds)


def _seconds(i: Instruction, placement: Placement, measured: Mapping[str, float]) -> float | None:
    from shardc.costs.network.transfer import transfer_of  # with the cost model, which most programs never ask

    transfer = transfer_of(i, placement, measured)
    return None if transfer is None else transfer.seconds
