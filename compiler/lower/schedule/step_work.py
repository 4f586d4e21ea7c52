"""The work of a step, in the form that the kernel model takes."""

from __future__ import annotations

from shardc.compiler.lower.lowered import BufferPlan, KernelStep, Step
from shardc.compiler.lower.schedule.step_traffic import moved_by
from shardc.costs.kernels.kernel_model import KernelWork
from shardc.costs.kernels.work import instruction_work

__all__ = ["work_of"]


def work_of(step: Step, plan: BufferPlan | None = None) -> KernelWork:
    """The work of a leaf step that computes or copies, as `shardc.costs.kernels.kernel_model` takes it."""
    moved = moved_by(step, plan)
    if isinstance(step, KernelStep):
        return instruction_work(step.instruction, moved)
    return KernelWork(read=moved.read, written=moved.written)
