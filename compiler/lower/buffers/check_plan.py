"""Check a buffer plan: no two buffers that hold values at the same time overlap."""

from __future__ import annotations

from typing import TypeGuard

from shardc.collectives.call.call import SECTION_ALIGNMENT, BufferRef
from shardc.compiler.executable import ARENA_HEADER
from shardc.compiler.lower.buffers.linearise import LinearSteps
from shardc.compiler.lower.buffers.liveness import Liveness, live_ranges, reads_of, writes_of
from shardc.compiler.lower.buffers.share_results import SAME_FOR_ALL
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
from shardc.hlo.errors import VerificationError

__all__ = ["check_plan"]


def check_plan(linear: LinearSteps, plan: BufferPlan) -> None:
    """Raise `VerificationError` where a write of ``plan`` destroys a value that is still read.

    Donated arguments are taken to be the same memory as their results, and also not to be.
    """
    liveness = live_ranges(linear.steps, linear.results)
    donated = {linear.parameters[a]: linear.results[r] for r, a in linear.aliases}
    buffers = [b for b in linear.buffers if b.space != "constant"]
    sizes = {(b.space, b.index): b.nbytes for b in (*linear.parameters, *linear.results)}
    for step in leaf_steps(linear.steps):
        bit = 1 << (2 * liveness.positions[step])
        after = [b for b in buffers if _needed(b, step, bit << 1, liveness)]
        for target in writes_of(step):
            if plan.ref(target).space in ("argument", "constant"):
                raise VerificationError(f"{target} is written", where=_name(step))
            for other in after:
                if other is not target and not _copied(step, other) and _overlap(target, other, plan, donated):
                    raise VerificationError(f"writing {target} destroys {other}", where=_name(step))
        _check_step(step, plan, donated)
    _check_sections(linear, plan)
    for b in buffers:
        ref = plan.ref(b)
        aligned = ref.offset % 64 == 0 or ref.space in ("argument", "constant")  # blocks of them lie anywhere
        if not aligned or (ref.space == "arena" and ref.nbytes and ref.offset < ARENA_HEADER):
            raise VerificationError(f"{b} lies at offset {ref.offset}")
        size = plan.arena_bytes if ref.space == "arena" else sizes.get((ref.space, ref.index), 0)
        if ref.offset + ref.nbytes > size:
            raise VerificationError(f"{b} lies beyond the {ref.space}")


def _check_sections(linear: LinearSteps, plan: BufferPlan) -> None:
    """Into the memory that members of a group share, only what all of them get is written, by collectives of them."""
    for section in plan.sections:
        end = section.offset + section.nbytes
        if section.offset % SECTION_ALIGNMENT or end > plan.arena_bytes:
            raise VerificationError(f"{section} is no part of an arena of {plan.arena_bytes} bytes")
        for step in leaf_steps(linear.steps):
            groups = step.instruction.attrs["replica_groups"] if _gives_alike(step) else None
            for b in writes_of(step):
                ref = plan.ref(b)
                if ref.space != "arena" or ref.offset >= end or ref.offset + ref.nbytes <= section.offset:
                    continue
                inside = ref.offset >= section.offset and ref.offset + ref.nbytes <= end
                if not inside or groups != section.groups:
                    raise VerificationError(f"{b} lies where a group shares memory", where=_name(step))


def _gives_alike(step: Step) -> TypeGuard[Collective]:
    return isinstance(step, Collective) and step.instruction.opcode in SAME_FOR_ALL


def _check_step(step: Step, plan: BufferPlan, donated: dict[Buffer, Buffer]) -> None:
    """Results of one step are apart from each other, and from operands unless it works in place."""
    writes = writes_of(step)
    for n, a in enumerate(writes):
        for b in writes[n + 1 :]:
            if _overlap(a, b, plan, donated):
                raise VerificationError(f"{a} and {b} are results in one place", where=_name(step))
        for slot, o in enumerate(reads_of(step)):
            allowed = isinstance(step, BufferCopy) or (
                isinstance(step, KernelStep | Collective) and (n, slot) in step.in_place
            )
            if allowed and plan.ref(a).offset == _where(o, plan, donated).offset:
                continue
            if _overlap(a, o, plan, donated):
                raise VerificationError(f"result {a} overlaps operand {o}", where=_name(step))


def _needed(b: Buffer, step: Step, bit: int, liveness: Liveness) -> bool:
    """Whether ``b`` is read later, or is being read by a transfer that ``step`` did not begin."""
    held = liveness.held.get(b, {})
    return bool(liveness.live.get(b, 0) & bit) or any(mask & bit for c, mask in held.items() if c is not step)


def _copied(step: Step, other: Buffer) -> bool:
    return isinstance(step, BufferCopy) and step.source is other


def _where(b: Buffer, plan: BufferPlan, donated: dict[Buffer, Buffer]) -> BufferRef:
    result = donated.get(b)
    return plan.ref(result if result is not None else b)


def _overlap(a: Buffer, b: Buffer, plan: BufferPlan, donated: dict[Buffer, Buffer]) -> bool:
    first, second = _where(a, plan, donated), _where(b, plan, donated)
    if (first.space, first.index) != (second.space, second.index) or not first.nbytes or not second.nbytes:
        return False
    return first.offset < second.offset + second.nbytes and second.offset < first.offset + first.nbytes


def _name(step: Step) -> str:
    if isinstance(step, AwaitStep):
        return f"the end of %{step.started.instruction.name}"
    return "a copy" if isinstance(step, BufferCopy) else f"%{step.instruction.name}"
