"""The drive loop: a program's devices from the beginning to the end, collective by collective, without Python.

::

    i32 shardc_drive(ptr job)

lets every `Row` of a `Job` run to its next stop (several of them on the pool's threads, when that takes long enough to
be worth it), and hands the collective to the collective executor::

    i32 perform(ptr state, i32 index, i32 phase, i64 deadline)

``phase`` is `WHOLE`, `START` or `DONE_PHASE`. It answers 0 when that is done, 1 when it waited ``deadline`` nanoseconds
for others (it is called again with the same arguments), a negative number when it failed. The loop returns `FINISHED`,
`WAITING` (look at signals and at the other processes, then call again), `ANSWERED` (the rows' answers say what
happened: they differ, a check is false, or there is no such collective), `FAILED` (`Job.code` says why), between two
collectives of a long step `PAUSED` (look at signals, then call again) or, where some devices call Python, `HOSTED`:
these answer with `HOST`; let them go on to where they stop for something else, write that answer to their rows, call
again.

What a phase took the last times is remembered in ``Job.expected``: 2 * n + 1 numbers, for what follows the beginning,
each collective (or its start), and each done. The newest `RING` collectives are in ``Job.events``, sums in
``Job.records``. All times are nanoseconds of the monotonic clock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

from shardc.native.drive.drive_ir import DRIVE as TEXT
from shardc.native.drive.rows_ir import ROWS
from shardc.native.llvm.jit import Loaded, compile_ir, load_object
from shardc.native.llvm.target import Target, host_target
from shardc.native.threads.clock import now_ir
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
    "Drive",
    "Event",
    "Job",
    "Record",
    "drive",
    "drive_ir",
    "drive_object",
    "events_of",
    "made_by",
]

#: Names in the object: ``i32 (ptr job)``; ``i64 (ptr word, i64 value)``, see `Drive.claim`.
DRIVE, CLAIM = "shardc_drive", "shardc_claim"

#: What the step returns at the done of collective ``index``: ``index | WAIT``.
WAIT = 1 << 30
#: What the step returns where it calls Python: the number of the call and this bit.
HOST = 1 << 29
#: What a collective executor is asked for: a whole collective, its start, its done.
WHOLE, START, DONE_PHASE = 0, 1, 2
#: What the loop returns.
FINISHED, WAITING, ANSWERED, FAILED, PAUSED, HOSTED = range(6)
#: Events that are kept.
RING = 256

#: Nanoseconds that a phase may take that never ran, and below which other threads are not worth calling.
_UNKNOWN, _TINY = 10_000_000, 1_500
#: Nanoseconds until Python looks at signals.
_DEADLINE = 50_000_000
#: Bytes at the start of an arena that hold the step's resume point.
_HEADER = 8

#: The collective executor's function.
PERFORM_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int64)


class Record(ctypes.Structure):
    """A collective of the program and its sums: how often it (or its start, its done) ran, and the nanoseconds
    that the devices stood still for it. ``kind`` is 0 for an index that no collective has, 2 for start and done."""

    _fields_ = tuple(
        (n, ctypes.c_int64) for n in ("kind", "count", "nanoseconds", "dones", "done_nanoseconds", "spare")
    )


class Event(ctypes.Structure):
    """One collective in the flight recorder: ``phase`` of collective ``index`` from ``begin`` to ``end`` (0: not over),
    ``waits`` times longer than the deadline."""

    _fields_ = tuple((n, ctypes.c_int64) for n in ("index", "phase", "begin", "end", "waits"))


class Job(ctypes.Structure):
    """What `DRIVE` works on. ``where`` is 0 outside, 1 in the step, 2 in a collective (``stop``).

    At ``shown`` (if not null) the other processes read whether this one is in a step: ``inside`` or 0; and at
    ``recorder`` which job it is: ``number``.
    """

    _fields_ = (
        ("step", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("advance", ctypes.c_void_p),
        ("perform", ctypes.c_void_p),
        ("state", ctypes.c_void_p),
        ("deadline", ctypes.c_int64),
        ("expected", ctypes.c_void_p),
        ("records", ctypes.c_void_p),
        ("calls", ctypes.c_int64),
        ("events", ctypes.c_void_p),
        ("stop", ctypes.c_int64),
        ("waiting", ctypes.c_int64),
        ("code", ctypes.c_int64),
        ("made", ctypes.c_int64),
        ("done", ctypes.c_int64),
        ("where", ctypes.c_int64),
        ("shown", ctypes.c_void_p),
        ("inside", ctypes.c_int64),
        ("recorder", ctypes.c_void_p),
        ("number", ctypes.c_int64),
    )


#: Bytes of a job with its events behind it, and where these begin.
EVENTS_OFFSET = ctypes.sizeof(Job)
JOB_BYTES = EVENTS_OFFSET + RING * ctypes.sizeof(Event)


def made_by(memory: Any) -> int:
    """How many events were begun, by a buffer of `JOB_BYTES`."""
    return int(Job.from_buffer_copy(memory).made)


def events_of(memory: Any) -> list[Event]:
    """The newest events in a buffer of `JOB_BYTES`, oldest first; copies."""
    made = Job.from_buffer_copy(memory).made
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
        """A job for the step function at address ``step``; ``kinds`` are `Record.kind` by index.

        ``memory`` is a writable buffer of `JOB_BYTES` for the job and its events, where others may read them.
        """
        records = (Record * max(1, len(kinds)))()
        for record, kind in zip(records, kinds, strict=False):
            record.kind = kind
        expected = (ctypes.c_int64 * (2 * len(kinds) + 1))()
        memory = bytearray(JOB_BYTES) if memory is None else memory
        job = Job.from_buffer(memory)
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
        return Prepared(self.function, job, rows, records, events, expected, pool)


@dataclass(frozen=True)
class Prepared:
    """A job and the tables that it points to."""

    function: Callable[[int], int]
    job: Job
    rows: ctypes.Array[Row]
    records: ctypes.Array[Record]
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
    def history(self) -> list[Event]:
        """The newest events, oldest first; copies."""
        made = self.job.made
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
    triple = (target or host_target()).triple
    values = {
        "HEADER": _HEADER,
        "INDEX": WAIT - 1,
        "WAIT": WAIT,
        "HOST_SHIFT": HOST.bit_length() - 1,
        "WAIT_SHIFT": WAIT.bit_length() - 1,
        "UNKNOWN": _UNKNOWN,
        "TINY": _TINY,
        "RING_MASK": RING - 1,
    }
    text = f'target triple = "{triple}"\n{now_ir(triple)}{ROWS}{TEXT}'
    for name, value in values.items():
        text = text.replace(f"${name}$", str(value))
    return text
