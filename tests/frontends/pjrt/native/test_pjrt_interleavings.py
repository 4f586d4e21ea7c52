"""Events, blocks and spare memory as plain Python: every order of their threads with few preemptions.

Memory comes from the simulation, which sees what is freed twice, never, or used afterwards. Each promise is kept by
the product and broken by a planted fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardc.frontends.pjrt.abi.base import EventOnReadyArgs
from shardc.frontends.pjrt.abi.buffers import BufferDeleteArgs, BufferDestroyArgs
from shardc.frontends.pjrt.native import blocks, buffers, errors, events, memory_pool
from shardc.frontends.pjrt.native.records import (
    CLOSED,
    DONATED,
    LIVE,
    BlockRecord,
    BufferRecord,
    DeviceRecord,
    EventRecord,
    OnReadyCall,
    StackRecord,
    WaiterRecord,
)
from shardc.native.lowlevel.builtins import as_i64
from shardc.native.lowlevel.kinds import address, i64
from shardc.native.lowlevel.records import (
    ACQ_REL,
    ACQUIRE,
    RELAXED,
    RELEASE,
    Atomic,
    Record,
    address_of,
    current_run,
)
from shardc.native.lowlevel.simulation import Choose, Deadlock, Endless, ThreadSimulation, explore

_MODULES = (errors, events, blocks, buffers)


@pytest.fixture(autouse=True)
def every_piece_is_freed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pool, so that what is given back is not given again."""
    for module in _MODULES:
        monkeypatch.setattr(module, "allocate", _allocate)
        monkeypatch.setattr(module, "give_back", _give_back)


def _allocate(size_class: i64) -> address:
    return current_run().allocate(64, memory_pool.bytes_of_class(size_class))


def _give_back(piece: address, size_class: i64) -> None:
    current_run().free(piece)


def finds(program: Callable[[Choose], None]) -> None:
    """There is an order in which a fault shows."""
    with pytest.raises((AssertionError, AttributeError, Deadlock, Endless)):
        explore(program)


# Events.


def complete_and_wait(choose: Choose) -> None:
    """One completes an event with an error, one waits for it."""
    simulation = ThreadSimulation(choose)
    waiting: list[Any] = []

    def start() -> None:
        event = events.make_event(2)
        waiting.append(simulation.start(wait, event))
        events.complete_event(event, errors.make_error(9, 0, 0))

    def wait(event: int) -> int:
        events.await_event(EventRecord.at(event))
        error = EventRecord.at(event).error
        assert error is not None
        code = error.code
        events.release_event(event)
        return code

    simulation.start(start)
    simulation.run()
    assert waiting[0].result == 9
    assert simulation.allocated == []


def complete_and_call(choose: Choose) -> None:
    """One completes an event with an error, one asks to be called and destroys it then."""
    simulation = ThreadSimulation(choose)
    seen: list[int] = []

    def heard(error: address, argument: address) -> None:
        seen.append(errors.ErrorRecord.at(error).code)
        errors.release_error(error)
        events.release_event(argument)

    def start() -> None:
        event = events.make_event(2)
        simulation.start(ask, event)
        events.complete_event(event, errors.make_error(9, 0, 0))

    def ask(event: int) -> None:
        args = EventOnReadyArgs(event=event)
        call = OnReadyCall.at(address_of(args) + EventOnReadyArgs.offset_of("callback"))
        call.function, call.argument = heard, event
        assert events.on_event_ready(args) == 0

    simulation.start(start)
    simulation.run()
    assert seen == [9]
    assert simulation.allocated == []


def test_a_waiter_wakes_in_every_order() -> None:
    assert explore(complete_and_wait) > 50


def test_a_callback_is_called_once_in_every_order() -> None:
    assert explore(complete_and_call) > 30


