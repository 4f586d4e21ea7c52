"""Executions: what a step reads and writes while it waits and runs, and the tables that it is run on."""

from __future__ import annotations

import ctypes
from typing import Annotated

from shardc.frontends.pjrt.native.blocks import (
    count_blocks,
    is_read,
    is_reusable,
    keep_block,
    make_uncounted_block,
    release_references,
)
from shardc.frontends.pjrt.native.errors import out_of_memory, release_error
from shardc.frontends.pjrt.native.events import (
    await_event,
    complete_event,
    error_of_event,
    is_done,
    keep_event,
    release_event,
)
from shardc.frontends.pjrt.native.memory_pool import allocate, class_of, give_back
from shardc.frontends.pjrt.native.programs import ProgramRecord
from shardc.frontends.pjrt.native.records import READER, BlockRecord, DeviceRecord, EventRecord
from shardc.launcher.driver.native_step import DriverRecord, NativeResult, run_step
from shardc.native.drive.records import FINISHED, PAUSED
from shardc.native.lowlevel.builtins import as_i64, fill_memory
from shardc.native.lowlevel.kinds import Count, Pointer, address, i64
from shardc.native.lowlevel.records import ACQ_REL, Record, Span, address_of
from shardc.native.lowlevel.system import now

__all__ = [
    "ASKS", "NEW", "POISONED", "Addresses", "TaskRecord", "await_event_of", "drop_task", "enqueue", "finish_task",
    "give_result", "go_on", "is_ready", "make_blocks", "make_task", "make_turn", "start_task",
]  # fmt: skip

#: `TaskRecord.state` besides what the drive loop returns: not begun, Python is asked before it begins, and an argument
#: has failed.
NEW, ASKS, POISONED = -1, 100, 101


class Addresses(Record):
    """Handles or blocks, one after another."""

    items: Annotated[Span[address], Count(1)]


class TaskRecord(Record):
    """A step of ``program`` that waits or runs. It has a reference to each block that it reads or writes: ``arguments``
    are by device and argument, ``results`` by number; in the queue it has these as a reader, ``reference`` says so.
    Who runs it at once fills the table of arguments, and it has those only that were donated.
    ``events`` complete before it can run; ``ready`` (or null) completes at its end. It ``follows`` the steps before it
    where it writes over what they may read. It waits ``since`` a time of `now`; 0: a function that a step calls has
    asked for it.

    ``error`` is that of an argument, with a reference; ``state`` how the drive loop came back last; ``functions`` the
    address of the `HostFunctionsRecord` that the step calls, or 0.
    """

    next: address
    program: Pointer[ProgramRecord]
    size_class: i64
    state: i64
    reference: i64
    follows: i64
    since: i64
    ready: address
    error: address
    functions: address
    num_arguments: i64
    arguments: Span[address]
    num_results: i64
    results: Span[address]
    num_events: i64
    events: Span[address]


_HEADER = ctypes.sizeof(TaskRecord)
#: Added to the address of a result whose reference the task gave away.
_GIVEN = 1
#: Nanoseconds by which the shortest step may be longer than before.
_STIR = 4096


def make_task(program: ProgramRecord) -> address:
    """A task without arguments and results; null where there is no memory."""
    step = program.step
    arguments = step.devices * step.arguments
    events = step.devices * program.num_arguments  # tokens have one, too
    nbytes = _HEADER + 8 * (arguments + step.blocks + events)
    at = allocate(class_of(nbytes))
    if at == 0:
        return at
    fill_memory(at, 0, _HEADER + 8 * (arguments + step.blocks))
    task = TaskRecord.at(at)
    task.program = program
    task.size_class = class_of(nbytes)
    task.state = NEW
    task.reference = 1
    task.num_arguments = arguments
    task.num_results = step.blocks
    task.arguments = Addresses.at(at + _HEADER).items
    task.results = task.arguments.behind(arguments)
    task.events = task.results.behind(step.blocks)
    return at


def make_turn(state: i64) -> address:
    """A task that Python does when its turn has come; null where there is no memory."""
    at = allocate(class_of(_HEADER))
    if at == 0:
        return at
    fill_memory(at, 0, _HEADER)
    task = TaskRecord.at(at)
    task.size_class = class_of(_HEADER)
    task.state = state
    task.follows = 1
    return at


def drop_task(at: address) -> None:
    """Give up all that a task has references to, and the task."""
    task = TaskRecord.at(at)
    for k in range(task.num_arguments):
        if task.arguments[k] != 0:
            release_references(BlockRecord.at(task.arguments[k]), task.reference)
    for k in range(task.num_results):
        if task.results[k] != 0 and as_i64(task.results[k]) & _GIVEN == 0:
            release_references(BlockRecord.at(task.results[k]), task.reference)
    for k in range(task.num_events):
        release_event(task.events[k])
    release_error(task.error)
    give_back(at, task.size_class)


def enqueue(task: TaskRecord) -> None:
    """Have all blocks as a reader from now on: steps that come later may write over them."""
    for k in range(task.num_arguments):
        if task.arguments[k] != 0:
            BlockRecord.at(task.arguments[k]).references.add(READER - 1, ACQ_REL)
    for k in range(task.num_results):
        BlockRecord.at(task.results[k]).references.add(READER - 1, ACQ_REL)
    task.reference = READER


