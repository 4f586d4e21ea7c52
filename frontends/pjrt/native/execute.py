"""PJRT_LoadedExecutable_Execute: arguments in, buffers of results out, and a task for the queue or a step at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from shardc.frontends.pjrt.abi.execution import LoadedExecutableExecuteArgs, PjrtExecuteOptions
from shardc.frontends.pjrt.native.blocks import keep_block, make_block
from shardc.frontends.pjrt.native.buffers import hold_block, make_buffer, not_live, take_block
from shardc.frontends.pjrt.native.contexts import functions_of
from shardc.frontends.pjrt.native.errors import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    UNIMPLEMENTED,
    fail,
    no_memory,
)
from shardc.frontends.pjrt.native.events import done_event, keep_event, make_event
from shardc.frontends.pjrt.native.programs import OutputRecord, ProgramRecord
from shardc.frontends.pjrt.native.queue import (
    QUEUE,
    add_task,
    end_step_here,
    is_idle,
    lock_queue,
    run_task,
    unlock_queue,
)
from shardc.frontends.pjrt.native.records import (
    DONATED,
    LIVE,
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
    make_blocks,
    make_task,
)
from shardc.native.lowlevel.builtins import exported, static_text
from shardc.native.lowlevel.kinds import Count, address, i64
from shardc.native.lowlevel.records import RELAXED, Record, Span
from shardc.native.lowlevel.system import pthread_self

__all__ = ["EXECUTE_FUNCTIONS", "execute"]

#: Nanoseconds of a step that the caller runs, and those that each result adds: to hand it over, and the client's work
#: with buffers that are not ready, takes about as long.
_SMALL, _SMALL_BY_RESULT = 100_000, 1_000

_DELETED_PROGRAM = static_text("shardc_pjrt_deleted_program", "the executable was deleted: load it again")
_CALLED_BY_ITSELF = static_text(
    "shardc_pjrt_called_by_itself",
    "the executable is called by a function of Python that it calls itself\n  fix: take the inner call out",
)
_FORKED = static_text(
    "shardc_pjrt_forked",
    "this process was forked from one that uses shardc, whose threads are not in it\n"
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
    "shardc_pjrt_transfer_callbacks", "transfers to and from the host within a program by send and recv callbacks"
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
    error = _take_arguments(task, args)
    if error == 0:
        error = make_blocks(task)
    if error != 0:
        unlock_queue()
        drop_task(at)
        return error
    if _is_small(task) and is_idle():
        QUEUE.is_running = 1
        unlock_queue()
        return _run_at_once(at, args)
    error = _promise(task, args)
    if error == 0:
        add_task(at)
    unlock_queue()
    if error != 0:
        drop_task(at)
    return error


def _refuse(program: ProgramRecord, args: LoadedExecutableExecuteArgs) -> address:
    """The error of an execution that cannot be."""
    if program.deleted.load(RELAXED) != 0:
        return fail(FAILED_PRECONDITION, _DELETED_PROGRAM)
    if QUEUE.forked != 0:
        return fail(FAILED_PRECONDITION, _FORKED)
    if program.is_running != 0 and program.caller == pthread_self():
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


def _is_small(task: TaskRecord) -> bool:
    """Can the caller run the step itself, without waiting and without Python?"""
    program = task.program
    if program.asks + program.calls != 0 or task.num_events != 0 or task.error != 0:
        return False
    if task.follows != 0 and QUEUE.standing != 0:
        return False
    small = _SMALL + _SMALL_BY_RESULT * program.step.devices * program.num_outputs
    return program.is_running == 0 and program.expected != 0 and program.expected < small


def _run_at_once(at: address, args: LoadedExecutableExecuteArgs) -> address:
    """Run a step on the caller's thread."""
    task = TaskRecord.at(at)
    error = run_task(at)
    refused = _make_buffers(task, args, EventRecord.at(done_event())) if error == 0 else _promise(task, args)
    end_step_here()
    finish_task(at, error)
    return refused


def _promise(task: TaskRecord, args: LoadedExecutableExecuteArgs) -> address:
    """Buffers that are ready when the task is over."""
    task.ready = make_event(1)
    if task.ready == 0:
        return no_memory()
    return _make_buffers(task, args, EventRecord.at(task.ready))


