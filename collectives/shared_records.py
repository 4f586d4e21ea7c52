"""What the native performer of ranks of one node works on; see `shardc.collectives.shared_code`.

All fields are words of 8 bytes. A *channel* are the processes that a collective connects; they count its collectives,
and number n uses slot ``n % SLOTS`` of it. A slot has two meetings (`shardc.native.meeting`): who has come, who has
done his share. A process's *record* of a slot has a head (`HEAD` bytes: sequence, index, signature, time) and behind
that its operands (a small collective), or where in its heap its operands and results lie (a *direct* one).
"""

from __future__ import annotations

import ctypes

__all__ = [
    "ANNOUNCED",
    "EARLY",
    "HEAD",
    "IDLE",
    "REUSE",
    "SLOTS",
    "SLOT_BYTES",
    "WORKED",
    "CallRecord",
    "ChannelRecord",
    "ShareRecord",
    "StateRecord",
]

#: Collectives of a channel that may be under way at a time, a power of two; bytes of a slot: a line for each meeting.
SLOTS, SLOT_BYTES = 16, 256
#: Bytes of a record's head.
HEAD = 64

#: ``CallRecord.stage``: not under way; waits until all have left its slot; the others know my part; my share of the
#: work is done; all is done, before anybody asked.
IDLE, REUSE, ANNOUNCED, WORKED, EARLY = range(5)

_P, _N = ctypes.c_void_p, ctypes.c_int64


class ChannelRecord(ctypes.Structure):
    """``records`` and ``heaps`` are tables of addresses by member (heaps as this process maps them), ``pending`` one of
    `CallRecord` by slot. ``position`` is this process's among ``members``."""

    _fields_ = (
        ("slots", _P),
        ("records", _P),
        ("heaps", _P),
        ("pending", _P),
        ("members", _N),
        ("position", _N),
        ("sequence", _N),
        ("stride", _N),
        ("number", _N),
    )


class ShareRecord(ctypes.Structure):
    """This process's share of the work of one group (``part`` of ``parts``, maybe cut into ``pieces`` for threads).

    ``work`` is a `shardc.native.work.WorkCall`; ``sources`` and ``targets`` are ``count`` cells each, which become the
    pointers in ``operands`` and ``results``.
    """

    _fields_ = (
        ("work", _P),
        ("sources", _P),
        ("targets", _P),
        ("operands", _P),
        ("results", _P),
        ("count", _N),
        ("part", _N),
        ("parts", _N),
        ("pieces", _N),
        ("nanoseconds", _N),
    )


class CallRecord(ctypes.Structure):
    """A collective. Its ``entries`` are the operands, then the results, of this process's devices: ``cells`` say where
    they lie, ``own`` are their addresses in this run, ``sizes`` their bytes, ``staging`` memory in the heap for those
    outside, ``mail`` where in a record an operand goes.

    This process announced it at ``when``, the last one at ``latest``. ``transfers`` counts how often it was ``started``
    and completed, ``transfer_ns`` is how long that took, see `shardc.collectives.shared.SharedPerformer.transfers`.

    ``at`` has the members' records of this run, ``imported`` their entries' addresses, ``width`` words for each member.
    """

    _fields_ = (
        ("channel", _P),
        ("cells", _P),
        ("own", _P),
        ("sizes", _P),
        ("staging", _P),
        ("mail", _P),
        ("at", _P),
        ("imported", _P),
        ("entries_of", _P),
        ("shares", _P),
        ("share_count", _N),
        ("entries", _N),
        ("operands", _N),
        ("width", _N),
        ("direct", _N),
        ("index", _N),
        ("signature", _N),
        ("stage", _N),
        ("sequence", _N),
        ("resumed", _N),
        ("handed", _N),
        ("done", _N),
        ("runs", _N),
        ("answer", _N),
        ("started", _N),
        ("when", _N),
        ("latest", _N),
        ("transfers", _N),
        ("transfer_ns", _N),
    )


class StateRecord(ctypes.Structure):
    """A program's collectives by index, and this process: its heap, its row of the control table, how long it watches
    memory (nanoseconds), how many cores the node's processes share, the pool. ``found_*`` are of the other one in a
    mismatch: member, sequence, index, signature.

    ``helps`` is 1 where a thread does the transfers: ``queue`` has ``mask + 1`` entries, ``posted`` and ``ended``
    are meetings.
    """

    _fields_ = (
        ("calls", _P),
        ("count", _N),
        ("heap", _N),
        ("heap_bytes", _N),
        ("row", _P),
        ("spin", _N),
        ("cores", _N),
        ("parallel", _P),
        ("program", _N),
        ("found_member", _N),
        ("found_sequence", _N),
        ("found_index", _N),
        ("found_signature", _N),
        ("helps", _N),
        ("queue", _P),
        ("mask", _N),
        ("posted", _N),
        ("ended", _N),
        ("stop", _N),
        ("handed", _N),
    )
