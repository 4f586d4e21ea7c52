"""The schedule of a lowered program's collectives, for the proof that it cannot hang."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.collectives.call.schedule import (
    Schedule,
    ScheduleBranch,
    ScheduledAwait,
    ScheduledCollective,
    ScheduledStart,
    ScheduleLoop,
)
from shardc.compiler.lower import lowered as low
from shardc.hlo.ir.ir import Module
from shardc.partitioner.optimise.device_numbers import DeviceNumbers

__all__ = ["collective_schedule"]


def collective_schedule(module: Module, steps: Sequence[low.Step]) -> Schedule:
    """Where the ``steps`` of ``module`` start, await and perform collectives; blocks without any are left out."""
    return _block(steps, DeviceNumbers(module))


def _block(steps: Sequence[low.Step], numbers: DeviceNumbers) -> Schedule:
    found: list[ScheduledCollective | ScheduledStart | ScheduledAwait | ScheduleLoop | ScheduleBranch] = []
    for step in steps:
        match step:
            case low.Collective():
                found.append(ScheduledStart(step.index) if step.asynchronous else ScheduledCollective(step.index))
            case low.AwaitStep(low.Collective() as started):
                found.append(ScheduledAwait(started.index))
            case low.WhileStep():
                body = _block((*step.condition, *step.body), numbers)
                found += [ScheduleLoop(body)] if body else []
            case low.BranchStep():
                branches = tuple(_block(b, numbers) for b in step.branches)
                found += [ScheduleBranch(branches, _taken(step, numbers))] if any(branches) else []
    return tuple(found)


def _taken(step: low.BranchStep, numbers: DeviceNumbers) -> tuple[int, ...] | None:
    """The branch of each device, where it is known and not the same on all."""
    selector = step.instruction.operands[0]
    known = numbers.of(selector)
    if known is None or (known == known[0]).all():
        return None
    last = len(step.branches) - 1
    if selector.shape.dtype.kind == "pred":
        return tuple(0 if value else last for value in known.tolist())
    return tuple(value if 0 <= value <= last else last for value in known.tolist())
