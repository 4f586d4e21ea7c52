"""The native collective executor of ranks of one node. ::

    i32 shardc_shared(ptr state, i32 index, i32 phase, i64 deadline)

(`shardc.native.drive.drive_loop` says what is asked of it.) Every rank can address the heaps of the others
(`shardc.collectives.shared_memory.heap`), so a collective is: tell the others where my operands and results lie, wait
until all have, do pieces of the work into everybody's results while there are any, wait until all are done. Small
operands are copied into memory that everybody reads, and every rank does all of the work for itself: one wait instead
of two.

Where a program has started a collective and does something else meanwhile, the first half is done at the start, the
rest at the end, or by a thread of its own (``shardc_shared_helper``) in between.
"""

from __future__ import annotations

from shardc.collectives.shared_memory.native_steps import (
    MISMATCH,
    collect,
    goal_of,
    publish,
    slot_of,
    unstage,
    work_together,
)
from shardc.collectives.shared_memory.records import (
    ANNOUNCED,
    EARLY,
    IDLE,
    REUSE,
    SLOTS,
    WORKED,
    CallRecord,
    StateRecord,
)
from shardc.native.collectives.helper_queue import HELPER_WAIT, await_call, hand_over, is_stopped, next_call
from shardc.native.collectives.status import ARRIVING, COMPUTING, FINISHING, WORKING, Status, show_state
from shardc.native.drive.records import DONE_PHASE, START
from shardc.native.llvm.target import Target
from shardc.native.lowlevel.builtins import as_i32, exported
from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.module import compile_functions
from shardc.native.lowlevel.records import address_of
from shardc.native.lowlevel.system import EVERYBODY
from shardc.native.threads.meeting import Meeting, arrive, monotonic_now, wait_sharing

__all__ = [
    "HELPER", "MISMATCH", "NO_CALL", "SHARED", "UNFINISHED", "help_with_transfers", "perform_in_node", "shared_ir",
]  # fmt: skip

SHARED, HELPER = "shardc_shared", "shardc_shared_helper"

#: Answers besides 0, `_LATER` and `MISMATCH`: there is no such collective, or it was not started; it was started and
#: not finished.
NO_CALL, UNFINISHED = -2, -3
#: Call again.
_LATER = 1
#: A helper is never in the way of those who are missing.
_ANY_CORES = EVERYBODY


@exported(SHARED)
def perform_in_node(state: StateRecord, index: i32, phase: i32, deadline: i64) -> i32:
    """A collective, its start or its done."""
    if index < 0 or index >= state.count:
        return NO_CALL
    call = state.calls[index]
    if call is None:
        return NO_CALL
    state.status.phase = phase
    now = monotonic_now()
    end = now + deadline
    if phase == DONE_PHASE:
        if call.stage == EARLY:
            call.stage = IDLE
            return 0
        if call.stage < ANNOUNCED and call.handed == 0:
            return NO_CALL
    elif call.stage < ANNOUNCED and call.handed == 0:
        code = _begin(state, call, now, end)
        if code != 0:
            return code
    elif phase == START:
        return UNFINISHED
    if phase == START:
        call.started = 1
        _hand_over(state, call)
        state.status.state = COMPUTING
        return 0
    code = _await(state, call, now, end)
    if code == 0:
        state.status.state = COMPUTING
    return code


def _show_call(status: Status, call: CallRecord, program: i64, what: i64, since: i64) -> None:
    """Say in the control table where this thread is."""
    status.program = program
    status.channel = call.channel.number
    status.sequence = call.sequence
    status.index = call.index
    show_state(status, what, since)


def _begin(state: StateRecord, call: CallRecord, now: i64, end: i64) -> i32:
    """Announce a collective.

    Its slot may still be in use by one that was started `SLOTS` collectives ago: that one is finished first.
    """
    channel = call.channel
    if call.stage == IDLE:
        call.started = 0
        call.sequence = channel.sequence
        channel.sequence += 1
        slot = call.sequence & SLOTS - 1
        call.base = channel.bases[slot]
        channel.bases[slot] += call.pieces + call.checks
        call.stage = REUSE
    earlier = channel.pending[call.sequence & SLOTS - 1]
    if earlier is not None:
        code = _await(state, earlier, now, end)
        if code != 0:
            return code
        earlier.stage = EARLY
    if not _meet(state, state.status, call, slot_of(call).left, goal_of(call, 0), ARRIVING, now, end):
        return _LATER
    call.when = now
    publish(state, call)
    channel.pending[call.sequence & SLOTS - 1] = call
    call.stage = ANNOUNCED
    arrive(slot_of(call).arrived, goal_of(call, 1))
    return 0


