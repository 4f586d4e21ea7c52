"""PJRT_LoadedExecutable_Execute: arguments in, buffers of results out, and a task for the queue or a step at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from shardc.frontends.pjrt.abi.execution import LoadedExecutableExecuteArgs, PjrtExecuteOptions
from shardc.frontends.pjrt.native.blocks import begin_reading, end_reading, give_back_waiting, keep_block, make_block
from shardc.frontends.pjrt.native.buffers import (
    drop_buffer,
    hold_block,
    is_live,
    make_buffer,
    not_live,
    put_back,
    take_block,
)
from shardc.frontends.pjrt.native.contexts import functions_of
from shardc.frontends.pjrt.native.errors import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    UNIMPLEMENTED,
    fail,
    no_memory,
)
from shardc.frontends.pjrt.native.events import (
    await_event_until,
    done_event,
    error_of_event,
    keep_event,
    keep_event_for,
    make_event,
    release_event,
)
from shardc.frontends.pjrt.native.programs import OutputRecord, ProgramRecord
from shardc.frontends.pjrt.native.queue import (
    QUEUE,
    add_task,
    end_step_here,
    is_idle,
    is_in_function,
    lock_queue,
    run_task,
    unlock_queue,
)
from shardc.frontends.pjrt.native.records import (
    DONATED,
    BlockRecord,
    BufferRecord,
    DeviceRecord,
    EventRecord,
    MemoryRecord,
)
from shardc.frontends.pjrt.native.tasks import (
    Addresses,
    TaskRecord,
    await_event_of,
    drop_task,
    finish_task,
    give_result,
    make_blocks,
    make_task,
)
from shardc.frontends.pjrt.native.trampoline import is_interrupted
from shardc.native.lowlevel.builtins import as_i32, as_i64, exported, static_text
from shardc.native.lowlevel.kinds import Count, address, i64
from shardc.native.lowlevel.records import RELAXED, Record, Span
from shardc.native.lowlevel.system import now, pthread_self

__all__ = ["EXECUTE_FUNCTIONS", "execute"]

#: Nanoseconds of a step that the caller runs, and those that each result adds: to hand it over, and the client's work
#: with buffers that are not ready, takes about as long.
_SMALL, _SMALL_BY_RESULT = 100_000, 1_000
#: Nanoseconds between looks for an interrupt.
_LOOK = 100_000_000

_DELETED_PROGRAM = static_text("shardc_pjrt_deleted_program", "the executable was deleted: load it again")
_CALLED_BY_ITSELF = static_text(
    "shardc_pjrt_called_by_itself",
    "a Python callback of a multi-process executable calls that executable again\n"
    "  fix: remove the inner call, or run the executable on devices of one process",
)
_FORKED = static_text(
    "shardc_pjrt_forked",
    "this process was forked from one that uses shardc; a fork does not copy its threads\n"
    "  fix: start processes by 'spawn' (multiprocessing.set_start_method), or fork before JAX runs",
)
_WRONG_DEVICES = static_text(
    "shardc_pjrt_wrong_devices", "the executable was given arguments for another number of devices than it runs on"
)
_WRONG_COUNT = static_text(
    "shardc_pjrt_wrong_count", "the executable was given another number of arguments than it takes"
)
_WRONG_SIZE = static_text(
    "shardc_pjrt_wrong_size", "an argument of the executable has fewer bytes than it takes: its shape or type differ"
)
_DONATED_TWICE = static_text(
    "shardc_pjrt_donated_twice",
    "Attempt to donate the same buffer twice in Execute(): an array is donated and passed a second time\n"
    "  fix: pass a copy, or do not donate it",
)
_CALLBACKS = static_text(
    "shardc_pjrt_transfer_callbacks", "send and recv callbacks for transfers between host and program are not supported"
)


class _Numbers(Record):
    """Numbers one after another."""

    items: Annotated[Span[i64], Count(1)]


@exported("shardc_pjrt_execute")
def execute(args: LoadedExecutableExecuteArgs) -> address:
    program = ProgramRecord.at(args.executable)
    error = _refuse(program, args)
    if error != 0 or args.num_devices == 0:  # the program runs in other processes of the job
        return error
    at = make_task(program)
    if at == 0:
        return no_memory()
    task = TaskRecord.at(at)
    if args.options != 0:
        task.functions = functions_of(PjrtExecuteOptions.at(args.options).context)
    lock_queue()
    reads = _is_small(program) and is_idle()
    if reads:
        begin_reading()
    error = _begin(task, args, reads)
    if error != 0:
        _put_back_donated(task, args)
    runs_here = reads and error == 0 and task.ready == 0
    waiting: address = 0
    end: address = 0
    if runs_here:
        QUEUE.is_running = 1
    elif reads:
        waiting = end_reading()
    if not runs_here and error == 0:
        task.since = 0 if is_in_function() else now()
        if program.calls != 0 and task.since != 0:
            end = keep_event(EventRecord.at(task.ready))
        add_task(at)
    unlock_queue()
    if error != 0:
        drop_task(at)
    elif runs_here:
        failed = run_task(at)
        waiting = end_reading()
        end_step_here()
        error = _end_here(at, args, failed)
    give_back_waiting(waiting)
    return error if end == 0 else _await_end(program, args, end)


def _await_end(program: ProgramRecord, args: LoadedExecutableExecuteArgs, end: address) -> address:
    """Wait for a step that calls Python, as XLA does on processors, unless the user interrupts: where a function fails
    the call has the error, which JAX would else raise from its token again and again."""
    event = EventRecord.at(end)
    while not await_event_until(event, now() + _LOOK):
        if is_interrupted():
            release_event(end)
            return 0
    error = error_of_event(event)
    if error != 0:
        _drop_made(program, args)
    release_event(end)
    return error


def _drop_made(program: ProgramRecord, args: LoadedExecutableExecuteArgs) -> None:
    """The execution has failed after all: the client gets no buffers and no events."""
    lists = Addresses.at(args.output_lists).items
    for d in range(program.step.devices):
        for k in range(program.num_outputs):
            drop_buffer(Addresses.at(lists[d]).items[k])
        if args.device_complete_events != 0:
            release_event(Addresses.at(args.device_complete_events).items[d])


def _refuse(program: ProgramRecord, args: LoadedExecutableExecuteArgs) -> address:
    """The error of an execution that cannot be."""
    if program.deleted.load(RELAXED) != 0:
        return fail(FAILED_PRECONDITION, _DELETED_PROGRAM)
    if QUEUE.forked != 0:
        return fail(FAILED_PRECONDITION, _FORKED)
    if program.asks != 0 and program.is_running != 0 and program.caller == pthread_self():
        return fail(FAILED_PRECONDITION, _CALLED_BY_ITSELF)
    if args.num_devices != program.step.devices:
        return fail(INVALID_ARGUMENT, _WRONG_DEVICES)
    if args.num_devices != 0 and args.num_args != program.num_arguments:
        return fail(INVALID_ARGUMENT, _WRONG_COUNT)
    if args.options != 0:
        options = PjrtExecuteOptions.at(args.options)
        if options.num_send_ops + options.num_recv_ops != 0:
            return fail(UNIMPLEMENTED, _CALLBACKS)
    return 0


def _is_small(program: ProgramRecord) -> bool:
    """Whether the caller may run the step itself, without Python."""
    if program.asks + program.calls + program.is_running != 0:
        return False
    small = _SMALL + _SMALL_BY_RESULT * program.step.devices * program.num_outputs
    return program.expected != 0 and program.expected < small


def _begin(task: TaskRecord, args: LoadedExecutableExecuteArgs, reads: bool) -> address:
    """All that a step needs, and its results' buffers; under the lock of the queue. On an error arguments that were
    donated are to be put back. The task has an event ``ready``, unless the caller ``reads`` and is to run it at once.
    """
    error = _look_at_arguments(task, args, reads)
    if error == 0:
        error = _take_donated(task, args)
    if error == 0:
        error = make_blocks(task)
    if error != 0:
        return error
    runs_here = reads and task.num_events == 0 and task.error == 0 and (task.follows == 0 or QUEUE.standing == 0)
    if task.program.num_donated != 0 or not runs_here:
        error = _hold_others(task, args, runs_here)
    if error != 0:
        return error
    ready = done_event()
    if not runs_here:
        ready = make_event(1)
        task.ready = ready
        if ready == 0:
            return no_memory()
    return _make_buffers(task, args, EventRecord.at(ready), runs_here)


def _end_here(at: address, args: LoadedExecutableExecuteArgs, failed: address) -> address:
    """The caller has run the step, which has ``failed`` with an error, or not (null)."""
    task = TaskRecord.at(at)
    if failed != 0:
        task.ready = make_event(1)
        if task.ready == 0:
            drop_task(at)
            return failed
        _tell_ready(task, args, EventRecord.at(task.ready))
    finish_task(at, failed)
    return 0


def _look_at_arguments(task: TaskRecord, args: LoadedExecutableExecuteArgs, reads: bool) -> address:
    """See that all arguments are live and large enough, and which are still to come. Who ``reads`` has their addresses
    in the step's table."""
    program = task.program
    step = program.step
    lists = Addresses.at(args.argument_lists).items
    for k in range(program.num_arguments):
        number = program.arguments[k].number
        for d in range(step.devices):
            buffer = BufferRecord.at(Addresses.at(lists[d]).items[k])
            if not is_live(buffer):
                return not_live()
            await_event_of(task, buffer.ready)
            if number >= 0:
                block = buffer.block
                if block.nbytes < step.argument_bytes[number]:
                    return fail(INVALID_ARGUMENT, _WRONG_SIZE)
                if reads:
                    step.argument_table[d * step.argument_columns + number] = as_i64(block.data)
    return 0


