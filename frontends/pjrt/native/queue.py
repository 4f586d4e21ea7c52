"""The queue of executions. All steps of a process run in the order in which they were asked for, one after another.

A worker, which is a thread of Python, stays in `serve` without Python's lock and comes back for what a step needs of
Python. Who asks for a small step whose arguments are there while nothing else waits or runs, runs it at once.
"""

from __future__ import annotations

from collections.abc import Callable

from shardc.frontends.pjrt.native.events import FOREVER
from shardc.frontends.pjrt.native.tasks import NEW, POISONED, TaskRecord, finish_task, go_on, make_turn, start_task
from shardc.native.drive.records import FINISHED
from shardc.native.lowlevel.builtins import as_i32, exported, static
from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.records import ACQUIRE, RELAXED, RELEASE, Atomic, Record, address_of
from shardc.native.lowlevel.system import sched_yield
from shardc.native.threads.meeting import Meeting, arrive, wait

__all__ = [
    "CONTINUE", "FAIL", "OVER", "QUEUE", "RELEASE_PROGRAM", "SERVE_NEXT", "STOPPED", "TURN", "add_task", "close_queue",
    "current_functions", "current_program", "end_step_here", "is_idle", "leave_queue", "lock_queue",
    "release_program", "return_to", "serve", "serve_inside", "set_calling", "take_turn", "unlock_queue",
]  # fmt: skip

#: What the worker tells `serve` about the task that it came back with: there was none, it goes on, it is over, it has
#: failed.
SERVE_NEXT, CONTINUE, OVER, FAIL = 0, 1, 2, 3
#: What `serve` comes back with besides states of tasks: there is no more to do, a program that nobody runs any more, or
#: a function of Python's that has its turn.
STOPPED, RELEASE_PROGRAM, TURN = 200, 201, 202

#: Nanoseconds that the worker watches for tasks before it sleeps.
_SPIN = 20_000


class QueueRecord(Record):
    """Under ``lock``: the tasks from ``first`` to ``last``, and whether somebody ``is_running`` a step. ``bell`` rings
    when the worker has something to do; ``current`` is the task that it asks Python about.

    While the worker ``calls_python`` for a step, ``run_inside`` takes the address of a task and says whether it was
    asked for by that Python, and has been run.
    """

    lock: Atomic[i32]
    is_running: i32
    first: address
    last: address
    current: address
    closed: i32
    forked: i32
    bell: Meeting
    calls_python: i32
    run_inside: Callable[[address], i64]


QUEUE = static(QueueRecord, "shardc_pjrt_queue")


def lock_queue() -> None:
    while QUEUE.lock.exchange(1, ACQUIRE) != 0:
        sched_yield()


def unlock_queue() -> None:
    QUEUE.lock.store(0, RELEASE)


def is_idle() -> bool:
    """Does nothing wait or run? Under the lock."""
    return QUEUE.first == 0 and QUEUE.is_running == 0


def add_task(at: address, in_front: bool) -> None:
    """A task for the worker; under the lock."""
    task = TaskRecord.at(at)
    if in_front:
        task.next = QUEUE.first
        QUEUE.first = at
        if QUEUE.last == 0:
            QUEUE.last = at
    else:
        task.next = 0
        if QUEUE.last == 0:
            QUEUE.first = at
        else:
            TaskRecord.at(QUEUE.last).next = at
        QUEUE.last = at
    _ring()


def _ring() -> None:
    arrive(QUEUE.bell, as_i32(QUEUE.bell.count.load(RELAXED) + 1))


def end_step_here() -> None:
    """The caller's own step is over: the worker may go on."""
    lock_queue()
    QUEUE.is_running = 0
    if QUEUE.first != 0:
        _ring()
    unlock_queue()


@exported("shardc_pjrt_current_program")
def current_program() -> address:
    """The program of the task that `serve` came back with."""
    return address_of(TaskRecord.at(QUEUE.current).program)