def test_a_callback_that_comes_behind_completion_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def call_when_done(event: EventRecord, call: OnReadyCall) -> address:
        if as_i64(event.waiters.load(ACQUIRE)) == CLOSED:
            call.function(events.error_of_event(event), call.argument)
            return 0
        at = _allocate(0)
        waiter = WaiterRecord.at(at)
        waiter.call = call
        waiter.next = event.waiters.exchange(at, ACQ_REL)  # the fault: it may be complete by now
        return 0

    monkeypatch.setattr(events, "call_when_done", call_when_done)
    finds(complete_and_call)


def test_completion_without_a_reference_of_its_own_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def complete_event(at: address, error: address) -> None:
        event = EventRecord.at(at)
        event.error = errors.ErrorRecord.at(error)
        events.release_event(at)  # the fault: too early
        event.waiters.exchange(CLOSED, ACQ_REL)

    monkeypatch.setattr(events, "complete_event", complete_event)
    finds(complete_and_call)


# Blocks and buffers.


def use_and_delete(choose: Choose) -> None:
    """Two use an array's memory, while others delete and donate it; then it is destroyed."""
    simulation = ThreadSimulation(choose)
    device = DeviceRecord()
    made: list[int] = []

    def start() -> None:
        block = BlockRecord.at(blocks.make_block(device, 128))
        ready = EventRecord.at(events.done_event())
        made.append(buffers.make_buffer(device, None, 11, (32,), 1, block, ready))
        for task in (use, delete, donate):
            simulation.start(task)

    def use() -> None:
        block = buffers.hold_block(BufferRecord.at(made[0]))
        if block:
            BlockRecord.at(block).nbytes += 0
            blocks.release_block(BlockRecord.at(block))

    def delete() -> None:
        assert buffers.delete_buffer(BufferDeleteArgs(buffer=made[0])) == 0

    def donate() -> None:
        block = buffers.take_block(BufferRecord.at(made[0]), DONATED)
        if block:
            blocks.release_block(BlockRecord.at(block))

    simulation.start(start)
    simulation.run()
    assert len(simulation.allocated) == 1
    assert device.bytes_in_use.load(RELAXED) == 0
    end = ThreadSimulation()
    end._memory = simulation._memory
    end.start(buffers.destroy_buffer, BufferDestroyArgs(buffer=made[0]))
    end.run()
    assert end.allocated == []


def test_memory_stays_while_it_is_used_and_ends_once() -> None:
    assert explore(use_and_delete) > 100


def test_a_look_at_a_buffer_without_its_lock_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def hold_block(buffer: BufferRecord) -> address:
        if buffer.state.load(RELAXED) != LIVE:
            return 0
        blocks.keep_block(buffer.block)  # the fault: it may be released by now
        return address_of(buffer.block)

    monkeypatch.setattr(buffers, "hold_block", hold_block)
    finds(use_and_delete)


def test_references_that_are_not_counted_in_one_step_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def release_block(block: BlockRecord) -> None:
        left = block.references.load(RELAXED) - 1
        block.references.store(left, RELEASE)  # the fault: another one may have done the same
        if left == 0:
            if block.device is not None:
                block.device.bytes_in_use.add(-block.nbytes, RELAXED)
            _give_back(address_of(block), block.size_class)

    monkeypatch.setattr(blocks, "release_block", release_block)
    monkeypatch.setattr(buffers, "release_block", release_block)
    finds(use_and_delete)


def read_and_delete(choose: Choose) -> None:
    """A step that is run at once reads an array without a reference, while others delete it and the array that shares
    its memory."""
    simulation = ThreadSimulation(choose)
    device = DeviceRecord()
    made: list[int] = []

    def start() -> None:
        block = BlockRecord.at(blocks.make_block(device, 128))
        blocks.keep_block(block)
        ready = EventRecord.at(events.done_event())
        made.extend(buffers.make_buffer(device, None, 11, (32,), 1, block, ready) for _ in range(2))
        for task in (read, delete, destroy):
            simulation.start(task)

    def read() -> None:
        for _ in range(2):
            blocks.begin_reading()
            buffer = BufferRecord.at(made[0])
            if buffers.is_live(buffer):
                block = buffer.block
                buffer.lock.load(RELAXED)  # others may go on
                assert address_of(block) in simulation.allocated
            blocks.give_back_waiting(blocks.end_reading())

    def delete() -> None:
        assert buffers.delete_buffer(BufferDeleteArgs(buffer=made[0])) == 0

    def destroy() -> None:
        assert buffers.destroy_buffer(BufferDestroyArgs(buffer=made[1])) == 0

    simulation.start(start)
    simulation.run()
    assert len(simulation.allocated) == 1  # the first array's handle


