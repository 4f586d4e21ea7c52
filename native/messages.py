"""Going through a list of small steps: messages by MPI, copies, reductions; without Python.

::

    i32 shardc_messages(ptr state, i32 index, i32 phase, i64 deadline)

does call ``index`` of a `State`: a table of `Step` records, one after the other. MPI's functions are called by address;
handles (communicator, type) are numbers of up to eight bytes that lie in memory, so the object fits every MPI library.
A `WAIT` whose messages are not done polls, and sleeps between polls when that takes long; after ``deadline``
nanoseconds the answer is `WAITING`, and the next call goes on there. With ``phase`` 1 (start) the answer is 0 as soon
as there is something to wait for, and phase 2 (done) does the rest.

Every record below consists of words of eight bytes.
"""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache

from shardc.native.jit import Loaded, compile_ir, load_object
from shardc.native.messages_ir import MESSAGES
from shardc.native.target import Target, host_target

__all__ = [
    "DIVERGED",
    "MESSAGES_SYMBOL",
    "MPI_FAILED",
    "STARTED_TWICE",
    "WAITING",
    "Call",
    "Cell",
    "Channel",
    "Op",
    "State",
    "Step",
    "Table",
    "load_messages",
    "messages_ir",
    "messages_object",
]

MESSAGES_SYMBOL = "shardc_messages"

#: Answers besides 0: call again; `State.code` is MPI's error; a header is another collective's; a start without done.
WAITING, MPI_FAILED, DIVERGED, STARTED_TWICE = 1, -1, -2, -3

#: Reductions and copies that touch more bytes than this use the thread pool, in pieces of so many bytes.
_PARALLEL_BYTES, _PIECE_BYTES = 1 << 19, 1 << 16


class Op:
    """`Step.op`. For the last two ``base`` is a meeting (`shardc.native.meeting`) of ``nbytes`` processes."""

    END, BEGIN, HEADER, SEND, RECEIVE, WAIT, CHECK, REDUCE, COPY, ZERO, ARRIVE, AWAIT = range(12)


def _words(*names: str) -> tuple[tuple[str, type], ...]:
    return tuple((name, ctypes.c_int64) for name in names)


class Cell(ctypes.Structure):
    """A place: what the pointer at ``base`` points to, and ``offset`` bytes further."""

    _fields_ = _words("base", "offset")


class Step(ctypes.Structure):
    """``peer`` is a rank of the call's communicator; ``kind`` tells messages of a call apart; (``base``, ``offset``)
    is a `Cell`; ``table`` the address of a `Table`."""

    _fields_ = _words("op", "peer", "kind", "base", "offset", "nbytes", "table", "spare")


class Table(ctypes.Structure):
    """``cells`` are the ``sources`` and then the ``targets``, ``pointers`` as many words to work in; ``elements`` of
    ``item`` bytes each. ``function`` is a reduction (`shardc.native.reducing`) or `shardc.native.work`'s copy."""

    _fields_ = _words("function", "sources", "targets", "elements", "item", "cells", "pointers", "spare")


class Channel(ctypes.Structure):
    """A communicator and how many exchanges have begun on it."""

    _fields_ = _words("communicator", "sequence")


class Call(ctypes.Structure):
    """A collective: its ``steps``, which is next (``cursor``), how many requests are ``posted``, the number of its
    exchange, since when it waits, and which count ends its next meeting."""

    _fields_ = _words(
        *("steps", "cursor", "posted", "sequence", "requests", "statuses", "channel", "index", "signature"),
        *("since", "goal", "spare", "reserve"),
    )


class State(ctypes.Structure):
    """Functions of MPI and of the pool, sizes and values of its handles, `Call` addresses by index; and what went
    wrong: MPI's ``code``, or the header (``seen``) of ``peer``."""

    _fields_ = (
        *_words("isend", "irecv", "testall", "parallel", "byte", "request_bytes", "spin", "calls"),
        *_words("code", "peer", "seen_sequence", "seen_index", "seen_signature"),
    )


@cache
def load_messages(messages: bytes, meeting: bytes) -> Loaded:
    """`MESSAGES_SYMBOL` of the objects (`messages_object`, `meeting_object`) in this process; one for equal code."""
    return load_object([messages, meeting], [MESSAGES_SYMBOL])


@lru_cache(maxsize=8)
def messages_object(target: Target | None = None) -> bytes:
    """The object file for ``target`` (default: this machine)."""
    return compile_ir(messages_ir(target), target)


def messages_ir(target: Target | None = None) -> str:
    """The IR text for ``target``."""
    triple = (target or host_target()).triple
    values = {"PARALLEL": _PARALLEL_BYTES, "PIECE": _PIECE_BYTES}
    text = f'target triple = "{triple}"\n{MESSAGES}'
    for name, value in values.items():
        text = text.replace(f"${name}$", str(value))
    return text
