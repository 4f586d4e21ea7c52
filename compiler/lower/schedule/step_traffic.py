"""The bytes and operations of one execution of a step, once the program's buffers are assigned."""

from __future__ import annotations

from dataclasses import replace

from shardc.compiler.lower.fuse.fusion_rules import new_part
from shardc.compiler.lower.lowered import Buffer, BufferCopy, BufferPlan, Collective, KernelStep, Step
from shardc.costs.kernels.traffic import Traffic, instruction_traffic
from shardc.costs.ops.table import instruction_flops

__all__ = ["Traffic", "moved_by", "step_traffic"]


def step_traffic(step: Step, plan: BufferPlan | None = None) -> Traffic:
    """The traffic of a leaf step; copies that the buffer plan removed move nothing. Without a plan, every update that
    can be in place is.

    Example: a kernel that adds two ``f32[1000]`` reads 8000 bytes, writes 4000 and makes 1000 operations.
    """
    moved = moved_by(step, plan)
    if not isinstance(step, KernelStep | Collective):
        return moved
    i = step.instruction
    inside = i.attrs["calls"] if i.opcode == "fusion" else (i,)
    return replace(moved, flops=sum(map(instruction_flops, inside)))


def moved_by(step: Step, plan: BufferPlan | None) -> Traffic:
    """Only the bytes of `step_traffic`."""
    if isinstance(step, BufferCopy):
        moved = 0 if _same_place(plan, step.source, step.target) else step.target.nbytes
        return Traffic(moved, moved)
    if not isinstance(step, KernelStep | Collective):
        return Traffic(0, 0)
    in_place = {(r, o) for r, o in step.in_place if _same_place(plan, step.results[r], step.operands[o])}
    i = step.instruction
    new = new_part(i)
    written_over = i.opcode == "fusion" or (0, 0) in in_place
    return instruction_traffic(i, new if new is not None and in_place and written_over else None)


def _same_place(plan: BufferPlan | None, a: Buffer, b: Buffer) -> bool:
    """Whether both are the same memory, if drivers pass donated arguments as results."""
    if plan is None:
        return True
    one, other = plan.ref(a), plan.ref(b)
    spaces = {one.space: one.index, other.space: other.index}
    if set(spaces) == {"argument", "result"}:
        return (spaces["result"], spaces["argument"]) in plan.aliases and one.offset == other.offset
    return one == other