def finish_task(at: address, error: address) -> None:
    """The step is over, and has failed if there is an error: its results are ready, and the memory is free."""
    ready = TaskRecord.at(at).ready
    drop_task(at)
    if ready != 0:
        complete_event(ready, error)
    else:
        release_error(error)


def await_event_of(task: TaskRecord, event: EventRecord) -> None:
    """The step begins behind ``event``, and fails where that has failed."""
    if is_done(event):
        if event.error is not None and task.error == 0:
            task.error = error_of_event(event)
        return
    at = address_of(event)
    if task.num_events == 0 or task.events[task.num_events - 1] != at:  # results of one step have one event
        task.events[task.num_events] = keep_event(event)
        task.num_events += 1


def make_blocks(task: TaskRecord) -> address:
    """The memory of the results: that of donated arguments where nobody else uses it, else new. The error where there
    is none; under the lock of the queue."""
    program = task.program
    step = program.step
    for d in range(step.devices):
        device = DeviceRecord.at(program.devices[d])
        count = 0
        nbytes = 0
        largest = 0
        error: address = 0
        for r in range(step.results):
            result = step.result_records[r]
            number = result.block_of[d]
            if task.results[number] == 0 and error == 0:
                block = _reused(task, step, result, d)
                if block == 0:
                    block = make_uncounted_block(device, result.nbytes)
                    if block == 0:
                        error = out_of_memory(result.nbytes)
                    else:
                        count += 1
                        nbytes += result.nbytes
                        largest = max(largest, result.nbytes)
                task.results[number] = block
        if count != 0:
            count_blocks(device, count, nbytes, largest)
        if error != 0:
            return error
    return 0


def block_of_result(task: TaskRecord, number: i64) -> BlockRecord:
    """The block with a number."""
    at = task.results[number]
    return BlockRecord.at(at + -(as_i64(at) & _GIVEN))


def give_result(task: TaskRecord, number: i64) -> address:
    """The block with a number and a reference: the task's own, which it has no more, and then new ones."""
    block = block_of_result(task, number)
    if as_i64(task.results[number]) & _GIVEN != 0:
        keep_block(block)
    else:
        task.results[number] = address_of(block) + _GIVEN
    return address_of(block)


def _reused(task: TaskRecord, step: DriverRecord, result: NativeResult, first: i64) -> address:
    """The block of the argument that a result may be written over, with a reference; null where that may not be.

    The devices that share the result's block, of which ``first`` is the first one, must share the argument's, and hold
    all references to it.
    """
    null: address = 0
    if result.source < 0:
        return null
    at = task.arguments[first * step.arguments + result.source]
    if at == 0:
        return null
    block = BlockRecord.at(at)
    members = 0
    for d in range(first, step.devices):
        if result.block_of[d] == result.block_of[first]:
            members += 1
            if task.arguments[d * step.arguments + result.source] != at:
                return null
    if block.nbytes < result.nbytes or not is_reusable(block, members):
        return null
    if is_read(block):
        task.follows = 1
    keep_block(block)
    return at


def start_task(task: TaskRecord) -> i64:
    """Run a step as soon as its arguments are there. Answers as `go_on`, or before the step `POISONED` or `ASKS`."""
    for k in range(task.num_events):
        event = EventRecord.at(task.events[k])
        await_event(event)
        if event.error is not None and task.error == 0:
            task.error = error_of_event(event)
    if task.error != 0:
        return POISONED
    return ASKS if task.program.asks != 0 else go_on(task)


def is_ready(task: TaskRecord) -> bool:
    """Whether all arguments of the task are available."""
    for k in range(task.num_events):  # noqa: SIM110 - the language has loops only
        if not is_done(EventRecord.at(task.events[k])):
            return False
    return True


def go_on(task: TaskRecord) -> i64:
    """Run a step from its beginning, or from where the drive loop came back; answers as that, but for pauses."""
    program = task.program
    step = program.step
    begins = task.state == NEW
    if begins:
        _fill_tables(task, step)
    begin = now()
    answer = run_step(step)
    while answer == PAUSED:
        answer = run_step(step)
    if begins and answer == FINISHED:
        program.expected = _expected(program.expected, now() - begin)
    task.state = answer
    return answer


def _expected(known: i64, taken: i64) -> i64:
    """What the next step will take: a single slow one, when others had the processor, does not count for much."""
    if known == 0:
        return taken | 1
    if taken < known:
        return known - ((known - taken) >> 2) | 1
    return known + (min(taken - known, known + _STIR) >> 3) | 1


def _fill_tables(task: TaskRecord, step: DriverRecord) -> None:
    for d in range(step.devices):
        given = task.arguments.behind(d * step.arguments)
        table = step.argument_table.behind(d * step.argument_columns)
        for k in range(step.arguments):
            if given[k] != 0:
                table[k] = as_i64(BlockRecord.at(given[k]).data)
    for r in range(step.results):
        result = step.result_records[r]
        for d in range(step.devices):
            if result.follows[d] == 0:
                block = block_of_result(task, result.block_of[d])
                step.result_table[d * step.result_columns + r] = as_i64(block.data)
