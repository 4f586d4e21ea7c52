"""The records of the native executor of ranks of one node; see `shardc.collectives.shared_memory.native_executor`.

All fields are words of 8 bytes. A *channel* are the processes that a collective connects; they count its collectives,
and number n uses slot ``n % SLOTS`` of it. A slot has three meetings (`shardc.native.threads.meeting`): who has come,
how many
pieces of the work are done, who has left. A process's *record* of a slot has a head (`HEAD` bytes: sequence, index,
signature, time, and the stamp of `shardc.collectives.call.stamp`; at `CLAIMED`, how many of its pieces of the work
somebody
has taken) and behind that its operands (a
small collective), or where in its heap its operands and results lie (a *direct* one).
"""

from __future__ import annotations

import ctypes

__all__ = [
    "ANNOUNCED",
    "ARRIVED",
    "CLAIMED",
    "DONE",
    "EARLY",
    "HEAD",
    "IDLE",
    "LEFT",
    "REUSE",
    "SLOTS",
    "SLOT_BYTES",
    "WORKED",
    "CallRecord",
    "ChannelRecord",
    "ShareRecord",
    "StateRecord",
]

#: Collectives of a channel that may be under way at a time, a power of two; bytes of a slot, and where in it what lies.
SLOTS, SLOT_BYTES = 16, 192
ARRIVED, DONE, LEFT = range(0, SLOT_BYTES, 64)
#: Bytes of a record's head, and where in it the claims on a line of their own lie.
HEAD, CLAIMED = 128, 64

#: ``CallRecord.stage``: not under way; waits until all have left its slot; the others know my part; nobody need begin
#: with a piece of the work; all is done, before anybody asked.
IDLE, REUSE, ANNOUNCED, WORKED, EARLY = range(5)

_P, _N = ctypes.c_void_p, ctypes.c_int64


class ChannelRecord(ctypes.Structure):
    """``records`` and ``heaps`` are tables of addresses by member (heaps as this process maps them), ``pending`` one of
    `CallRecord` by slot, ``bases`` the pieces of work that a slot has seen. ``position`` is this process's among
    ``members``."""

    _fields_ = (
        ("slots", _P),
        ("records", _P),
        ("heaps", _P),
        ("pending", _P),
        ("bases", _P),
        ("members", _N),
        ("position", _N),
        ("sequence", _N),
        ("stride", _N),
        ("number", _N),
    )


class ShareRecord(ctypes.Structure):
    """The work of one group, in ``pieces`` of which the ``first`` has that number among all of the collective's.

    ``work`` is a `shardc.native.collectives.work.WorkCall`; ``sources`` and ``targets`` are ``count`` cells each,
    which become the
    pointers in ``operands`` and ``results``.
    """

    _fields_ = (
        ("work", _P),
        ("sources", _P),
        ("targets", _P),
        ("operands", _P),
        ("results", _P),
        ("count", _N),
        ("first", _N),
        ("pieces", _N),
    )


class CallRecord(ctypes.Structure):
    """A collective. Its ``entries`` are the operands, then the results, of this process's devices: ``cells`` say where
    they lie, ``own`` are their addresses in this run, ``sizes`` their bytes, ``staging`` memory in the heap for those
    outside, ``mail`` where in a record an operand goes.

    A direct collective has ``pieces`` of work, and its slot has seen ``base`` before; ``threads`` may take part, for
    about ``nanoseconds``.

    This process announced it at ``when``, the last one at ``latest``. ``transfers`` counts how often it was ``started``
    and completed, ``transfer_ns`` is how long that took, see
    `shardc.collectives.shared_memory.executor.SharedMemoryExecutor.transfers`.

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
        ("pieces", _N),
        ("base", _N),
        ("threads", _N),
        ("nanoseconds", _N),
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
    memory (nanoseconds), how many cores the node's processes share, the pool. ``step``, ``values`` and ``weighted`` are
    the stamp of its step. ``found_*`` are of the other one in a mismatch: member, and the words of its head.

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
        ("found_step", _N),
        ("found_values", _N),
        ("found_weighted", _N),
        ("step", _N),
        ("values", _N),
        ("weighted", _N),
        ("helps", _N),
        ("queue", _P),
        ("mask", _N),
        ("posted", _N),
        ("ended", _N),
        ("stop", _N),
        ("handed", _N),
    )
