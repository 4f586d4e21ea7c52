"""The time of each step of a lowered program on a described machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from shardc.compiler.lower.lowered import BufferCopy, KernelStep, Lowered, Step, leaf_steps
from shardc.compiler.lower.schedule.step_work import work_of
from shardc.costs.kernels.kernel_model import KernelTime, kernel_seconds
from shardc.costs.machines.machine import Machine

__all__ = ["step_times"]

_NONE: Mapping[str, float] = MappingProxyType({})


def step_times(lowered: Lowered, machine: Machine, measured: Mapping[str, float] = _NONE) -> Mapping[Step, KernelTime]:
    """The time of each kernel and copy of ``lowered`` on ``machine``; ``measured`` seconds by kernel count instead."""
    times: dict[Step, KernelTime] = {}
    calibrated: Mapping[Step, KernelTime] = {}
    if machine.measured is not None:
        from shardc.compiler.times.host_times import host_times

        calibrated = host_times(lowered, machine.measured, lowered.module.num_partitions)
    for step in leaf_steps(lowered.steps):
        if not isinstance(step, KernelStep | BufferCopy):
            continue
        time = calibrated.get(step) or kernel_seconds(machine.device, work_of(step, lowered.plan))
        if isinstance(step, KernelStep) and step.instruction.name in measured:
            time = replace(time, seconds=measured[step.instruction.name])
        times[step] = time
    return times
