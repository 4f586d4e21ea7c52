"""Going through the steps of a collective; see `shardc.native.collectives.messages`."""

from __future__ import annotations

from shardc.native.collectives.message_node import (
    any_differs,
    bring_back,
    goal_of,
    import_entries,
    is_ours,
    publish,
    write_own_head,
)
from shardc.native.collectives.message_records import (
    Call,
    Entries,
    Flag,
    Head,
    Imports,
    IncomingRows,
    MessageOp,
    PostMessage,
    State,
    StepRecord,
    TableRecord,
)
from shardc.native.collectives.message_rows import (
    MISFIT,
    bytes_of_part,
    check_incoming,
    copy_incoming,
    place_of_part,
)
from shardc.native.collectives.message_tables import copy_piece, do_pieces, reduce_piece
from shardc.native.collectives.status import ARRIVING, COMPUTING, EXPECTING, FINISHING, WORKING, show_state
from shardc.native.collectives.work import WRONG_ROWS, place_of_cell
from shardc.native.drive.records import DONE_PHASE, START
from shardc.native.lowlevel.builtins import as_i32, fill_memory, inline, local
from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.system import Time, nanosleep, sched_yield
from shardc.native.threads.meeting import Meeting, arrive, monotonic_now, wait_sharing

__all__ = [
    "DIVERGED", "MPI_FAILED", "STARTED_TWICE", "WAITING", "meet", "run_steps", "show", "show_completed", "show_place",
]  # fmt: skip

#: Answers besides 0: call again; `State.code` is MPI's error; a header is another collective's; a start without done.
WAITING, MPI_FAILED, DIVERGED, STARTED_TWICE = 1, -1, -2, -3

#: Nanoseconds that moving a byte takes at most, in which there is no sleep between polls.
_PER_BYTE = 20
#: Of what was waited, a sleep between polls takes the so-manieth part, and at most so many nanoseconds.
_PART, _LONGEST = 50, 1_000_000
#: Bits of a tag for what tells messages of a call apart, and the exchanges that have tags of their own.
_KINDS, _EXCHANGES = 2, 4096
#: Of `wait_messages`, besides MPI's codes.
_LATE = -1


def run_steps(state: State, call: Call, phase: i32, entered: i64, deadline: i64) -> i32:
    """Do a call, or go on with it, for ``deadline`` nanoseconds from when it was ``entered``."""
    if phase == START and call.cursor != 0:
        return STARTED_TWICE
    if phase == DONE_PHASE and call.cursor == 0:
        show(state, COMPUTING, entered)  # it was over when it started
        return 0
    show_place(state, call, phase)
    while True:
        step = call.steps[call.cursor]
        if step.op == MessageOp.END:
            call.cursor = 0
            show_completed(state)
            show(state, COMPUTING, monotonic_now())
            return 0
        if step.op in (MessageOp.WAIT, MessageOp.AWAIT) and phase == START:
            show(state, COMPUTING, entered)
            return 0
        answer = as_i32(0)
        if step.op == MessageOp.BEGIN:
            _begin(state, call, phase)
        elif step.op == MessageOp.SEND:
            answer = _post(state, call, step, place_of_cell(step.cell), step.nbytes, state.isend)
        elif step.op == MessageOp.RECEIVE:
            answer = _post(state, call, step, place_of_cell(step.cell), step.nbytes, state.irecv)
        elif step.op == MessageOp.SEND_ROWS:
            answer = _post_rows(state, call, step, state.isend)
        elif step.op == MessageOp.RECEIVE_ROWS:
            answer = _post_rows(state, call, step, state.irecv)
        elif step.op == MessageOp.CHECK_ROWS:
            answer = 0 if check_incoming(IncomingRows.at(step.table)) else WRONG_ROWS
        elif step.op == MessageOp.WAIT:
            answer = _expect(state, call, step.nbytes, entered, deadline)
        elif step.op == MessageOp.CHECK:
            answer = 0 if is_ours(state, call, step.peer, Head.at(place_of_cell(step.cell))) else DIVERGED
        elif step.op == MessageOp.AWAIT:
            answer = _await(state, call, step.nbytes != 0, entered, deadline)
        else:
            _do_at_once(state, call, step)
        if answer != 0:
            return answer
        call.cursor += 1


def _begin(state: State, call: Call, phase: i32) -> None:
    """A new exchange of the channel."""
    call.channel.counter[0] += 1
    call.sequence = call.channel.counter[0]
    call.rounds += 1
    call.stamp = state.stamp
    show_place(state, call, phase)


