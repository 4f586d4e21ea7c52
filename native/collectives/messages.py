"""Going through a list of small steps: messages by MPI, copies, reductions; without Python.

::

    i32 shardc_messages(ptr state, i32 index, i32 phase, i64 deadline)

does call ``index`` of a `State`: its `StepRecord` steps, one after the other. MPI's functions are called by address;
handles (communicator, type) are numbers of up to eight bytes that lie in memory, so the object fits every MPI library.
A `WAIT` whose messages are not done polls, and sleeps between polls when that takes long; after ``deadline``
nanoseconds the answer is `WAITING`, and the next call goes on there. With ``phase`` 1 (start) the answer is 0 as soon
as there is something to wait for, and phase 2 (done) does the rest; or a thread does it in between, which runs ::

    void shardc_messages_helper(ptr state)
"""

from __future__ import annotations

from functools import cache, lru_cache

from shardc.native.collectives.helper_queue import HELPER_WAIT, await_call, hand_over, is_stopped, next_call
from shardc.native.collectives.message_records import (
    HEADS,
    MEETING_BYTES,
    Call,
    Channel,
    Entries,
    Entry,
    Import,
    Imports,
    IncomingRows,
    MessageOp,
    PartRecord,
    Stamp,
    State,
    StepRecord,
    TableRecord,
)
from shardc.native.collectives.message_steps import (
    DIVERGED,
    MPI_FAILED,
    STARTED_TWICE,
    WAITING,
    meet,
    run_steps,
    show,
    show_completed,
    show_place,
)
from shardc.native.collectives.status import COMPUTING, EXPECTING
from shardc.native.collectives.work import Cell
from shardc.native.drive.records import DONE_PHASE, START
from shardc.native.llvm.jit import Loaded, compile_ir, load_object
from shardc.native.llvm.target import Target
from shardc.native.lowlevel.builtins import as_i32, exported
from shardc.native.lowlevel.kinds import i32, i64
from shardc.native.lowlevel.module import compile_functions
from shardc.native.lowlevel.records import address_of
from shardc.native.threads.meeting import arrive, monotonic_now, wait_sharing

__all__ = [
    "DIVERGED", "HEADS", "HELPER_SYMBOL", "MEETING_BYTES", "MESSAGES_SYMBOL", "MPI_FAILED", "STARTED_TWICE", "WAITING",
    "Call", "Cell", "Channel", "Entries", "Entry", "Import", "Imports", "IncomingRows", "MessageOp", "PartRecord",
    "Stamp", "State", "StepRecord", "TableRecord", "help_with_messages", "load_messages", "messages_ir",
    "messages_object", "perform_by_messages",
]  # fmt: skip

MESSAGES_SYMBOL, HELPER_SYMBOL = "shardc_messages", "shardc_messages_helper"


@exported(MESSAGES_SYMBOL)
def perform_by_messages(state: State, index: i32, phase: i32, deadline: i64) -> i32:
    """Go through a call. Of one that a thread helps with, the caller does what needs no waiting, at the start, and then
    passes it on."""
    entered = monotonic_now()
    call = state.calls[index]
    if call.helped == 0 or phase not in (START, DONE_PHASE):
        return run_steps(state, call, phase, entered, deadline)
    if phase == START:
        answer = run_steps(state, call, START, entered, deadline)
        if answer == 0 and call.cursor != 0:
            call.given += 1
            hand_over(state.queue, address_of(call))
        return answer
    show_place(state, call, DONE_PHASE)
    show(state, EXPECTING, entered)
    if not meet(state, call.over, as_i32(call.given), entered + deadline):
        return WAITING
    show_completed(state)
    show(state, COMPUTING, monotonic_now())
    return as_i32(call.result)


@exported(HELPER_SYMBOL)
def help_with_messages(state: State) -> None:
    """The thread: one call after the other, until it is told to stop."""
    own = state.helper
    taken = 0
    while True:
        if not await_call(state.queue, taken, state.watch, as_i32(state.cores)):
            if is_stopped(state.queue):
                return
            continue
        call = Call.at(next_call(state.queue, taken))
        answer = run_steps(own, call, DONE_PHASE, monotonic_now(), HELPER_WAIT)
        while answer == WAITING:
            if is_stopped(state.queue):
                return
            answer = run_steps(own, call, DONE_PHASE, monotonic_now(), HELPER_WAIT)
        call.result = answer
        arrive(call.over, as_i32(call.given))
        taken += 1


@cache
def load_messages(messages: bytes) -> Loaded:
    """The two functions of the object (`messages_object`) in this process; one for equal code."""
    return load_object(messages, [MESSAGES_SYMBOL, HELPER_SYMBOL])


@lru_cache(maxsize=8)
def messages_object(target: Target | None = None) -> bytes:
    """The object file for ``target`` (default: this machine)."""
    return compile_ir(messages_ir(target), target)


def messages_ir(target: Target | None = None) -> str:
    """The IR text for ``target``."""
    functions = (perform_by_messages, help_with_messages, monotonic_now, wait_sharing, arrive)
    return compile_functions(functions, target)
