"""The lowered program as data: steps over buffers, where each buffer lies, and what memory it takes.

Tuples are gone here. A `Buffer` is one array leaf of the program; a `Step` reads and writes buffers. Steps stand
in execution order and nest only where the program does (loops, branches), so the emitter and the simulator walk
the same tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shardc.collectives.call.call import BufferRef, SharedSection
from shardc.hlo.ir.callbacks import is_callback
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.types import Shape

__all__ = [
    "AwaitStep",
    "BranchStep",
    "Buffer",
    "BufferCopy",
    "BufferPlacement",
    "BufferPlan",
    "Collective",
    "Constants",
    "KernelStep",
    "Lowered",
    "Once",
    "PredicateCheck",
    "Step",
    "WhileStep",
    "leaf_steps",
    "memory_analysis",
]


@dataclass(slots=True, eq=False)
class Buffer:
    """One array in memory. ``space`` and ``index`` as in `BufferRef`; arena buffers get their offset in the plan.

    ``number`` counts buffers in order of creation and makes every later choice deterministic. ``host``: it is in the
    host's memory.
    """

    number: int
    shape: Shape
    space: str = "arena"
    index: int = 0
    offset: int = 0
    name: str = ""
    host: bool = False

    @property
    def nbytes(self) -> int:
        return self.shape.nbytes

    @property
    def is_arena(self) -> bool:
        return self.space == "arena"

    def __repr__(self) -> str:
        return f"Buffer({self.number}, {self.shape}, {self.space}[{self.index}], %{self.name})"


@dataclass(slots=True, eq=False)
class KernelStep:
    """Call of one native kernel. ``in_place`` lists (result, operand) pairs that may be the same memory.

    An ``asynchronous`` one, a move between host and device, only starts here: an `AwaitStep` of it follows.
    """

    instruction: Instruction
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    in_place: tuple[tuple[int, int], ...] = ()
    asynchronous: bool = False


@dataclass(slots=True, eq=False)
class BufferCopy:
    """``target`` becomes ``source``, byte for byte; nothing when the plan puts both in one place."""

    source: Buffer
    target: Buffer


@dataclass(slots=True, eq=False)
class Collective:
    """A suspension point; ``index`` is what the step returns there. ``in_place`` as for kernels.

    An ``asynchronous`` one only starts here: an `AwaitStep` of it follows in the same block.
    """

    index: int
    instruction: Instruction
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    in_place: tuple[tuple[int, int], ...] = ()
    asynchronous: bool = False


@dataclass(slots=True, eq=False)
class AwaitStep:
    """Where ``started``, a collective or a move, must be done: its operands are free, its results there."""

    started: Collective | KernelStep


@dataclass(slots=True, eq=False)
class PredicateCheck:
    """Stop the run where ``predicate`` is false; ``index`` counts the checks of the program."""

    index: int
    instruction: Instruction
    predicate: Buffer


@dataclass(slots=True, eq=False)
class WhileStep:
    """``while predicate``: run ``condition``, read ``predicate``, stop when it is false, run ``body``, repeat."""

    instruction: Instruction
    condition: Sequence[Step]
    predicate: Buffer
    body: Sequence[Step]


@dataclass(slots=True, eq=False)
class BranchStep:
    """One of ``branches`` by ``selector``: a pred (true takes branch 0) or an s32 index (out of range: the last)."""

    instruction: Instruction
    selector: Buffer
    branches: Sequence[Sequence[Step]]


Step = KernelStep | BufferCopy | Collective | AwaitStep | PredicateCheck | WhileStep | BranchStep


def leaf_steps(steps: Sequence[Step]) -> Iterator[KernelStep | BufferCopy | Collective | AwaitStep | PredicateCheck]:
    """All steps that do something themselves, in program order, loop bodies and branches once."""
    for step in steps:
        if isinstance(step, WhileStep):
            yield from leaf_steps(step.condition)
            yield from leaf_steps(step.body)
        elif isinstance(step, BranchStep):
            for branch in step.branches:
                yield from leaf_steps(branch)
        else:
            yield step


@dataclass(frozen=True, slots=True)
class BufferPlacement:
    """Where a buffer lies and when: ``first`` and ``last`` are positions of leaf steps in program order."""

    ref: BufferRef
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class BufferPlan:
    """Every buffer's place. ``arena_bytes`` includes the header; ``aliases`` are (result, argument) pairs whose
    memory may be the same: the plan holds whether or not the driver passes the same pointer for both. Likewise the
    members of a group may have the same memory for one of the arena's ``sections``. The last ``host_bytes`` of the
    arena are for values in host memory: on processors it is one memory with the rest."""

    placements: Mapping[Buffer, BufferPlacement]
    arena_bytes: int
    aliases: tuple[tuple[int, int], ...] = ()
    sections: tuple[SharedSection, ...] = ()
    host_bytes: int = 0

    def ref(self, buffer: Buffer) -> BufferRef:
        return self.placements[buffer].ref


@dataclass(frozen=True, slots=True)
class Constants:
    """The constant pool: bytes, and the offset of every constant buffer in it is the buffer's own."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Once:
    """What devices of one process need not all do, see `compute_once`.

    Of each of the ``groups`` the first device in a process does the ``steps`` with its number, and it alone needs the
    buffers ``wanted`` of a collective. ``results`` says by result which group's first devices alone write its memory
    (-1: others do too). Results ``in_place`` may be written over an argument that a group shares.
    """

    groups: tuple[AxisGroups, ...] = ()
    steps: Mapping[Step, int] = field(default_factory=dict)
    wanted: Mapping[Buffer, int] = field(default_factory=dict)
    results: tuple[int, ...] = ()
    in_place: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Lowered:
    """A module ready to emit: fused and ordered (the instruction order is the schedule), with its buffer plan.

    ``parameters`` and ``results`` are the buffers of flat arguments and results. ``notes`` say what of the program the
    steps do not tell.
    """

    module: Module
    steps: tuple[Step, ...]
    parameters: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    plan: BufferPlan
    constants: Constants
    seconds: Mapping[str, float] = field(default_factory=dict)
    once: Once = field(default_factory=Once)
    notes: tuple[str, ...] = ()

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """Instructions that run as kernels or collectives, in schedule order."""
        return tuple(
            s.instruction for s in leaf_steps(self.steps) if not isinstance(s, BufferCopy | AwaitStep | PredicateCheck)
        )

    @property
    def collectives(self) -> tuple[Collective, ...]:
        return tuple(s for s in leaf_steps(self.steps) if isinstance(s, Collective))

    @property
    def checks(self) -> tuple[PredicateCheck, ...]:
        return tuple(s for s in leaf_steps(self.steps) if isinstance(s, PredicateCheck))

    @property
    def hosts(self) -> tuple[KernelStep, ...]:
        """The calls of Python: steps at which the program stops, by number."""
        return tuple(s for s in leaf_steps(self.steps) if isinstance(s, KernelStep) and is_callback(s.instruction))