def _take_donated(task: TaskRecord, args: LoadedExecutableExecuteArgs) -> address:
    """Donated buffers let go of their blocks, which are the task's."""
    program = task.program
    step = program.step
    if program.num_donated == 0:
        return 0
    lists = Addresses.at(args.argument_lists).items
    for k in range(program.num_arguments):
        argument = program.arguments[k]
        if argument.number >= 0 and argument.donated != 0 and not _is_kept(args, k):
            for d in range(step.devices):
                block = take_block(BufferRecord.at(Addresses.at(lists[d]).items[k]), DONATED)
                if block == 0:
                    return fail(INVALID_ARGUMENT, _DONATED_TWICE)
                task.arguments[d * step.arguments + argument.number] = block
    return 0


def _put_back_donated(task: TaskRecord, args: LoadedExecutableExecuteArgs) -> None:
    """The execution is refused: what was donated is as it was."""
    program = task.program
    step = program.step
    lists = Addresses.at(args.argument_lists).items
    for k in range(program.num_arguments):
        argument = program.arguments[k]
        if argument.number >= 0 and argument.donated != 0 and not _is_kept(args, k):
            for d in range(step.devices):
                row = d * step.arguments + argument.number
                if task.arguments[row] != 0:
                    task.arguments[row] = 0
                    put_back(BufferRecord.at(Addresses.at(lists[d]).items[k]))


