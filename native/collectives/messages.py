"""Going through a list of small steps: messages by MPI, copies, reductions; without Python.

::

    i32 shardc_messages(ptr state, i32 index, i32 phase, i64 deadline)

does call ``index`` of a `State`: a table of `Step` records, one after the other. MPI's functions are called by address;
handles (communicator, type) are numbers of up to eight bytes that lie in memory, so the object fits every MPI library.
A `WAIT` whose messages are not done polls, and sleeps between polls when that takes long; after ``deadline``
nanoseconds the answer is `WAITING`, and the next call goes on there. With ``phase`` 1 (start) the answer is 0 as soon
as there is something to wait for, and phase 2 (done) does the rest; or a thread does it in between, which runs ::

    void shardc_messages_helper(ptr state)

Every record below consists of words of eight bytes.
"""

from __future__ import annotations

import ctypes
from dataclasses import asdict, dataclass
from functools import cache, lru_cache

from shardc.native.collectives.messages_ir import MESSAGES
from shardc.native.llvm.jit import Loaded, compile_ir, load_object
from shardc.native.llvm.target import Target, host_target

__all__ = [
    "DIVERGED",
    "HEADS",
    "HELPER_SYMBOL",
    "MEETING_BYTES",
    "MESSAGES_SYMBOL",
    "MPI_FAILED",
    "STARTED_TWICE",
    "WAITING",
    "Call",
    "Cell",
    "Channel",
    "Entry",
    "Import",
    "Op",
    "Shown",
    "State",
    "Step",
    "Table",
    "load_messages",
    "messages_ir",
    "messages_object",
]

MESSAGES_SYMBOL, HELPER_SYMBOL = "shardc_messages", "shardc_messages_helper"

#: Answers besides 0: call again; `State.code` is MPI's error; a header is another collective's; a start without done.
WAITING, MPI_FAILED, DIVERGED, STARTED_TWICE = 1, -1, -2, -3

#: Bytes of the two meetings of a collective: a line of its own, and the next one, for each.
MEETING_BYTES = 256
#: The newest headers that a process shows on a channel, a power of two.
HEADS = 64

#: Reductions and copies that touch more bytes than this use the thread pool, in pieces of so many bytes.
_PARALLEL_BYTES, _PIECE_BYTES = 1 << 19, 1 << 16


class Op:
    """`Step.op`. Of `ARRIVE` and `AWAIT` ``nbytes`` is the meeting: 0 at the beginning, 1 at the end."""

    END, BEGIN, HEADER, SEND, RECEIVE, WAIT, CHECK, REDUCE, COPY, ZERO, ARRIVE, AWAIT = range(12)
    PUBLISH, IMPORT, BRING_BACK = range(12, 15)


def _words(*names: str) -> tuple[tuple[str, type], ...]:
    return tuple((name, ctypes.c_int64) for name in names)


#: The last words of a header.
_STAMP = ("stamp_program", "step", "values", "weighted")


class Cell(ctypes.Structure):
    """A place: what the pointer at ``base`` points to, and ``offset`` bytes further."""

    _fields_ = _words("base", "offset")


class Step(ctypes.Structure):
    """``peer`` is a rank of the call's communicator; ``kind`` tells messages of a call apart; (``base``, ``offset``)
    is a `Cell`; ``table`` the address of a `Table`."""

    _fields_ = _words("op", "peer", "kind", "base", "offset", "nbytes", "table", "spare")


class Table(ctypes.Structure):
    """``cells`` are the ``sources`` and then the ``targets``, ``pointers`` as many words to work in; ``elements`` of
    ``item`` bytes each. ``function`` is a reduction (`shardc.native.collectives.reducing`) or
    `shardc.native.collectives.work`'s copy.
    """

    _fields_ = _words("function", "sources", "targets", "elements", "item", "cells", "pointers", "spare")


class Entry(ctypes.Structure):
    """An operand (``operand``: 1) or result of this process that others of its node use: its `Cell`, a stand-in of
    ``nbytes`` in the heap (``staging``) for when it lies elsewhere, and the word where the others read its offset."""

    _fields_ = _words("base", "offset", "nbytes", "staging", "published", "effective", "real", "operand")


