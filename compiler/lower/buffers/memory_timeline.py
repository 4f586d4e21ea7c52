"""Memory over time: which buffers lie where while each step of the program runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.collectives.call.call import BufferRef
from shardc.compiler.lower.buffers.covered import Covered
from shardc.compiler.lower.buffers.liveness import live_ranges, runs_of, writes_of
from shardc.compiler.lower.lowered import (
    AwaitStep,
    Buffer,
    BufferCopy,
    Collective,
    KernelStep,
    Lowered,
    PredicateCheck,
    Step,
    leaf_steps,
)
from shardc.hlo.ir.ir import Module

__all__ = ["MemoryBlock", "MemoryTimeline", "memory_timeline"]


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """A value in memory from position ``first`` to ``last`` (both included), at ``offset`` bytes into the part of
    memory of the device that the step writes: results (those in an argument's place too), then the arena.

    ``kind`` is ``argument``, ``result``, ``temporary`` or ``communication``; ``name`` the instruction that wrote it,
    ``op_name`` and ``source`` what the program calls that; of an argument ``op_name`` is the argument's name.
    """

    name: str
    op_name: str
    source: str
    shape: str
    kind: str
    offset: int
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """``steps`` are the names of what runs at each position; ``in_use`` the bytes that hold a value somebody will
    read (or that is being written) meanwhile, ``fixed_bytes`` of them arguments that are not donated, which are
    in memory all the time.

    ``written_bytes`` is the height of what ``blocks`` lie in; the memory that a device needs (``peak_bytes`` of the
    analysis) is that and ``fixed_bytes``. Gaps between blocks are memory that is not in use.
    """

    program: str
    steps: tuple[str, ...]
    blocks: tuple[MemoryBlock, ...]
    in_use: tuple[int, ...]
    fixed_bytes: int
    written_bytes: int

    @property
    def peak(self) -> int:
        """The first position at which most bytes are in use."""
        return max(range(len(self.in_use)), key=lambda p: (self.in_use[p], -p), default=0)

    def at(self, position: int) -> list[MemoryBlock]:
        """The blocks in memory then, largest first."""
        found = [b for b in self.blocks if b.first <= position <= b.last]
        return sorted(found, key=lambda b: (-b.nbytes, b.offset, b.name))


def memory_timeline(lowered: Lowered) -> MemoryTimeline:
    """The timeline of a lowered program. Positions count its leaf steps, loops' bodies and branches once.

    Example: ``t = memory_timeline(lower(module)); print(t.at(t.peak)[0])`` shows the largest value at the peak.
    """
    liveness = live_ranges(lowered.steps, lowered.results)
    steps = [""] * max(liveness.end, 1)
    for step, position in liveness.positions.items():
        steps[position] = _step_name(step)
    places = _BufferPlaces(lowered)
    known = _BufferNames(lowered)
    communication = {
        b for s in leaf_steps(lowered.steps) if isinstance(s, Collective) for b in (*s.operands, *s.results)
    }
    blocks: list[MemoryBlock] = []
    for buffer, placement in lowered.plan.placements.items():
        offset = None if buffer.host else places.offset(placement.ref)
        mask = liveness.in_use(buffer)
        if offset is None or not buffer.nbytes or not mask:
            continue
        kind = buffer.space if buffer.space != "arena" else "temporary"
        kind = "communication" if kind == "temporary" and buffer in communication else kind
        for low, high in runs_of(mask):
            blocks.append(_block(buffer, kind, offset, low // 2, min((high - 1) // 2, len(steps) - 1), known))
    blocks.sort(key=lambda b: (b.first, b.offset, b.last, b.name))
    in_use = tuple(places.fixed + n for n in _bytes_in_use(blocks, len(steps)))
    return MemoryTimeline(lowered.module.name, tuple(steps), tuple(blocks), in_use, places.fixed, places.height)


class _BufferPlaces:
    """Where buffers lie in the memory that the step writes."""

    def __init__(self, lowered: Lowered) -> None:
        self._results: list[int] = []
        at = 0
        for result in lowered.results:
            self._results.append(at)
            at += 0 if result.host else result.nbytes
        self._arena = at
        self.height = at + lowered.plan.arena_bytes - lowered.plan.host_bytes
        self._shared = {a: r for r, a in lowered.plan.aliases}
        self.fixed = sum(b.nbytes for n, b in enumerate(lowered.parameters) if n not in self._shared and not b.host)

    def offset(self, ref: BufferRef) -> int | None:
        """None for arguments in memory of their own, and for constants."""
        if ref.space == "arena":
            return self._arena + ref.offset
        if ref.space == "result":
            return self._results[ref.index] + ref.offset
        if ref.space == "argument" and ref.index in self._shared:
            return self._results[self._shared[ref.index]] + ref.offset
        return None


class _BufferNames:
    """What the program calls the values in buffers."""

    def __init__(self, lowered: Lowered) -> None:
        self._arguments = dict(zip(lowered.parameters, _names_of_leaves(lowered.module), strict=True))
        self._writers: dict[Buffer, KernelStep | Collective] = {}
        self._sources: dict[Buffer, list[Buffer]] = {}
        for step in leaf_steps(lowered.steps):
            if isinstance(step, BufferCopy):
                self._sources.setdefault(step.target, []).append(step.source)
            elif isinstance(step, KernelStep | Collective):
                for buffer in writes_of(step):
                    self._writers.setdefault(buffer, step)

    def of(self, buffer: Buffer) -> tuple[str, str, str]:
        """Instruction, name in the program and source line; a buffer that only copies fill is called as what they copy.

        The state of a loop is such a buffer: its body's value is asked before the one at the start.
        """
        name, waiting, seen = buffer.name, [buffer], {buffer}
        while waiting:
            asked = waiting.pop()
            if asked in self._arguments:
                return name, self._arguments[asked], ""
            writer = self._writers.get(asked)
            if writer is not None:
                i = writer.instruction
                op_name = i.metadata.op_name if i.metadata is not None else ""
                name = i.name if asked is buffer else name
                if op_name or not self._sources.get(asked):
                    return name, op_name, i.source
            fresh = [b for b in self._sources.get(asked, ()) if b not in seen]
            seen.update(fresh)
            waiting += fresh
        return name, "", ""


def _names_of_leaves(module: Module) -> list[str]:
    """A name for each buffer of arguments: scheduled programs of others have tuples, a buffer for each part."""
    names = []
    for name, parameter in zip(module.argument_names, module.parameters, strict=True):
        leaves = len(tuple(parameter.shape.leaves()))
        names += [f"{name}[{n}]" for n in range(leaves)] if parameter.shape.is_tuple else [name]
    return names


def _block(buffer: Buffer, kind: str, offset: int, first: int, last: int, known: _BufferNames) -> MemoryBlock:
    name, op_name, source = known.of(buffer)
    return MemoryBlock(name, op_name, source, str(buffer.shape.plain), kind, offset, buffer.nbytes, first, last)


def _step_name(step: Step) -> str:
    if isinstance(step, BufferCopy):
        return f"copy to {step.target.name}"
    if isinstance(step, AwaitStep):
        return f"await {step.started.instruction.name}"
    if isinstance(step, PredicateCheck):
        return f"check {step.instruction.name}"
    return step.instruction.name


def _bytes_in_use(blocks: Sequence[MemoryBlock], positions: int) -> list[int]:
    """The bytes that blocks cover at each position; values in one place at a time count once."""
    covered = Covered({o for b in blocks for o in (b.offset, b.offset + b.nbytes)})
    begins: list[list[MemoryBlock]] = [[] for _ in range(positions + 1)]
    ends: list[list[MemoryBlock]] = [[] for _ in range(positions + 1)]
    for block in blocks:
        begins[block.first].append(block)
        ends[block.last + 1].append(block)
    out = []
    for position in range(positions):
        for block in ends[position]:
            covered.change(block.offset, block.offset + block.nbytes, -1)
        for block in begins[position]:
            covered.change(block.offset, block.offset + block.nbytes, 1)
        out.append(covered.nbytes)
    return out
