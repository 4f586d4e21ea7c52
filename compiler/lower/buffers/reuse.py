"""Reuse distances: how much memory a program uses between two uses of the same bytes, which decides the cache that they
come from (Mattson et al., "Evaluation Techniques for Storage Hierarchies", 1970).

The lowered program is walked twice, as it runs again and again, with loop bodies walked twice each time; what counts
is what the last walk finds. A distance is the bytes used since (each use counted), at most all that the program has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.compiler.lower.lowered import BranchStep, Buffer, BufferCopy, KernelStep, Lowered, Step, WhileStep
from shardc.compiler.lower.lowered import Collective as CollectiveStep
from shardc.compiler.lower.schedule.step_traffic import step_traffic

__all__ = ["Use", "memory_uses"]


@dataclass(frozen=True, slots=True)
class Use:
    """``nbytes`` of a buffer are used ``distance`` bytes after their last use; ``kind`` is ``"read"``, ``"write"``, or
    ``"update"`` where the same kernel reads them too."""

    nbytes: int
    distance: float
    kind: str


class _Space:
    """When which bytes of one address space were used last: disjoint ranges (low, high, time)."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, float]] = []

    def use(self, low: int, high: int, now: float) -> float:
        """The mean age of the bytes that somebody used before; -1 where nobody did. They are used ``now``."""
        kept: list[tuple[int, int, float]] = []
        seen = weighted = 0.0
        for start, stop, time in self._ranges:
            common = min(stop, high) - max(start, low)
            if common <= 0:
                kept.append((start, stop, time))
                continue
            seen += common
            weighted += common * (now - time)
            if start < low:
                kept.append((start, low, time))
            if stop > high:
                kept.append((high, stop, time))
        kept.append((low, high, now))
        self._ranges = kept
        return weighted / seen if seen else -1.0


def memory_uses(lowered: Lowered) -> Mapping[Step, tuple[Use, ...]]:
    """What each kernel, copy and collective uses of memory. A part of a buffer that a loop takes is another one every
    time, so that its distance is as many rounds as there are parts."""
    walk = _Walk(lowered)
    for _ in range(2):
        walk.steps(lowered.steps, in_loop=False)
    return walk.found


class _Walk:
    def __init__(self, lowered: Lowered) -> None:
        self._plan = lowered.plan
        self._spaces: dict[tuple[str, int], _Space] = {}
        self._arguments = dict(lowered.plan.aliases)
        self._now = 0.0
        self._most = float(
            sum(b.nbytes for b in (*lowered.parameters, *lowered.results))
            + lowered.plan.arena_bytes
            + len(lowered.constants.data)
        )
        self.found: dict[Step, tuple[Use, ...]] = {}

    def steps(self, steps: Sequence[Step], *, in_loop: bool) -> None:
        for step in steps:
            if isinstance(step, WhileStep):
                for _ in range(2):
                    self.steps(step.condition, in_loop=True)
                    self.steps(step.body, in_loop=True)
            elif isinstance(step, BranchStep):
                for branch in step.branches:
                    self.steps(branch, in_loop=in_loop)
            elif isinstance(step, KernelStep | BufferCopy | CollectiveStep):
                self.found[step] = self._leaf(step, in_loop)

    def _leaf(self, step: KernelStep | BufferCopy | CollectiveStep, in_loop: bool) -> tuple[Use, ...]:
        traffic = step_traffic(step, self._plan)
        operands = (step.source,) if isinstance(step, BufferCopy) else step.operands
        results = (step.target,) if isinstance(step, BufferCopy) else step.results
        uses = [self._use(b, part, "read", in_loop) for b, part in _parts(operands, traffic.read)]
        read = [b for b, _ in _parts(operands, traffic.read)]
        places = {self._place(b): use for b, use in zip(read, uses, strict=True)}
        for b, part in _parts(results, traffic.written):
            before = places.get(self._place(b))
            # What was read a moment ago is in the first cache, but must come and go like what was read.
            uses.append(
                self._use(b, part, "write", in_loop) if before is None else Use(part, before.distance, "update")
            )
        return tuple(uses)

    def _place(self, buffer: Buffer) -> tuple[tuple[str, int], int]:
        """Space and offset of a buffer; results that may be arguments' memory are."""
        ref = self._plan.ref(buffer)
        if ref.space == "result" and ref.index in self._arguments:
            return ("argument", self._arguments[ref.index]), ref.offset
        return (ref.space, 0 if ref.space == "arena" else ref.index), ref.offset

    def _use(self, buffer: Buffer, nbytes: int, kind: str, in_loop: bool) -> Use:
        where, offset = self._place(buffer)
        age = self._spaces.setdefault(where, _Space()).use(offset, offset + buffer.nbytes, self._now)
        self._now += nbytes
        if age < 0:
            return Use(nbytes, self._most, kind)
        rounds = buffer.nbytes / nbytes if in_loop else 1.0
        return Use(nbytes, min(self._most, max(nbytes, age * rounds)), kind)


def _parts(buffers: Sequence[Buffer], moved: int) -> list[tuple[Buffer, int]]:
    """How many of the ``moved`` bytes are whose: of large operands that are read in part it is not known which part is
    read, so each counts by its size."""
    whole = sum(b.nbytes for b in buffers)
    parts = [(b, min(b.nbytes, round(b.nbytes * moved / whole))) for b in buffers if whole]
    return [(b, part) for b, part in parts if part]