def memory_analysis(lowered: Lowered) -> dict[str, int]:
    """Bytes per device. Example key values sum up as in the report:
    ``peak_bytes = argument_bytes + result_bytes - aliased_bytes + temporary_bytes + communication_bytes``.

    Communication is the part of the arena that at some time is an operand or a result of a collective. All but
    ``host_bytes``, which are in pinned memory of the host, is the device's memory.
    """
    arguments, host_arguments = _bytes_in(lowered.parameters)
    results, host_results = _bytes_in(lowered.results)
    aliased, host_aliased = _bytes_in([lowered.results[r] for r, _ in lowered.plan.aliases])
    communication = _arena_bytes_of_collectives(lowered)
    temporary = lowered.plan.arena_bytes - lowered.plan.host_bytes - communication
    return {
        "argument_bytes": arguments,
        "result_bytes": results,
        "aliased_bytes": aliased,
        "temporary_bytes": temporary,
        "communication_bytes": communication,
        "constant_bytes": len(lowered.constants.data),
        "peak_bytes": arguments + results - aliased + temporary + communication,
        "host_bytes": host_arguments + host_results - host_aliased + lowered.plan.host_bytes,
    }


def _bytes_in(buffers: Sequence[Buffer]) -> tuple[int, int]:
    """Bytes in the device's memory and in the host's."""
    host = sum(b.nbytes for b in buffers if b.host)
    return sum(b.nbytes for b in buffers) - host, host


def _arena_bytes_of_collectives(lowered: Lowered) -> int:
    ranges = sorted(
        (ref.offset, ref.offset + ref.nbytes)
        for c in lowered.collectives
        for b in (*c.operands, *c.results)
        if (ref := lowered.plan.ref(b)).space == "arena"
    )
    total = end = 0
    for low, high in ranges:
        total += max(0, high - max(low, end))
        end = max(end, high)
    return total
