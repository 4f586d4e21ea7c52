"""The drive loop: a program's devices from the beginning to the end, collective by collective, without Python.

::

    i32 shardc_drive(ptr job)

lets every `Row` of a `DriveJob` run to its next stop (several of them on the pool's threads, when that takes long
enough to
be worth it), and gives the collective to the collective executor::

    i32 perform(ptr state, i32 index, i32 phase, i64 deadline)

``phase`` is `WHOLE`, `START` or `DONE_PHASE`. It answers 0 when that is done, 1 when it waited ``deadline`` nanoseconds
for others (it is called again with the same arguments), a negative number when it failed. The loop returns `FINISHED`,
`WAITING` (look at signals and at the other processes, then call again), `ANSWERED` (the rows' answers say what
happened: they differ, a check is false, or there is no such collective), `FAILED` (`DriveJob.code` says why), between
two collectives of a long step `PAUSED` (look at signals, then call again) or, where some devices call Python, `HOSTED`:
these answer with `HOST`; let them go on to where they stop for something else, write that answer to their rows, call
again.

What a phase took the last times is remembered in ``DriveJob.expected``: 2 * n + 1 numbers, for what follows the
beginning, each collective (or its start), and each done. The newest `RING` collectives are in ``DriveJob.events``, sums
in ``DriveJob.records``. All times are nanoseconds of the monotonic clock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

from shardc.native.drive.records import (
    ANSWERED,
    DONE_PHASE,
    EVENTS_OFFSET,
    FAILED,
    FINISHED,
    HOST,
    HOSTED,
    JOB_BYTES,
    PAUSED,
    RING,
    START,
    WAIT,
    WAITING,
    WHOLE,
    CollectiveSums,
    DriveJob,
    Event,
)
from shardc.native.drive.stepping import CLAIM, DRIVE, claim
from shardc.native.drive.stepping import drive as drive_job
from shardc.native.llvm.jit import Loaded, compile_ir, load_object
from shardc.native.llvm.target import Target
from shardc.native.lowlevel.module import compile_functions
from shardc.native.lowlevel.records import ACQUIRE
from shardc.native.threads.pool import ADVANCE, Pool, Row

__all__ = [
    "ANSWERED",
    "DONE_PHASE",
    "DRIVE",
    "EVENTS_OFFSET",
    "FAILED",
    "FINISHED",
    "HOST",
    "HOSTED",
    "JOB_BYTES",
    "PAUSED",
    "PERFORM_TYPE",
    "RING",
    "START",
    "WAIT",
    "WAITING",
    "WHOLE",
    "CollectiveSums",
    "Drive",
    "DriveJob",
    "Event",
    "drive",
    "drive_ir",
    "drive_object",
    "events_of",
    "made_by",
]

#: Nanoseconds until Python looks at signals.
_DEADLINE = 50_000_000

#: The collective executor's function.
PERFORM_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int64)


def made_by(memory: Any) -> int:
    """How many events were begun, by a buffer of `JOB_BYTES`."""
    return DriveJob.from_buffer_copy(memory).made.load(ACQUIRE)


def events_of(memory: Any) -> list[Event]:
    """The newest events in a buffer of `JOB_BYTES`, oldest first; copies."""
    made = made_by(memory)
    size = ctypes.sizeof(Event)
    places = [EVENTS_OFFSET + n % RING * size for n in range(max(0, made - RING), made)]
    return [Event.from_buffer_copy(memory, place) for place in places]


@dataclass(frozen=True)
class Drive:
    """The loop in this process; `prepare` makes jobs for it."""

    loaded: Loaded

    @cached_property
    def function(self) -> Callable[[int], int]:
        """``shardc_drive``, to be called with the address of a job; Python's lock is free meanwhile."""
        return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self.loaded.address(DRIVE))

    def claim(self, word: int, value: int) -> int:
        """Store ``value`` at the address ``word`` if 0 is there; what is there now."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
        return int(kind(self.loaded.address(CLAIM))(word, value))

    def prepare(
        self,
        step: int,
        rows: ctypes.Array[Row],
        pool: Pool,
        kinds: Sequence[int],
        perform: int,
        state: int,
        memory: Any = None,
    ) -> Prepared:
        """A job for the step function at address ``step``; ``kinds`` are `CollectiveSums.kind` by index.

        ``memory`` is a writable buffer of `JOB_BYTES` for the job and its events, where others may read them.
        """
        records = (CollectiveSums * max(1, len(kinds)))()
        for record, kind in zip(records, kinds, strict=False):
            record.kind = kind
        expected = (ctypes.c_int64 * (2 * len(kinds) + 1))()
        memory = bytearray(JOB_BYTES) if memory is None else memory
        job = DriveJob.from_buffer(memory)
        events = (Event * RING).from_buffer(memory, EVENTS_OFFSET)
        ctypes.memset(ctypes.addressof(job), 0, JOB_BYTES)
        job.__init__(  # type: ignore[misc]
            step,
            ctypes.addressof(rows),
            len(rows),
            pool.address(ADVANCE),
            perform,
            state,
            _DEADLINE,
            ctypes.addressof(expected),
            ctypes.addressof(records),
            len(kinds),
            ctypes.addressof(events),
            stop=-1,
        )
        return Prepared(self.loaded.address(DRIVE), self.function, job, rows, records, events, expected, pool)


@dataclass(frozen=True)
class Prepared:
    """A job and the tables that it points to; ``drive`` is the address of ``function``."""

    drive: int
    function: Callable[[int], int]
    job: DriveJob
    rows: ctypes.Array[Row]
    records: ctypes.Array[CollectiveSums]
    events: ctypes.Array[Event]
    expected: ctypes.Array[ctypes.c_int64]
    pool: Pool

    @cached_property
    def _address(self) -> int:
        return ctypes.addressof(self.job)

    def run(self) -> int:
        """Start a step, or go on with the collective that waits."""
        return self.function(self._address)

    def abandon(self) -> None:
        """The next `run` starts at the beginning."""
        self.job.waiting = 0

    @property
    def made(self) -> int:
        """How many events were begun."""
        return self.job.made.load(ACQUIRE)

    @property
    def history(self) -> list[Event]:
        """The newest events, oldest first; copies."""
        made = self.made
        return [Event.from_buffer_copy(self.events[n % RING]) for n in range(max(0, made - RING), made)]


@cache
def drive(code: bytes) -> Drive:
    """The loop of this process whose object is ``code`` (`drive_object`)."""
    return Drive(load_object(code, [DRIVE, CLAIM]))


@lru_cache(maxsize=8)
def drive_object(target: Target | None = None) -> bytes:
    """The object file for ``target`` (default: this machine)."""
    return compile_ir(drive_ir(target), target)


def drive_ir(target: Target | None = None) -> str:
    """The IR text for ``target``."""
    return compile_functions((drive_job, claim), target)
