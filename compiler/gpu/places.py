"""Where a kernel's arrays lie, and which of those that it reads may be memory that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.collectives.call.call import BufferRef
from shardc.compiler.lower.fuse.fusion_rules import new_part
from shardc.compiler.lower.lowered import Buffer, KernelStep, Lowered

__all__ = ["ArrayPlaces", "KernelPlaces"]


@dataclass(frozen=True, slots=True)
class KernelPlaces:
    """Places of a kernel's operand and result leaves. ``aliased`` numbers the operands that may be written by it;
    where one is updated in place, its old value must first be copied to the result as ``copied`` says, if any."""

    operands: tuple[BufferRef, ...]
    results: tuple[BufferRef, ...]
    aliased: frozenset[int]
    copied: tuple[BufferRef, BufferRef] | None = None


class ArrayPlaces:
    """The plan of a lowered program. A donated argument and the result that may take its memory count as one place."""

    def __init__(self, lowered: Lowered) -> None:
        self._plan = lowered.plan
        self._donated_to = {argument: result for result, argument in lowered.plan.aliases}

    def ref(self, buffer: Buffer) -> BufferRef:
        return self._plan.ref(buffer)

    def of(self, kernel: KernelStep) -> KernelPlaces:
        """The places of a kernel's arrays. An update finds the array that it changes in its result, or elsewhere for
        certain: what may be either is copied there before (which costs nothing where it is the same memory)."""
        operands, results = self._refs(kernel.operands), self._refs(kernel.results)
        copied = None
        if new_part(kernel.instruction) is not None:
            for result, operand in kernel.in_place:
                old, new = operands[operand], results[result]
                if old != new and self._same(old, new):
                    copied = (old, new)
                    operands = [new if ref == old else ref for ref in operands]
        aliased = frozenset(n for n, o in enumerate(operands) if any(self._same(o, r) for r in results))
        return KernelPlaces(tuple(operands), tuple(results), aliased, copied)

    def _refs(self, buffers: Sequence[Buffer]) -> list[BufferRef]:
        return [self.ref(b) for b in buffers]

    def _same(self, one: BufferRef, other: BufferRef) -> bool:
        """Whether both have memory in common, if drivers pass donated arguments as results."""
        if self._memory(one) != self._memory(other) or not one.nbytes or not other.nbytes:
            return False
        return one.offset < other.offset + other.nbytes and other.offset < one.offset + one.nbytes

    def _memory(self, ref: BufferRef) -> tuple[str, int]:
        if ref.space == "argument" and ref.index in self._donated_to:
            return "result", self._donated_to[ref.index]
        return ref.space, ref.index
