"""The compiled per-device program: native object, buffer sizes, constants, collective plan. Independent of rank.

The native entry point is a resumable step::

    int32_t step(uint8_t *arena, uint8_t **arguments, uint8_t **results, uint8_t *constants, int32_t device)

It runs to the next collective and returns that `CollectiveCall`'s ``index``, or `DONE` when the program is done, or
`encode_failed_check` of the number of a check that is false (`check_error` says which; the run is over). The driver
performs the collective on the buffers the call names and calls ``step`` again with the same pointers. The first
`ARENA_HEADER` bytes of the arena belong to the step: zero, but that the 8 at `PASSED_BY` may be a mask of the groups in
`Executable.once` for which another device of the process computes. Before each run the driver zeroes the first 8, where
the resume point lies. ``device`` is the partition id.

An asynchronous call is returned twice: ``index`` where it may start, ``index | WAIT`` where its results are needed.
Between the two the step neither writes its operands nor touches its results.

Where a device calls Python, the step returns `HOST` with the number of the `HostCall`, and goes on in the same way once
the call's results are there. Devices stop for that each by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shardc.collectives.call.call import BufferRef, CollectiveCall, SharedSection
from shardc.collectives.call.memory import PASSED_BY
from shardc.collectives.call.schedule import Schedule
from shardc.compiler.gpu_program import GpuProgram
from shardc.compiler.profile import ProfilePlan
from shardc.hlo.errors import RunError
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import Shape

__all__ = [
    "ARENA_HEADER",
    "DONE",
    "HOST",
    "PASSED_BY",
    "WAIT",
    "ArraySpec",
    "CheckSite",
    "Executable",
    "HostArray",
    "HostCall",
    "check_error",
    "custom_call_symbol",
    "encode_failed_check",
]

#: Bytes at the start of the arena that hold the step's resume point.
#: Arenas and results start at multiples of 64 bytes, arguments at multiples of 16.
ARENA_HEADER = 64

#: Returned at the end of the program.
DONE = -1

#: Added to the number of an asynchronous collective where the step needs its results.
WAIT = 1 << 30

#: Added to the number of a call of Python.
HOST = 1 << 29


def encode_failed_check(number: int) -> int:
    """What the step returns when check ``number`` is false."""
    return DONE - 1 - number


def custom_call_symbol(target: str) -> str:
    """The name under which compiled code calls a user's function."""
    return f"shardc_custom_call.{target}"


@dataclass(frozen=True, slots=True)
class CheckSite:
    """A check that the step makes: target of the custom call, instruction, source line."""

    target: str
    name: str
    source: str


@dataclass(frozen=True, slots=True)
class HostArray:
    """An operand or a result of a call of Python, and where it lies."""

    place: BufferRef
    shape: Shape


@dataclass(frozen=True, slots=True)
class HostCall:
    """A call of Python in the step: its custom call (target, ``config``, frontend attributes ``marks``, ``shape``), and
    for errors what people call it, the instruction, the source line."""

    target: str
    config: str
    marks: tuple[tuple[str, str], ...]
    shape: Shape
    operands: tuple[HostArray, ...]
    results: tuple[HostArray, ...]
    title: str
    name: str
    source: str

    @property
    def place(self) -> str:
        return f"%{self.name}, {self.source}" if self.source else f"%{self.name}"


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An argument or a result: people's name, global and local shape, layout over the mesh."""

    name: str
    global_shape: Shape
    local_shape: Shape
    sharding: Sharding | None


@dataclass(frozen=True, slots=True)
class Executable:
    """See the module docstring. ``target`` is the LLVM triple and CPU that the ``objects`` were made for; they are
    linked together, and ``symbol`` is the entry point in the last of them.

    ``donated`` are arguments whose memory is free after the step; ``aliases`` are (result, argument) pairs among
    them for which a driver may pass the same pointer. ``features`` are the CPU features that the object uses,
    ``memory`` the bytes of `memory_analysis`, ``seconds`` compile times per stage. ``profile`` says what a step
    compiled for profiling records in its arena, ``tuning`` what was chosen instead of the defaults (plain data).

    ``once`` are groups of devices that compute some of the program's values alike, so that the first of each in a
    process may do it alone (`PASSED_BY` says who goes past). Aliases of results in ``shared`` hold even where devices
    share the argument: the first of them writes. ``result_classes`` are by result the number in ``once`` of the groups
    of which only the first device writes its memory, -1 where all do (empty: all do). ``sections`` of
    the arena may be one memory for a group of devices. ``schedule`` is the order of the collectives, without what has
    none. With ``gpu`` the step is that program: there is no native step, ``objects`` and ``symbol`` are empty, and
    ``target`` is the text of a `GpuTarget`. ``meaning`` is a digest of the program that it was made of, constants and
    all, the same for any processor. ``hosts`` are the calls of Python, by number.
    """

    name: str
    target: str
    objects: tuple[bytes, ...]
    symbol: str
    num_devices: int
    arguments: tuple[ArraySpec, ...]
    results: tuple[ArraySpec, ...]
    arena_bytes: int
    constants: bytes
    collectives: tuple[CollectiveCall, ...]
    donated: tuple[int, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    aliases: tuple[tuple[int, int], ...] = ()
    features: str = ""
    memory: dict[str, int] = field(default_factory=dict)
    checks: tuple[CheckSite, ...] = ()
    profile: ProfilePlan | None = None
    tuning: dict[str, Any] = field(default_factory=dict)
    once: tuple[AxisGroups, ...] = ()
    shared: tuple[int, ...] = ()
    result_classes: tuple[int, ...] = ()
    sections: tuple[SharedSection, ...] = ()
    schedule: Schedule = ()
    gpu: GpuProgram | None = None
    meaning: str = ""
    hosts: tuple[HostCall, ...] = ()


def check_error(executable: Executable, answer: int) -> RunError | None:
    """The error that ``answer`` of the step stands for; None when it is `DONE` or a collective."""
    if answer >= DONE:
        return None
    site = executable.checks[DONE - 1 - answer]
    return RunError(
        f"{site.target} is false in {executable.name}",
        where=f"%{site.name}, {site.source}" if site.source else f"%{site.name}",
        fix="the two values that it compares differ: return both to see where",
    )
