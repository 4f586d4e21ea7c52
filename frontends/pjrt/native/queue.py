"""The queue of executions. All steps of a process run in the order in which they were asked for, one after another.

A worker, which is a thread of Python, stays in `serve` without Python's lock; what a step needs of Python is asked by
``QueueRecord.attend``. Who asks for a small step whose arguments are there while nothing else waits or runs, runs it at
once.

While a step *stands still* because a function of Python is called, which may itself run programs or wait for arrays,
another worker goes on with the steps that neither wait for that one nor write over what it reads. Those of its own
program wait for it, unless the function asked for them, or may have done so by a thread: then they run on a copy.
"""

from __future__ import annotations

from collections.abc import Callable

from shardc.frontends.pjrt.native.errors import FAILED_PRECONDITION, fail
from shardc.frontends.pjrt.native.programs import ProgramRecord
from shardc.frontends.pjrt.native.tasks import (
    NEW,
    POISONED,
    TaskRecord,
    enqueue,
    finish_task,
    go_on,
    is_ready,
    make_turn,
    start_task,
)
from shardc.native.drive.records import FINISHED
from shardc.native.lowlevel.builtins import as_i32, exported, local, static, static_text
from shardc.native.lowlevel.kinds import Pointer, address, i32, i64
from shardc.native.lowlevel.records import ACQUIRE, RELAXED, RELEASE, Atomic, Record, address_of
from shardc.native.lowlevel.system import now, pthread_self, sched_yield
from shardc.native.threads.meeting import Meeting, arrive, wait

__all__ = [
    "CONTINUE", "COPY", "FAIL", "OVER", "QUEUE", "RELEASE_PROGRAM", "Question", "add_task", "end_step_here",
    "is_idle", "is_in_function", "is_queue_idle", "leave_queue", "lock_queue", "open_queue", "release_program",
    "run_task", "serve", "stand_still", "step_again", "unlock_queue",
]  # fmt: skip

#: What Python answers about a step: it goes on, it is over, it has failed.
CONTINUE, OVER, FAIL = 1, 2, 3
#: What Python is asked besides states of tasks: to forget a program, and to load a copy of it.
RELEASE_PROGRAM, COPY = 200, 201

#: Nanoseconds that a worker watches for tasks before it sleeps; that it sleeps while a step stands still, where what
#: it waits for does not ring; and at the most.
_SPIN, _LOOK, _FOREVER = 20_000, 1_000_000, (1 << 63) - 1
#: That a step waits for one of its own program that stands still.
_LONGEST_WAIT = 200_000_000
#: Steps that may stand still before one of the same program is refused.
_DEEPEST = 64
_TOO_DEEP = static_text(
    "shardc_pjrt_too_deep",
    "a Python callback calls its own executable again, 64 deep\n  fix: end the recursion at a smaller depth",
)


class Question(Record):
    """What Python is asked: about a program in a state, whose step calls ``functions`` (the address of a
    `HostFunctionsRecord`, or 0). Python answers with an error where one is to be had, which the asker then has."""

    program: Pointer[ProgramRecord]
    state: i64
    functions: address
    error: address


class QueueRecord(Record):
    """Under ``lock``: the tasks from ``first`` to ``last``, whether somebody ``is_running`` a step, how many are
    ``standing`` still, of the programs from ``stood`` on, and how many ``workers`` there are. ``bell`` rings when a
    worker may have something to do.

    ``attend`` asks Python.
    """

    lock: Atomic[i32]
    is_running: i64
    standing: i64
    stood: address
    workers: i64
    first: address
    last: address
    forked: i64
    bell: Meeting
    attend: Callable[[Question], i64]


QUEUE = static(QueueRecord, "shardc_pjrt_queue")


def lock_queue() -> None:
    while QUEUE.lock.exchange(1, ACQUIRE) != 0:
        sched_yield()


def unlock_queue() -> None:
    QUEUE.lock.store(0, RELEASE)


def is_idle() -> bool:
    """Whether nothing waits or runs. Under the lock."""
    return QUEUE.first == 0 and QUEUE.is_running == 0


def add_task(at: address) -> None:
    """A task for the worker; under the lock."""
    task = TaskRecord.at(at)
    enqueue(task)
    if QUEUE.last == 0:
        QUEUE.first = at
    else:
        TaskRecord.at(QUEUE.last).next = at
    QUEUE.last = at
    _ring()


def _ring() -> None:
    arrive(QUEUE.bell, as_i32(QUEUE.bell.count.load(RELAXED) + 1))


def end_step_here() -> None:
    """The caller runs no step any more: a worker may go on."""
    lock_queue()
    QUEUE.is_running = 0
    if QUEUE.first != 0 or QUEUE.standing != 0:
        _ring()
    unlock_queue()


@exported("shardc_pjrt_open_queue")
def open_queue(attend: Callable[[Question], i64]) -> None:
    """Before the first worker."""
    QUEUE.attend = attend


@exported("shardc_pjrt_is_idle")
def is_queue_idle() -> bool:
    """Whether all steps are over."""
    lock_queue()
    idle = is_idle() and QUEUE.standing == 0
    unlock_queue()
    return idle


@exported("shardc_pjrt_leave_queue")
def leave_queue() -> None:
    """In a child process after fork: there is no worker, and nothing can be run."""
    QUEUE.forked = 1


