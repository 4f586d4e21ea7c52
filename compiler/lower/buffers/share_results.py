"""Share results: what members of a group all get lies in sections of the arena that may be one memory for them.

Results of all-reduces and all-gathers are the same for all members. Where nothing else is ever written into their
memory but other such results of the same groups, members on one machine can share it: a collective writes only when all
members have come to it, and so have read what lay there before.
"""

from __future__ import annotations

from collections.abc import Iterator

from shardc.collectives.call.call import SECTION_ALIGNMENT
from shardc.compiler.lower.buffers.assign_buffers import assign_buffers
from shardc.compiler.lower.buffers.linearise import LinearSteps
from shardc.compiler.lower.buffers.liveness import reads_of, writes_of
from shardc.compiler.lower.fuse.fusion_rules import new_part
from shardc.compiler.lower.lowered import (
    AwaitStep,
    Buffer,
    BufferCopy,
    BufferPlan,
    Collective,
    KernelStep,
    Step,
    leaf_steps,
)
from shardc.hlo.ir.groups import ReplicaGroups

__all__ = ["SAME_FOR_ALL", "share_results"]

#: Collectives that give all members the same.
SAME_FOR_ALL = frozenset({"all-reduce", "all-gather"})
#: Bytes of a result that are worth it.
_LEAST = 64 << 10


def share_results(linear: LinearSteps, plan: BufferPlan) -> BufferPlan:
    """``plan`` or one that shares results, with an arena that is no larger (but for a page per section).

    First those that share no place in ``plan`` with what they are made of or what is made of them: for the others
    memory is needed twice.
    """
    best = plan
    shareable = _find_shareable(linear, plan)
    joined = {b for step in leaf_steps(linear.steps) for b in _in_place(step, plan)} if shareable else set()
    alone = {b: groups for b, groups in shareable.items() if b not in joined}
    for shared in (alone, shareable) if len(alone) < len(shareable) else (alone,):
        found = assign_buffers(linear, shared) if shared else plan
        if not shared or found.arena_bytes > plan.arena_bytes + SECTION_ALIGNMENT * len(found.sections):
            break
        best = found
    return best


def _in_place(step: Step, plan: BufferPlan) -> Iterator[Buffer]:
    """Operands and results of ``step`` that ``plan`` puts in one place."""
    if isinstance(step, KernelStep | Collective):
        for result, operand in step.in_place:
            pair = (step.results[result], step.operands[operand])
            if plan.ref(pair[0]) == plan.ref(pair[1]):
                yield from pair


def _find_shareable(linear: LinearSteps, plan: BufferPlan) -> dict[Buffer, ReplicaGroups]:
    """Results in the arena that one collective writes, and that no copy and no update in place is to do without; with
    the collective's groups."""
    shareable: dict[Buffer, ReplicaGroups] = {}
    writer: dict[Buffer, Collective] = {}
    for step in leaf_steps(linear.steps):
        if isinstance(step, Collective) and step.instruction.opcode in SAME_FOR_ALL:
            groups = step.instruction.attrs["replica_groups"]
            large = (b for b in step.results if b.nbytes >= _LEAST and plan.ref(b).space == "arena")
            shareable |= dict.fromkeys(large, groups)
            writer |= dict.fromkeys(step.results, step)
    for step in leaf_steps(linear.steps) if shareable else ():
        if isinstance(step, AwaitStep):
            continue
        written = tuple(b for b in writes_of(step) if writer.get(b) is not step)
        updated = isinstance(step, BufferCopy) or (
            isinstance(step, KernelStep) and new_part(step.instruction) is not None
        )
        for b in (*written, *(reads_of(step) if updated else ())):
            shareable.pop(b, None)
    return shareable
