"""What the native executor of ranks of one node works on; see `shardc.collectives.shared_memory.native_executor`.

A *channel* are the processes that a collective connects; they count its collectives, and number n uses slot
``n % SLOTS`` of it. A process's *record* of a slot has a head and behind that its operands (a small collective), or
where in its heap its operands and results lie (a *direct* one).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Annotated

from shardc.native.collectives.heads import Head, Stamp
from shardc.native.collectives.helper_queue import HelperQueue
from shardc.native.collectives.status import Status
from shardc.native.collectives.work import Cell, WorkCall
from shardc.native.lowlevel.kinds import Count, OwnLine, Pointer, address, i64
from shardc.native.lowlevel.records import Atomic, Record, Span
from shardc.native.threads.meeting import Meeting
from shardc.native.threads.pool_records import Piece

__all__ = [
    "ANNOUNCED", "EARLY", "HEAD", "IDLE", "REUSE", "SLOTS", "SLOT_BYTES", "WORKED", "CallRecord", "ChannelRecord",
    "MemberRecord", "ShareRecord", "SlotRecord", "StateRecord",
]  # fmt: skip

#: Collectives of a channel that may be under way at a time, a power of two.
SLOTS = 16

#: ``CallRecord.stage``: not under way; waits until all have left its slot; the others know my part; nobody need begin
#: with a piece of the work; all is done, before anybody asked.
IDLE, REUSE, ANNOUNCED, WORKED, EARLY = range(5)


class SlotRecord(Record):
    """Who has come, how many pieces of the work are done, who has left."""

    arrived: OwnLine[Meeting]
    done: OwnLine[Meeting]
    left: OwnLine[Meeting]


class MemberRecord(Record):
    """What a process tells the others of a collective: ``claimed`` is how many of its pieces of the work somebody has
    taken; ``body`` are offsets in its heap (0: nothing), or operands."""

    head: Head
    claimed: OwnLine[Atomic[i64]]
    body: OwnLine[Annotated[Span[i64], Count(0)]]


#: Bytes of a slot, and of a record without its body.
SLOT_BYTES, HEAD = ctypes.sizeof(SlotRecord), MemberRecord.offset_of("body")


class ChannelRecord(Record):
    """``records`` and ``heaps`` are tables of addresses by member (heaps as this process maps them), ``pending`` those
    that have begun by slot, ``bases`` the pieces of work that a slot has seen. ``position`` is this process's among
    ``members``."""

    slots: Span[SlotRecord]
    records: Span[address]
    heaps: Span[i64]
    pending: Span[Pointer[CallRecord] | None]
    bases: Span[i64]
    members: i64
    position: i64
    sequence: i64
    stride: i64
    number: i64


class ShareRecord(Record):
    """The work of one group, in ``pieces`` of which the ``first`` has that number among all of the collective's.

    ``sources`` and ``targets`` are ``count`` cells each, which become the pointers in ``operands`` and ``results``.
    """

    work: Pointer[WorkCall]
    sources: Span[Cell]
    targets: Span[Cell]
    operands: Span[address]
    results: Span[address]
    count: i64
    first: i64
    pieces: i64


class CallRecord(Record):
    """A collective. Its ``entries`` are the operands, then the results, of this process's devices: ``cells`` say where
    they lie, ``own`` are their addresses in this run, ``sizes`` their bytes, ``staging`` memory in the heap for those
    outside, ``mail`` where in a record an operand goes.

    A direct collective has ``pieces`` of work, and its slot has seen ``base`` before; ``threads`` may take part, for
    about ``nanoseconds``. Of a ragged exchange each process also makes a check that nobody can make for it: all wait
    for ``checks`` more.

    This process announced it at ``when``, the last one at ``latest``. ``transfers`` counts how often it was ``started``
    and completed, ``transfer_ns`` is how long that took, see
    `shardc.collectives.shared_memory.executor.SharedMemoryExecutor.transfers`.

    ``member_records`` are those of this run, ``imported`` their entries' addresses, ``width`` words for each member.
    Where the helper was ``handed`` it, ``done`` counts the ``runs``, with ``answer``. ``row_bytes`` are those of
    all rows that a ragged exchange has moved so far, in the groups of ``shares``.
    """

    channel: Pointer[ChannelRecord]
    cells: Span[Cell]
    own: Span[address]
    sizes: Span[i64]
    staging: Span[address]
    mail: Span[i64]
    member_records: Span[address]
    imported: Span[i64]
    entries_of: Span[i64]
    shares: Span[ShareRecord]
    share_count: i64
    pieces: i64
    checks: i64
    base: i64
    threads: i64
    nanoseconds: i64
    entries: i64
    operands: i64
    width: i64
    direct: i64
    index: i64
    signature: i64
    stage: i64
    sequence: i64
    resumed: i64
    handed: i64
    done: Meeting
    runs: i64
    answer: i64
    started: i64
    when: i64
    latest: i64
    transfers: i64
    transfer_ns: i64
    row_bytes: i64


class StateRecord(Record):
    """A program's collectives by index, and this process: its heap, what it and its helper show of themselves, how long
    it watches memory (nanoseconds), how many cores the node's processes share, the pool. ``stamp`` is that of its step;
    ``found`` is the head of ``found_member`` in a mismatch.

    ``helps`` is 1 where a thread does the transfers; ``ended`` counts it when it is over.
    """

    calls: Span[Pointer[CallRecord] | None]
    count: i64
    heap: address
    heap_bytes: i64
    status: Pointer[Status]
    helper_status: Pointer[Status]
    spin: i64
    cores: i64
    parallel: Callable[[Piece, address, i64, i64], None]
    found_member: i64
    found: Head
    stamp: Stamp
    helps: i64
    queue: HelperQueue
    ended: Meeting
