"""What one execution of a step must move and compute: bytes and operations, from shapes alone.

A kernel reads each operand once, but only the part that slices and gathers take of it; an update in place touches
only what it replaces. It is what the roofline is drawn for, not what a cache sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shardc.compiler.lower.fusion_rules import new_part
from shardc.compiler.lower.lowered import Buffer, BufferPlan, Collective, Copy, Kernel, Step
from shardc.hlo.ir import Instruction, users_of
from shardc.partitioner.flops import instruction_flops

__all__ = ["Traffic", "step_traffic"]

#: Operand 0 of these is read where the result says.
_SAMPLES = frozenset({"slice", "dynamic-slice", "gather"})


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes read and written, and arithmetic operations, of one execution."""

    read: int
    written: int
    flops: int = 0


def step_traffic(step: Step, plan: BufferPlan | None = None) -> Traffic:
    """The traffic of a leaf step; copies that the plan made vanish move nothing. Without a plan everything is in place
    that may be.

    Example: a kernel that adds two ``f32[1000]`` reads 8000 bytes, writes 4000 and makes 1000 operations.
    """
    if isinstance(step, Copy):
        moved = 0 if _same_place(plan, step.source, step.target) else step.target.nbytes
        return Traffic(moved, moved)
    if not isinstance(step, Kernel | Collective):
        return Traffic(0, 0)
    in_place = {(r, o) for r, o in step.in_place if _same_place(plan, step.results[r], step.operands[o])}
    i = step.instruction
    if i.opcode == "fusion":
        return _fusion(step, bool(in_place))
    flops = instruction_flops(i)
    read = [b.nbytes for b in step.operands]
    written = [b.nbytes for b in step.results]
    if i.opcode in _SAMPLES:
        read[0] = min(read[0], i.shape.nbytes)
    new = new_part(i)
    if new is not None and (0, 0) in in_place:
        read[0], written[0] = (new.shape.nbytes if i.opcode == "scatter" else 0), new.shape.nbytes
    return Traffic(sum(read), sum(written), flops)


def _same_place(plan: BufferPlan | None, a: Buffer, b: Buffer) -> bool:
    """Are both the same memory, when drivers pass donated arguments as results?"""
    if plan is None:
        return True
    one, other = plan.ref(a), plan.ref(b)
    spaces = {one.space: one.index, other.space: other.index}
    if set(spaces) == {"argument", "result"}:
        return (spaces["result"], spaces["argument"]) in plan.aliases and one.offset == other.offset
    return one == other


def _fusion(step: Kernel | Collective, in_place: bool) -> Traffic:
    computation = step.instruction.attrs["calls"]
    users = users_of(computation)
    flops = sum(instruction_flops(i) for i in computation)
    written = sum(b.nbytes for b in step.results)
    root = computation.root
    updated: Instruction | None = None
    new = new_part(step.instruction)
    if new is not None and in_place:
        updated = root.operands[0]
        written = new.shape.nbytes
    read = 0
    for p, buffer in zip(computation.parameters, step.operands, strict=True):
        if p is not updated:
            read += _part(p, users[p], buffer.nbytes)
    return Traffic(read, written, flops)


def _part(p: Instruction, users: Iterable[Instruction], whole: int) -> int:
    """Bytes of ``p`` that its users take."""
    samples: Callable[[Instruction], bool] = lambda u: u.opcode in _SAMPLES and u.operands[0] is p  # noqa: E731
    readers = list(dict.fromkeys(users))
    if not readers or not all(map(samples, readers)):
        return whole
    return min(whole, sum(u.shape.nbytes for u in readers))