@exported("shardc_pjrt_take_turn")
def take_turn() -> i64:
    """Python gets a turn behind the tasks that wait; 0 where there is no memory."""
    at = make_turn(TURN)
    if at == 0:
        return 0
    lock_queue()
    add_task(at, False)
    unlock_queue()
    return 1


@exported("shardc_pjrt_current_functions")
def current_functions() -> address:
    """The functions that the current task calls; see `shardc.frontends.pjrt.native.contexts`."""
    return TaskRecord.at(QUEUE.current).functions


@exported("shardc_pjrt_set_calling")
def set_calling(begins: i32, run_inside: Callable[[address], i64]) -> None:
    """The worker begins to call functions of Python, or has ended."""
    QUEUE.run_inside = run_inside
    QUEUE.calls_python = begins


@exported("shardc_pjrt_serve_inside")
def serve_inside(at: address, answer: i32, error: address) -> i64:
    """The task ``at`` within the step that calls Python: as `serve`, with `FINISHED` when it is over."""
    task = TaskRecord.at(at)
    QUEUE.current = at
    if answer in (OVER, FAIL):
        finish_task(at, error)
        return FINISHED
    state = start_task(task) if answer == SERVE_NEXT else go_on(task)
    if state == POISONED:
        error_there = task.error
        task.error = 0
        finish_task(at, error_there)
        return FINISHED
    task.state = state
    if state == FINISHED:
        finish_task(at, error)
    return state


@exported("shardc_pjrt_return_to")
def return_to(at: address) -> address:
    """The current task is ``at``; gives the one before."""
    before = QUEUE.current
    QUEUE.current = at
    return before


@exported("shardc_pjrt_release_program")
def release_program(at: address) -> None:
    """Python forgets a program as soon as the tasks before are done; ``at`` is a task of it."""
    TaskRecord.at(at).state = RELEASE_PROGRAM
    lock_queue()
    add_task(at, False)
    unlock_queue()


@exported("shardc_pjrt_close_queue")
def close_queue() -> None:
    """The worker ends when all tasks are done."""
    lock_queue()
    QUEUE.closed = 1
    _ring()
    unlock_queue()


@exported("shardc_pjrt_leave_queue")
def leave_queue() -> None:
    """In a child process after fork: there is no worker, and nothing can be run."""
    QUEUE.forked = 1


def _next_task() -> address:
    """The first task, whose step is the worker's from now on; null when the queue is closed."""
    while True:
        seen = QUEUE.bell.count.load(ACQUIRE)
        lock_queue()
        found = QUEUE.first
        if found != 0 and QUEUE.is_running == 0:
            QUEUE.first = TaskRecord.at(found).next
            if QUEUE.first == 0:
                QUEUE.last = 0
            QUEUE.is_running = 1
            unlock_queue()
            return found
        ends = QUEUE.closed != 0 and found == 0
        unlock_queue()
        if ends:
            return found
        wait(QUEUE.bell, as_i32(seen + 1), _SPIN, FOREVER)


@exported("shardc_pjrt_serve")
def serve(answer: i32, error: address) -> i64:
    """Run tasks until one needs Python; ``answer`` says what is to be done with the one that did.

    Comes back with how the drive loop did, with `ASKS` before a step, `RELEASE_PROGRAM`, or `STOPPED`.
    """
    at = QUEUE.current
    if answer == CONTINUE:
        state = go_on(TaskRecord.at(at))
        if state != FINISHED:
            return state
    if answer != SERVE_NEXT:
        _finish(at, error)
    while True:
        at = _next_task()
        if at == 0:
            return STOPPED
        task = TaskRecord.at(at)
        if task.state == NEW:
            state = start_task(task)
            if state == POISONED:
                error_there = task.error
                task.error = 0
                _finish(at, error_there)
                continue
            task.state = state
        if task.state != FINISHED:
            QUEUE.current = at
            return task.state
        _finish(at, 0)


def _finish(at: address, error: address) -> None:
    QUEUE.current = 0
    end_step_here()
    finish_task(at, error)