def test_what_a_step_reads_without_a_reference_stays_until_its_end() -> None:
    assert explore(read_and_delete) > 100


def test_memory_that_does_not_wait_for_who_reads_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_waits", lambda at: False)
    finds(read_and_delete)


# Spare memory.


class OwnerRecord(Record):
    """What a thread writes into a piece of memory that is its own."""

    taken: Atomic[i64]
    owner: Atomic[i64]


def take_and_give(choose: Choose) -> None:
    """Three take and give pieces of one class; a piece has one owner."""
    simulation = ThreadSimulation(choose)

    def own(number: int) -> int:
        piece = memory_pool.allocate(2)
        OwnerRecord.at(piece).owner.store(number, RELAXED)
        assert OwnerRecord.at(piece).owner.load(RELAXED) == number
        return piece

    def start() -> None:
        first = [own(0), own(0), own(0)]
        for piece in first:
            memory_pool.give_back(piece, 2)
        simulation.start(one)
        simulation.start(two)

    def one() -> None:
        piece = own(1)
        memory_pool.give_back(piece, 2)

    def two() -> None:
        pieces = [own(2), own(2)]
        memory_pool.give_back(pieces[0], 2)
        last = [own(2), own(2)]
        assert len({pieces[1], *last}) == 3

    simulation.start(start)
    simulation.run()
    assert len(simulation.allocated) <= 5  # and the stack


def test_a_piece_of_spare_memory_has_one_owner() -> None:
    assert explore(take_and_give) > 100


def test_a_stack_that_is_taken_from_without_its_lock_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def pop(stack: StackRecord) -> address:
        count = stack.count
        if count == 0:
            return 0
        stack.lock.load(RELAXED)  # the fault: another thread may go on here
        stack.count = count - 1
        return int(memory_pool._Pieces.at(stack.pieces).items[count - 1])

    monkeypatch.setattr(memory_pool, "_pop", pop)
    finds(take_and_give)


def test_large_pieces_are_kept_up_to_a_limit() -> None:
    simulation = ThreadSimulation()

    def work() -> None:
        size_class = memory_pool.class_of(1 << 20)
        assert memory_pool.bytes_of_class(size_class) == 1 << 20
        pieces = [memory_pool.allocate(size_class) for _ in range(6)]
        for piece in pieces:
            memory_pool.give_back(piece, size_class)
        again = {memory_pool.allocate(size_class) for _ in range(4)}
        assert again <= set(pieces)
        huge = memory_pool.class_of(memory_pool.bytes_of_class(memory_pool.LARGEST_CLASS) + 1)
        assert huge < 0
        memory_pool.give_back(memory_pool.allocate(huge), huge)

    simulation.start(work)
    simulation.run()
    assert len(simulation.allocated) == 4


def test_every_size_has_a_class_that_is_not_much_larger() -> None:
    sizes = [0, 1, 64, 65, 1000, 1024, 1025, 1280, 1281, 5000, 1 << 20, (1 << 24), (1 << 24) + 1, 1 << 30]
    before = -1
    for nbytes in sizes:
        size_class = memory_pool.class_of(nbytes)
        given = memory_pool.bytes_of_class(size_class)
        assert nbytes <= given <= max(64, nbytes + 64, nbytes * 5 // 4)
        assert size_class < 0 or before <= size_class <= memory_pool.LARGEST_CLASS
        before = max(before, size_class)