class Import(ctypes.Structure):
    """``out`` becomes the address of an entry: ``heap``, as mapped here, and what its word says."""

    _fields_ = _words("word", "heap", "out")


class Channel(ctypes.Structure):
    """A communicator, and the address of the number of exchanges that have begun on it, of all programs: whichever they
    run, the n-th exchanges of two processes meet.

    ``members`` processes of this node meet; ``heads`` are addresses by position, of headers of 64 bytes for the last
    `HEADS` exchanges. ``number`` is for the control table."""

    _fields_ = _words("communicator", "counter", "heads", "members", "position", "number")


class Call(ctypes.Structure):
    """A collective: its ``steps``, which is next (``cursor``), how many requests are ``posted``, the number of its
    exchange, since when it waits (ns of the monotonic clock, 0: it does not); the ``meetings`` of this node's processes
    at its beginning and its end (`shardc.native.threads.meeting`), and in which of their ``rounds`` it is. Where a
    thread
    helps (``helped``), ``over`` is a meeting that counts how often it has done what was ``given``, with ``result``.
    The rest is the `State`'s stamp when it began."""

    _fields_ = _words(
        *("steps", "cursor", "posted", "sequence", "requests", "statuses", "channel", "index", "signature"),
        *("since", "meetings", "rounds", "helped", "over", "result", "given", *_STAMP),
    )


class State(ctypes.Structure):
    """What native code knows of a program.

    Functions of MPI and of the pool, sizes and values of MPI's handles, `Call` addresses by index; what went wrong:
    MPI's ``code``, or the header (``seen``) of ``peer`` (a rank, or -1 - a place among those who meet in the node); the
    heap; where this process says what it does: a row of the control table from its state on; and for how many
    nanoseconds it watches (``watch``) a meeting before it sleeps, if the missing are fewer than the ``cores``.

    ``helper`` is the state of the thread that helps: calls are handed to it in ``queue``, of ``mask`` + 1 entries, and
    counted in the meeting ``word``; it ends when told to ``stop``.

    What headers say besides the exchange: the program, the number of the step, and its plain arguments' sums
    (`shardc.collectives.call.stamp`); that of ``peer`` is ``seen``, too.
    """

    _fields_ = (
        *_words("isend", "irecv", "testall", "parallel", "byte", "request_bytes", "spin", "calls"),
        *_words("code", "peer", "seen_sequence", "seen_index", "seen_signature"),
        *_words("heap", "heap_bytes", "row", "program", "watch", "cores"),
        *_words("helper", "queue", "mask", "word", "handed", "spare", "stop"),
        *_words(*(f"own_{name}" for name in _STAMP), *(f"seen_{name}" for name in _STAMP)),
    )


@cache
def load_messages(messages: bytes, meeting: bytes) -> Loaded:
    """The two functions of the objects (`messages_object`, `meeting_object`) in this process; one for equal code."""
    return load_object([messages, meeting], [MESSAGES_SYMBOL, HELPER_SYMBOL])


@dataclass(frozen=True, slots=True)
class Shown:
    """How a row of the control table says what a process does: values of its state, and offsets of its other fields in
    bytes from there. ``expecting``: waits for messages; ``since`` is a time, the others are numbers."""

    arriving: int
    expecting: int
    working: int
    finishing: int
    computing: int
    program: int
    channel: int
    sequence: int
    index: int
    phase: int
    completed: int
    since: int


@lru_cache(maxsize=8)
def messages_object(shown: Shown, target: Target | None = None) -> bytes:
    """The object file for ``target`` (default: this machine)."""
    return compile_ir(messages_ir(shown, target), target)


def messages_ir(shown: Shown, target: Target | None = None) -> str:
    """The IR text for ``target``."""
    triple = (target or host_target()).triple
    values = {"PARALLEL": _PARALLEL_BYTES, "PIECE": _PIECE_BYTES, "MASK": HEADS - 1}
    values |= {name.upper(): value for name, value in asdict(shown).items()}
    text = f'target triple = "{triple}"\n{MESSAGES}'
    for name, value in values.items():
        text = text.replace(f"${name}$", str(value))
    return text