@exported("shardc_pjrt_release_program")
def release_program(program: ProgramRecord) -> bool:
    """Have Python forget a program as soon as the tasks before are done; false where there is no memory for that."""
    at = make_turn(RELEASE_PROGRAM)
    if at != 0:
        TaskRecord.at(at).program = program
        lock_queue()
        add_task(at)
        unlock_queue()
    return at != 0


@exported("shardc_pjrt_stand_still")
def stand_still(program: ProgramRecord) -> bool:
    """The caller, who runs a step of ``program``, calls a Python function. Returns whether another worker must
    begin."""
    program.caller = pthread_self()
    lock_queue()
    QUEUE.is_running = 0
    QUEUE.standing += 1
    program.stands_before = QUEUE.stood
    QUEUE.stood = address_of(program)
    missing = QUEUE.standing >= QUEUE.workers
    _ring()
    unlock_queue()
    return missing


@exported("shardc_pjrt_step_again")
def step_again(program: ProgramRecord) -> None:
    """The function has returned: wait until no other step runs."""
    while True:
        seen = QUEUE.bell.count.load(ACQUIRE)
        lock_queue()
        free = QUEUE.is_running == 0
        if free:
            QUEUE.is_running = 1
            QUEUE.standing -= 1
            _forget_standing(program)
        unlock_queue()
        if free:
            program.caller = 0
            return
        wait(QUEUE.bell, as_i32(seen + 1), 0, _FOREVER)


def _forget_standing(program: ProgramRecord) -> None:
    at = QUEUE.stood
    if at == address_of(program):
        QUEUE.stood = program.stands_before
    else:
        while ProgramRecord.at(at).stands_before != address_of(program):
            at = ProgramRecord.at(at).stands_before
        ProgramRecord.at(at).stands_before = program.stands_before


def is_in_function() -> bool:
    """Whether the caller is a function of Python that a step calls. Under the lock."""
    at = QUEUE.stood
    while at != 0:
        if ProgramRecord.at(at).caller == pthread_self():
            return True
        at = ProgramRecord.at(at).stands_before
    return False


def run_task(at: address) -> address:
    """Run a step to its end; answers the error that it ends with, or null."""
    task = TaskRecord.at(at)
    program = task.program
    question = local(Question)
    question.program = program
    question.functions = task.functions
    question.error = 0
    if task.state != NEW:
        question.state = task.state
        QUEUE.attend(question)
        return question.error
    program.is_running = 1
    state = start_task(task)
    while state != FINISHED:
        if state == POISONED:
            question.error = task.error
            task.error = 0
            break
        question.state = state
        if QUEUE.attend(question) != CONTINUE:
            break
        state = go_on(task)
    program.is_running = 0
    return question.error


@exported("shardc_pjrt_serve")
def serve() -> None:
    """Be a worker, until there are more of them than of use."""
    lock_queue()
    QUEUE.workers += 1
    unlock_queue()
    at = _next_task()
    while at != 0:
        error = _choose_copy(TaskRecord.at(at))
        if error == 0:
            error = run_task(at)
        end_step_here()
        finish_task(at, error)
        at = _next_task()


def _choose_copy(task: TaskRecord) -> address:
    """A task whose program stands still is one of a copy that does not; or the error where there can be none."""
    program = task.program
    if task.state == NEW and program.is_running != 0 and QUEUE.standing >= _DEEPEST:
        return fail(FAILED_PRECONDITION, _TOO_DEEP)
    while task.state == NEW and program.is_running != 0:
        if program.copy == 0:
            question = local(Question)
            question.program = program
            question.state = COPY
            question.functions = 0
            question.error = 0
            if QUEUE.attend(question) != CONTINUE:
                return question.error
        program = ProgramRecord.at(program.copy)
    task.program = program
    return 0


def _next_task() -> address:
    """The next task, whose step is the caller's from now on; null where the caller is to end."""
    null: address = 0
    while True:
        seen = QUEUE.bell.count.load(ACQUIRE)
        lock_queue()
        found = _take_task() if QUEUE.is_running == 0 else null
        if found != 0:
            QUEUE.is_running = 1
            unlock_queue()
            return found
        # One more than those that stand still goes on; another one is kept for the next time.
        ends = QUEUE.workers > QUEUE.standing + 2
        if ends:
            QUEUE.workers -= 1
        end = _FOREVER if QUEUE.standing == 0 else now() + _LOOK
        unlock_queue()
        if ends:
            return null
        wait(QUEUE.bell, as_i32(seen + 1), _SPIN, end)


def _take_task() -> address:
    """The first task in the queue that can run, out of the queue; under the lock."""
    before: address = 0
    at = QUEUE.first
    while at != 0 and QUEUE.standing != 0 and not _may_overtake(TaskRecord.at(at)):
        before = at
        at = TaskRecord.at(at).next
    if at != 0:
        following = TaskRecord.at(at).next
        if before == 0:
            QUEUE.first = following
        else:
            TaskRecord.at(before).next = following
        if QUEUE.last == at:
            QUEUE.last = before
    return at


def _may_overtake(task: TaskRecord) -> bool:
    """Whether a task may run before those that stand still, or wait."""
    program = task.program
    if task.follows != 0 or program.asks != 0 or not is_ready(task):
        return False
    return program.is_running == 0 or now() - task.since > _LONGEST_WAIT