def _do_at_once(state: State, call: Call, step: StepRecord) -> None:
    """Steps that neither wait nor fail."""
    if step.op == MessageOp.HEADER:
        write_own_head(call, Head.at(place_of_cell(step.cell)))
    elif step.op == MessageOp.REDUCE:
        do_pieces(state, TableRecord.at(step.table), reduce_piece)
    elif step.op == MessageOp.COPY:
        do_pieces(state, TableRecord.at(step.table), copy_piece)
    elif step.op == MessageOp.ZERO:
        fill_memory(place_of_cell(step.cell), 0, step.nbytes)
    elif step.op == MessageOp.ARRIVE:
        arrive(call.meetings[step.nbytes].meeting, goal_of(call))
    elif step.op == MessageOp.PUBLISH:
        publish(state, call, Entries.at(step.table))
    elif step.op == MessageOp.IMPORT:
        import_entries(Imports.at(step.table))
    elif step.op == MessageOp.COPY_ROWS:
        copy_incoming(IncomingRows.at(step.table))
    elif step.op == MessageOp.BRING_BACK:
        bring_back(Entries.at(step.table))


def _post(state: State, call: Call, step: StepRecord, place: address, nbytes: i64, function: PostMessage) -> i32:
    """Post a message."""
    tag = (call.sequence & _EXCHANGES - 1) << _KINDS | step.kind
    request = call.requests + call.posted * state.request_bytes
    call.peers[call.posted] = step.peer
    call.posted += 1
    communicator = call.channel.communicator
    code = function(place, as_i32(nbytes), state.byte, as_i32(step.peer), as_i32(tag), communicator, request)
    return _failed(state, code) if code != 0 else 0


def _post_rows(state: State, call: Call, step: StepRecord, function: PostMessage) -> i32:
    """Post a message of rows, if there are any."""
    nbytes = bytes_of_part(step)
    if nbytes == MISFIT:
        return WRONG_ROWS
    return _post(state, call, step, place_of_part(step), nbytes, function) if nbytes > 0 else 0


def _failed(state: State, code: i32) -> i32:
    """MPI says that something is wrong."""
    state.code = code
    return MPI_FAILED


def _expect(state: State, call: Call, nbytes: i64, entered: i64, deadline: i64) -> i32:
    """Wait for messages."""
    _show_once(state, call, EXPECTING)
    answer = _wait_messages(state, call, nbytes, entered, deadline)
    if answer == _LATE:
        return WAITING
    if answer != 0:
        return _failed(state, answer)
    _show_over(state, call)
    return 0


def _wait_messages(state: State, call: Call, nbytes: i64, entered: i64, deadline: i64) -> i32:
    """Poll until all posted messages are done (0), there is an error (its code), or the time is up (`_LATE`)."""
    flag = local(Flag)
    busy = state.spin + nbytes * _PER_BYTE
    while True:
        flag.value = 0
        code = state.testall(as_i32(call.posted), call.requests, flag, call.statuses)
        if code != 0:
            return code
        if flag.value != 0:
            call.posted = 0
            return 0
        now = monotonic_now()
        if now - entered > deadline:
            return _LATE
        _pause_polling(now - call.since, busy)


def _pause_polling(waited: i64, busy: i64) -> None:
    """Between two polls: let others run, or sleep, the longer the longer it has taken already."""
    if waited < busy:
        sched_yield()
    else:
        time = local(Time)
        time.seconds = 0
        time.nanoseconds = min(waited // _PART, _LONGEST)
        nanosleep(time, 0)


def _await(state: State, call: Call, is_last: bool, entered: i64, deadline: i64) -> i32:
    """Wait for the processes of the node. While some are missing, and when all have come to the beginning, their heads
    are compared."""
    _show_once(state, call, FINISHING if is_last else ARRIVING)
    met = meet(state, call.meetings[1 if is_last else 0].meeting, goal_of(call), entered + deadline)
    if not (met and is_last) and any_differs(state, call):
        return DIVERGED
    if not met:
        return WAITING
    _show_over(state, call)
    return 0


@inline
def meet(state: State, meeting: Meeting, goal: i32, end: i64) -> bool:
    """Wait at a meeting as the program waits."""
    return wait_sharing(meeting, goal, state.watch, end, as_i32(state.cores))


@inline
def show(state: State, what: i64, since: i64) -> None:
    """Say where this process is."""
    row = state.row
    if row is not None:
        show_state(row, what, since)


def _show_once(state: State, call: Call, what: i64) -> None:
    """A wait begins, or goes on."""
    if call.since == 0:
        call.since = monotonic_now()
        show(state, what, call.since)


def _show_over(state: State, call: Call) -> None:
    """A wait is over."""
    since = call.since
    call.since = 0
    show(state, WORKING, since)


def show_place(state: State, call: Call, phase: i32) -> None:
    """Say which collective it is."""
    row = state.row
    if row is not None:
        row.program = state.program
        row.channel = call.channel.number
        row.sequence = call.sequence
        row.index = call.index
        row.phase = phase


def show_completed(state: State) -> None:
    """One more is done."""
    row = state.row
    if row is not None:
        row.completed += 1
