"""What the drive loop works on; see `shardc.native.drive.drive_loop`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.records import Atomic, Record, Span
from shardc.native.threads.rows import Row, Step

__all__ = [
    "ANSWERED",
    "DONE_PHASE",
    "EVENTS_OFFSET",
    "FAILED",
    "FINISHED",
    "HOST",
    "HOSTED",
    "JOB_BYTES",
    "PAUSED",
    "RING",
    "START",
    "WAIT",
    "WAITING",
    "WHOLE",
    "CollectiveSums",
    "DriveJob",
    "Event",
]  # fmt: skip

#: What the step returns at the done of collective ``index``: ``index | WAIT``.
WAIT = 1 << 30
#: What the step returns where it calls Python: the number of the call and this bit.
HOST = 1 << 29
#: What an executor is asked for: a whole collective, its start, its done.
WHOLE, START, DONE_PHASE = 0, 1, 2
#: What the loop returns.
FINISHED, WAITING, ANSWERED, FAILED, PAUSED, HOSTED = range(6)
#: Events that are kept.
RING = 256


class CollectiveSums(Record):
    """A collective of the program and its sums: how often it (or its start, its done) ran, and the nanoseconds
    that the devices stood still for it. ``kind`` is 0 for an index that no collective has, 2 for start and done."""

    kind: i64
    count: i64
    nanoseconds: i64
    dones: i64
    done_nanoseconds: i64
    spare: i64


class Event(Record):
    """One collective in the flight recorder: ``phase`` of collective ``index`` from ``begin`` to ``end`` (0: not over),
    ``waits`` times longer than the deadline."""

    index: i64
    phase: i64
    begin: i64
    end: i64
    waits: i64


class DriveJob(Record):
    """What `shardc_drive` works on: the ``step`` of the ``count`` devices in ``rows``, with ``advance`` of the pool for
    many of them and ``perform`` for the ``calls`` collectives.

    ``where`` is 0 outside, 1 in the step, 2 in a collective (``stop``). At ``shown`` (if not 0) the other processes
    read whether this one is in a step: ``inside`` or 0; and at ``recorder`` which job it is: ``number``.
    """

    step: Step
    rows: Span[Row]
    count: i64
    advance: Callable[[Step, Span[Row], i64, i64], None]
    perform: Callable[[address, i32, i32, i64], i32]
    state: address
    deadline: i64
    expected: Span[i64]
    records: Span[CollectiveSums]
    calls: i64
    events: Span[Event]
    stop: i64
    waiting: i64
    code: i64
    made: Atomic[i64]
    done: i64
    where: i64
    shown: address
    inside: i64
    recorder: address
    number: i64


#: Bytes of a job with its events behind it, and where these begin.
EVENTS_OFFSET = ctypes.sizeof(DriveJob)
JOB_BYTES = EVENTS_OFFSET + RING * ctypes.sizeof(Event)