def _hold_others(task: TaskRecord, args: LoadedExecutableExecuteArgs, runs_here: bool) -> address:
    """References to the blocks of arguments that are not donated; who runs the step at once only sees that they are
    none of these."""
    program = task.program
    step = program.step
    lists = Addresses.at(args.argument_lists).items
    for k in range(program.num_arguments):
        argument = program.arguments[k]
        if argument.number < 0 or (argument.donated != 0 and not _is_kept(args, k)):
            continue
        for d in range(step.devices):
            buffer = BufferRecord.at(Addresses.at(lists[d]).items[k])
            if runs_here:
                is_there = is_live(buffer)
            else:
                block = hold_block(buffer)
                is_there = block != 0
                task.arguments[d * step.arguments + argument.number] = block
            if not is_there:
                return not_live() if program.num_donated == 0 else fail(INVALID_ARGUMENT, _DONATED_TWICE)
    return 0


def _is_kept(args: LoadedExecutableExecuteArgs, number: i64) -> bool:
    """Whether the caller keeps an argument that the program would give up."""
    if args.options != 0:
        options = PjrtExecuteOptions.at(args.options)
        if options.num_non_donatable_input_indices != 0:
            kept = _Numbers.at(options.non_donatable_input_indices).items
            for k in range(options.num_non_donatable_input_indices):
                if kept[k] == number:
                    return True
    return False


def _make_buffers(task: TaskRecord, args: LoadedExecutableExecuteArgs, ready: EventRecord, runs_here: bool) -> address:
    """The results' buffers and the devices' events, which are ready with ``ready``; under the lock of the queue."""
    program = task.program
    lists = Addresses.at(args.output_lists).items
    for d in range(program.step.devices):
        device = DeviceRecord.at(program.devices[d] if args.execute_device == 0 else args.execute_device)
        made = Addresses.at(lists[d]).items
        for k in range(program.num_outputs):
            output = program.outputs[k]
            memory = MemoryRecord.at(device.default_memory if args.execute_device != 0 else output.memories[d])
            block = _block_of(task, output, d, device, runs_here)
            if block == 0:
                return no_memory()
            found = make_buffer(
                device, memory, output.element_type, output.dims, output.rank, BlockRecord.at(block), ready
            )
            if found == 0:
                return no_memory()
            made[k] = found
    _keep_ready(task, args, ready)
    return 0


def _keep_ready(task: TaskRecord, args: LoadedExecutableExecuteArgs, ready: EventRecord) -> None:
    """All results' buffers have a reference to an event, and it is that of the devices."""
    devices = task.program.step.devices
    keep_event_for(ready, as_i32(devices * task.program.num_outputs))
    if args.device_complete_events != 0:
        events = Addresses.at(args.device_complete_events).items
        for d in range(devices):
            events[d] = keep_event(ready)


def _tell_ready(task: TaskRecord, args: LoadedExecutableExecuteArgs, ready: EventRecord) -> None:
    """Buffers that nobody has seen, which were to be ready from the beginning, are ready with an event."""
    lists = Addresses.at(args.output_lists).items
    for d in range(task.program.step.devices):
        for k in range(task.program.num_outputs):
            BufferRecord.at(Addresses.at(lists[d]).items[k]).ready = ready
    _keep_ready(task, args, ready)


def _block_of(task: TaskRecord, output: OutputRecord, row: i64, device: DeviceRecord, gives: bool) -> address:
    """The memory of a result on the device in ``row``, with a reference: that of the task, which gives it, or a new
    one."""
    if output.number < 0:
        return make_block(device, 0)
    number = task.program.step.result_records[output.number].block_of[row]
    if gives:
        return give_result(task, number)
    keep_block(BlockRecord.at(task.results[number]))
    return task.results[number]


#: By PJRT's names.
EXECUTE_FUNCTIONS: Mapping[str, Callable[..., object]] = {"LoadedExecutable_Execute": execute}