def _take_arguments(task: TaskRecord, args: LoadedExecutableExecuteArgs) -> address:
    """References to the blocks of all arguments; donated buffers let go of theirs."""
    program = task.program
    if program.num_donated != 0:
        error = _each_argument(task, args, _CHECK)
        if error == 0:
            error = _each_argument(task, args, _DONATED)
        if error != 0:
            return error
    return _each_argument(task, args, _PLAIN)


#: What `_each_argument` does: see that all are live, take those that are donated, or hold the others.
_CHECK, _DONATED, _PLAIN = 0, 1, 2


def _each_argument(task: TaskRecord, args: LoadedExecutableExecuteArgs, does: i64) -> address:
    program = task.program
    step = program.step
    lists = Addresses.at(args.argument_lists).items
    for k in range(program.num_arguments):
        argument = program.arguments[k]
        donated = argument.donated != 0 and not _is_kept(args, k)
        if does != _CHECK and donated != (does == _DONATED):
            continue
        for d in range(step.devices):
            buffer = BufferRecord.at(Addresses.at(lists[d]).items[k])
            if does == _CHECK:
                if buffer.state != LIVE:
                    return not_live()
                continue
            await_event_of(task, buffer.ready)
            if argument.number < 0:
                continue
            error = _take_argument(task, buffer, d * step.arguments, argument.number, donated)
            if error != 0:
                return error
    return 0


def _take_argument(task: TaskRecord, buffer: BufferRecord, row: i64, number: i64, donated: bool) -> address:
    block = take_block(buffer, DONATED) if donated else hold_block(buffer)
    program = task.program
    if block == 0:  # where something is donated all were live at first
        return fail(INVALID_ARGUMENT, _DONATED_TWICE) if program.num_donated != 0 else not_live()
    task.arguments[row + number] = block
    if BlockRecord.at(block).nbytes < program.step.argument_bytes[number]:
        return fail(INVALID_ARGUMENT, _WRONG_SIZE)
    return 0


def _is_kept(args: LoadedExecutableExecuteArgs, number: i64) -> bool:
    """Does the caller keep an argument that the program would give up?"""
    if args.options != 0:
        options = PjrtExecuteOptions.at(args.options)
        if options.num_non_donatable_input_indices != 0:
            kept = _Numbers.at(options.non_donatable_input_indices).items
            for k in range(options.num_non_donatable_input_indices):
                if kept[k] == number:
                    return True
    return False


def _make_buffers(task: TaskRecord, args: LoadedExecutableExecuteArgs, ready: EventRecord) -> address:
    """The results' buffers and the devices' events, which are ready with ``ready``."""
    program = task.program
    lists = Addresses.at(args.output_lists).items
    for d in range(program.step.devices):
        device = DeviceRecord.at(program.devices[d] if args.execute_device == 0 else args.execute_device)
        made = Addresses.at(lists[d]).items
        for k in range(program.num_outputs):
            output = program.outputs[k]
            memory = MemoryRecord.at(device.default_memory if args.execute_device != 0 else output.memories[d])
            block = _block_of(task, output, d, device)
            if block == 0:
                return no_memory()
            keep_event(ready)
            found = make_buffer(
                device, memory, output.element_type, output.dims, output.rank, BlockRecord.at(block), ready
            )
            if found == 0:
                return no_memory()
            made[k] = found
    if args.device_complete_events != 0:
        events = Addresses.at(args.device_complete_events).items
        for d in range(program.step.devices):
            events[d] = keep_event(ready)
    return 0


def _block_of(task: TaskRecord, output: OutputRecord, row: i64, device: DeviceRecord) -> address:
    """The memory of a result on the device in ``row``, with a reference."""
    if output.number < 0:
        return make_block(device, 0)
    block = task.results[task.program.step.result_records[output.number].block_of[row]]
    keep_block(BlockRecord.at(block))
    return block


#: By PJRT's names.
EXECUTE_FUNCTIONS: Mapping[str, Callable[..., object]] = {"LoadedExecutable_Execute": execute}
