"""What a profile tells of a step of the program."""

from __future__ import annotations

from shardc.compiler.describe import describe_instruction
from shardc.compiler.lower.lowered import AwaitStep, BufferCopy, BufferPlan, Collective, KernelStep, Step
from shardc.compiler.lower.schedule.step_traffic import step_traffic
from shardc.compiler.profile import ProfileStep

__all__ = ["EVENTS", "make_profile_step"]

#: Events that are kept: those of 4,000 kernels in a loop of 16, in 1.5 MB.
EVENTS = 1 << 16


def make_profile_step(step: Step, plan: BufferPlan, kernel: str = "") -> ProfileStep:
    """The site of a leaf step that takes time; ``kernel`` is the native function that it calls."""
    traffic = step_traffic(step, plan)
    if isinstance(step, BufferCopy):
        name = step.target.name or step.source.name
        what = f"copy of {step.target.shape.plain}"
        return ProfileStep("copy", "memmove", name, what, "", "", "", traffic.read, traffic.written, 0)
    if isinstance(step, AwaitStep):
        i = step.started.instruction
        return ProfileStep("await", f"{i.opcode}-done", i.name, describe_instruction(i), "", i.source, "", 0, 0, 0)
    assert isinstance(step, KernelStep | Collective)
    i = step.instruction
    kind = "kernel" if isinstance(step, KernelStep) else "collective"
    op_name = i.metadata.op_name if i.metadata is not None else ""
    dtype = next((s.dtype.name for s in i.shape.leaves()), "")
    return ProfileStep(
        kind, kernel or i.opcode, i.name, describe_instruction(i), op_name, i.source, dtype, traffic.read,
        traffic.written, traffic.flops,
    )  # fmt: skip
