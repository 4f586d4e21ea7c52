"""The protocol among ranks of one node as plain Python: every order of their threads with few preemptions."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shardc.collectives.call.call import BufferRef, CollectiveCall, CollectiveOperand
from shardc.collectives.call.membership import Ownership
from shardc.collectives.shared_memory import native_executor
from shardc.collectives.shared_memory.executor import SharedMemoryExecutor
from shardc.collectives.shared_memory.heap import open_heaps
from shardc.collectives.shared_memory.native_executor import help_with_transfers, perform_in_node
from shardc.collectives.shared_memory.native_steps import MISMATCH
from shardc.collectives.shared_memory.node import ComputeNode, shared_code
from shardc.collectives.shared_memory.records import StateRecord
from shardc.hlo.ir.groups import ListGroups
from shardc.hlo.ir.types import DTYPES
from shardc.native.drive.records import DONE_PHASE, START, WHOLE
from shardc.native.lowlevel.records import RELEASE
from shardc.native.lowlevel.simulation import Choose, Deadlock, Process, ThreadSimulation, explore
from shardc.native.threads.meeting import arrive
from shardc.native.threads.pool import Row, pool, pool_object

COUNT, LATE = 4, 10**15
#: Operand and result of the one collective, in the arena of each rank.
PAGE = 4096


class Ranks:
    """Ranks of a node in this process, each with a device, and one all-reduce or all-to-all among them."""

    def __init__(self, ranks: int, op: str, small: int) -> None:
        together, slots = threading.Barrier(ranks), [None] * ranks

        def exchange_of(rank: int) -> Callable[[Any], list[Any]]:
            def exchange(value: Any) -> list[Any]:
                slots[rank] = value
                together.wait()
                found = list(slots)
                together.wait()
                return found

            return exchange

        def make(rank: int) -> tuple[SharedMemoryExecutor, Any, Any]:
            heaps = open_heaps(exchange_of(rank), ranks)
            assert not isinstance(heaps, str), heaps
            code = shared_code()
            messages: Any = SimpleNamespace(exchange_objects=exchange_of(rank))
            node = ComputeNode(heaps, tuple(range(ranks)), messages, code, spin=0, cores=1)
            arena = heaps.mine.bytes[(at := heaps.mine.take(2 * PAGE)) : at + 2 * PAGE]
            rows = (Row * 1)(Row(arena.ctypes.data, 0, 0, 0, rank, 0))
            ownership = Ownership(ranks, ranks)
            executor = SharedMemoryExecutor(node, [_call(op, ranks)], ownership, rows, pool(pool_object()), small=small)
            return executor, arena, rows

        with ThreadPoolExecutor(ranks) as workers:
            made = list(workers.map(make, range(ranks)))
        self.executors = [m[0] for m in made]
        self.keep = made
        self.arenas = [m[1].view(np.float32) for m in made]
        self.states = [StateRecord.at(e.state) for e in self.executors]

    def fill(self) -> None:
        for rank, arena in enumerate(self.arenas):
            arena[:COUNT] = np.arange(COUNT) + 10 * (rank + 1)
            arena[PAGE // 4 : PAGE // 4 + COUNT] = -1

    def results(self) -> list[list[float]]:
        return [a[PAGE // 4 : PAGE // 4 + COUNT].tolist() for a in self.arenas]


def _call(op: str, ranks: int) -> CollectiveCall:
    operand, result = (BufferRef("arena", 0, at, 4 * COUNT) for at in (0, PAGE))
    groups = ListGroups((tuple(range(ranks)),))
    reduction = "add" if op == "all-reduce" else ""
    operands = (CollectiveOperand(operand, result, DTYPES["f32"], COUNT),)
    return CollectiveCall(0, op, reduction, groups, operands, op, asynchronous=True)


def expected(op: str, ranks: int) -> list[list[float]]:
    given = np.array([np.arange(COUNT) + 10 * (r + 1) for r in range(ranks)], np.float32)
    if op == "all-reduce":
        return [given.sum(0).tolist()] * ranks
    return given.reshape(ranks, ranks, -1).swapaxes(0, 1).reshape(ranks, -1).tolist()


@contextmanager
def closing(ranks: Ranks) -> Iterator[Ranks]:
    try:
        yield ranks
    finally:
        for executor in ranks.executors:
            executor.close()


def perform(state: StateRecord, phase: int) -> int:
    """Ask until it is done."""
    code = 1
    while code == 1:
        code = perform_in_node(state, 0, phase, LATE)
    return code


def run(ranks: Ranks, choose: Choose, work: Callable[[int], None], helpers: Sequence[int] = ()) -> None:
    """``work`` of every rank in turns, with helpers for some."""
    simulation = ThreadSimulation(choose, tick=20_000)
    processes = [Process(n + 1) for n in range(len(ranks.states))]
    for rank, process in enumerate(processes):
        simulation.start(work, rank, process=process)
    for rank in helpers:
        simulation.start(help_with_transfers, ranks.states[rank], process=processes[rank]).is_detached = True
    simulation.run()


@pytest.mark.parametrize("op", ["all-reduce", "all-to-all"])
@pytest.mark.parametrize("small", [-1, 1 << 12], ids=["direct", "copied"])
def test_two_ranks_in_every_order(op: str, small: int) -> None:
    with closing(Ranks(2, op, small)) as ranks:

        def program(choose: Choose) -> None:
            ranks.fill()

            def work(rank: int) -> None:
                for _ in range(2):
                    assert perform(ranks.states[rank], WHOLE) == 0

            run(ranks, choose, work)
            assert ranks.results() == expected(op, 2)

        assert explore(program, 2) > 50


def test_start_and_done_around_something_else_in_every_order() -> None:
    with closing(Ranks(2, "all-reduce", -1)) as ranks:

        def program(choose: Choose) -> None:
            ranks.fill()

            def work(rank: int) -> None:
                for _ in range(2):
                    assert perform(ranks.states[rank], START) == 0
                    assert perform(ranks.states[rank], DONE_PHASE) == 0

            run(ranks, choose, work)
            assert ranks.results() == expected("all-reduce", 2)

        assert explore(program, 2) > 50


def test_a_helper_completes_what_was_started_in_many_orders() -> None:
    with closing(Ranks(2, "all-reduce", -1)) as ranks:
        for state in ranks.states:
            state.helps = 1

        def program(choose: Choose) -> None:
            ranks.fill()
            for state in ranks.states:
                state.queue.handed, state.queue.posted.count = 0, 0
                state.queue.stop = 0
                state.ended.count = 0

            def work(rank: int) -> None:
                state = ranks.states[rank]
                assert perform(state, START) == 0
                assert perform(state, DONE_PHASE) == 0
                state.queue.stop.store(1, RELEASE)
                arrive(state.queue.posted, state.queue.handed + 1)

            run(ranks, choose, work, helpers=(0, 1))
            assert ranks.results() == expected("all-reduce", 2)

        for seed in range(30):
            draw = random.Random(seed)
            program(lambda count, preempts, draw=draw: draw.randrange(count))


def test_ranks_of_different_steps_are_found_out_in_every_order() -> None:
    def program(choose: Choose) -> None:
        with closing(Ranks(2, "all-reduce", 1 << 12)) as ranks:
            ranks.states[1].stamp.step = 7
            codes = {}

            def work(rank: int) -> None:
                codes[rank] = perform(ranks.states[rank], WHOLE)

            run(ranks, choose, work)
            assert codes == {0: MISMATCH, 1: MISMATCH}
            assert [s.found.stamp.step for s in ranks.states] == [7, 0]

    assert explore(program, 0) >= 2


def test_an_arrival_before_the_record_is_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others may read it at once: then they find another collective, or what is not there."""
    publish = native_executor.publish

    def too_late(state: StateRecord, call: Any) -> None:
        arrive(native_executor.slot_of(call).arrived, native_executor.goal_of(call, 1))
        publish(state, call)

    monkeypatch.setattr(native_executor, "publish", too_late)

    def program(choose: Choose) -> None:
        with closing(Ranks(2, "all-reduce", 1 << 12)) as ranks:
            ranks.fill()

            def work(rank: int) -> None:
                for _ in range(2):
                    assert perform(ranks.states[rank], WHOLE) == 0

            run(ranks, choose, work)
            assert ranks.results() == expected("all-reduce", 2)

    with pytest.raises((AssertionError, Deadlock)):
        explore(program, 1)
