"""What the pool's threads share; see `shardc.native.threads.pool`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from shardc.native.lowlevel.builtins import static
from shardc.native.lowlevel.kinds import Count, OwnLine, address, i32, i64, u64
from shardc.native.lowlevel.records import Atomic, Record, Span
from shardc.native.lowlevel.system import ConditionVariable, Mutex

__all__ = ["CORES", "CORE_WORDS", "POOL", "SLOTS", "Piece", "PoolRecord", "Slot"]

#: Jobs at a time.
SLOTS = 8
#: Cores that are told apart, and the words with a bit for each.
CORES, CORE_WORDS = 1024, 16

#: Does indices ``begin`` to ``end`` of a job, which is its first argument.
Piece = Callable[[address, i64, i64], None]


class Slot(Record):
    """A job. ``ticket`` is its generation and the first and the end of the indices that nobody has taken (32, 16 and 16
    bits); each index stands for ``grain`` of the ``count``.

    On a line of its own: how many indices are not done, whether the caller sleeps, whether the slot is in use.
    """

    ticket: Atomic[u64]
    function: Atomic[Callable[[address, i64, i64], None]]
    context: Atomic[address]
    count: Atomic[i64]
    grain: Atomic[i64]
    pending: OwnLine[Atomic[i32]]
    waits: Atomic[i32]
    taken: Atomic[i32]


class PoolRecord(Record):
    """The pool of a process.

    ``epoch`` counts jobs: workers watch it, and ``sleepers`` sleep on it. At most ``limit`` workers help, and watch for
    ``spin`` nanoseconds. Who called last (``calling``) runs on core ``caller``. ``unshared`` is work that met too few
    workers. ``started`` workers are there of process ``owner``; ``starting`` is the process that starts some.
    """

    slots: Annotated[Span[Slot], Count(SLOTS)]
    epoch: OwnLine[Atomic[i32]]
    sleepers: OwnLine[Atomic[i32]]
    limit: OwnLine[Atomic[i32]]
    spin: Atomic[i64]
    caller: OwnLine[Atomic[i32]]
    calling: Atomic[address]
    unshared: OwnLine[Atomic[i64]]
    started: OwnLine[Atomic[i32]]
    owner: Atomic[i32]
    starting: Atomic[i32]
    mutex: Mutex
    condition: ConditionVariable


POOL = static(PoolRecord, "pool", caller=-1)