def _meet(
    state: StateRecord, status: Status, call: CallRecord, meeting: Meeting, goal: i32, what: i64, since: i64, end: i64
) -> bool:
    """Wait at a meeting; the first time, say so."""
    if call.resumed == 0:
        _show_call(status, call, state.stamp.program, what, since)
    met = wait_sharing(meeting, goal, state.spin, end, as_i32(state.cores))
    call.resumed = 0 if met else 1
    return met


def _complete(status: Status, state: StateRecord, call: CallRecord, now: i64, end: i64) -> i32:
    """The rest of an announced collective."""
    slot = slot_of(call)
    if call.stage == ANNOUNCED:
        if not _meet(state, status, call, slot.arrived, goal_of(call, 1), ARRIVING, now, end):
            return _LATER
        _show_call(status, call, state.stamp.program, WORKING, now)
        code = collect(state, call)
        if code != 0:
            return code
        begin = monotonic_now() if call.started != 0 else 0
        code = work_together(state, call)
        if code != 0:
            return code
        if call.started != 0:
            _count_transfer(call, begin, monotonic_now())
        call.stage = WORKED
    if call.direct != 0 and call.channel.members > 1:
        goal = as_i32(call.base + call.pieces + call.checks)
        if not _meet(state, status, call, slot.done, goal, FINISHING, monotonic_now(), end):
            return _LATER
        unstage(state, call)
    arrive(slot.left, goal_of(call, 1))
    call.stage = IDLE
    status.completed += 1
    return 0


def _count_transfer(call: CallRecord, begin: i64, end: i64) -> None:
    """How long it took since the last one came, or, where the helper did it, since it was announced."""
    late = max(call.latest - call.when, 0)
    call.transfers += 1
    call.transfer_ns += end - begin + late if call.handed == 0 else end - call.when


def _await(state: StateRecord, call: CallRecord, now: i64, end: i64) -> i32:
    """The rest of an announced collective, also when the helper has it."""
    if call.handed == 0:
        code = _complete(state.status, state, call, now, end)
    else:
        _show_call(state.status, call, state.stamp.program, FINISHING, call.when)
        _show_helper(state)
        if not wait_sharing(call.done, as_i32(call.runs), state.spin, end, _ANY_CORES):
            return _LATER
        code = as_i32(call.answer)
        call.handed = 0
    if code == 0:
        call.channel.pending[call.sequence & SLOTS - 1] = None
    return code


def _show_helper(state: StateRecord) -> None:
    """Who waits for the helper waits for what the helper waits for."""
    mine = state.status
    helper = state.helper_status
    if helper.state in (ARRIVING, FINISHING):
        mine.program = helper.program
        mine.channel = helper.channel
        mine.sequence = helper.sequence
        mine.index = helper.index
        show_state(mine, helper.state, helper.since)


def _hand_over(state: StateRecord, call: CallRecord) -> None:
    """The helper shall complete it, where there is one and it is worth it."""
    if state.helps == 1 and call.direct != 0:
        call.handed = 1
        call.runs += 1
        hand_over(state.queue, address_of(call))


@exported(HELPER)
def help_with_transfers(state: StateRecord) -> address:
    """The thread that completes what is handed to it, in order, until it is told to stop."""
    status = state.helper_status
    taken = 0
    while True:
        came = await_call(state.queue, taken, state.spin, _ANY_CORES)
        if is_stopped(state.queue):
            break
        if not came:
            continue
        call = CallRecord.at(next_call(state.queue, taken))
        code = as_i32(_LATER)
        while code == _LATER:
            now = monotonic_now()
            code = _complete(status, state, call, now, now + HELPER_WAIT)
            if is_stopped(state.queue):
                break
        call.answer = code
        status.state = COMPUTING
        arrive(call.done, as_i32(call.runs))
        taken += 1
    arrive(state.ended, 1)
    return 0


def shared_ir(target: Target | None = None) -> str:
    """The IR text of `SHARED` and `HELPER`, and of the meetings; it needs `shardc.native.collectives.work`."""
    functions = (perform_in_node, help_with_transfers, monotonic_now, wait_sharing, arrive)
    return compile_functions(functions, target)
