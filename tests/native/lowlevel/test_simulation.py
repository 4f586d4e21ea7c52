"""Simulated threads: all orders with few preemptions, sleeps, mistakes that must be found."""

from __future__ import annotations

import ctypes
import itertools
import random

import pytest

from shardc.native.lowlevel.kinds import i32, i64
from shardc.native.lowlevel.records import ACQUIRE, RELAXED, RELEASE, SEQ_CST, Atomic, Record, address_of
from shardc.native.lowlevel.simulation import Choose, Deadlock, Endless, Process, ThreadSimulation, explore
from shardc.native.lowlevel.system import (
    EVERYBODY,
    Time,
    aligned_alloc,
    free,
    futex_wait,
    futex_wake,
    getpid,
    nanosleep,
    now,
    sched_yield,
)


class Shared(Record):
    count: Atomic[i64]
    flag: Atomic[i32]
    sleepers: Atomic[i32]


def add_in_two_steps(shared: Shared) -> None:
    shared.count.store(shared.count.load(SEQ_CST) + 1, SEQ_CST)


def add_at_once(shared: Shared) -> None:
    shared.count.add(1, SEQ_CST)


@pytest.mark.parametrize(("add", "sums"), [(add_in_two_steps, {1, 2}), (add_at_once, {2})])
def test_an_update_that_is_not_atomic_is_lost_in_some_order(add: object, sums: set[int]) -> None:
    found = set()

    def program(choose: Choose) -> None:
        shared, simulation = Shared(), ThreadSimulation(choose)
        for _ in range(2):
            simulation.start(add, shared)
        simulation.run()
        found.add(shared.count.load(RELAXED))

    explore(program)
    assert found == sums


@pytest.mark.parametrize("preemptions", range(4))
def test_every_order_once(preemptions: int) -> None:
    """Two threads of two steps each: by how often the one that could go on must wait for the other."""
    orders = []

    def program(choose: Choose) -> None:
        shared, simulation, order = Shared(), ThreadSimulation(choose), []

        def step_twice(name: str) -> None:
            for _ in range(2):
                shared.count.load(RELAXED)
                order.append(name)

        simulation.start(step_twice, "a")
        simulation.start(step_twice, "b")
        simulation.run()
        orders.append("".join(order))

    runs = explore(program, preemptions)
    assert runs == len(orders)
    found = set(orders)
    everything = {"".join(p) for p in itertools.permutations("aabb")}
    assert found <= everything
    assert (preemptions == 0 and found == {"aabb", "bbaa"}) or preemptions in (1, 2) or found == everything


def wait_for_flag(shared: Shared) -> i32:
    while shared.flag.load(SEQ_CST) == 0:
        futex_wait(shared.flag, 0, 0, 0)
    return shared.flag.load(SEQ_CST)


def raise_flag_if_somebody_sleeps(shared: Shared) -> None:
    shared.flag.store(1, SEQ_CST)
    if shared.sleepers.load(SEQ_CST) != 0:
        futex_wake(shared.flag, EVERYBODY, 0)


def sleep_before_telling(shared: Shared) -> None:
    if shared.flag.load(SEQ_CST) == 0:
        futex_wait(shared.flag, 0, 0, 0)
        shared.sleepers.add(1, SEQ_CST)


def tell_before_sleeping(shared: Shared) -> None:
    if shared.flag.load(SEQ_CST) == 0:
        shared.sleepers.add(1, SEQ_CST)
        futex_wait(shared.flag, 0, 0, 0)


@pytest.mark.parametrize(("sleep", "is_lost"), [(sleep_before_telling, True), (tell_before_sleeping, False)])
def test_a_lost_wake_up_is_a_deadlock(sleep: object, is_lost: bool) -> None:
    def program(choose: Choose) -> None:
        shared, simulation = Shared(), ThreadSimulation(choose)
        simulation.start(sleep, shared)
        simulation.start(raise_flag_if_somebody_sleeps, shared)
        simulation.run()

    if is_lost:
        with pytest.raises(Deadlock):
            explore(program)
    else:
        explore(program)


def test_what_a_thread_raises_is_raised() -> None:
    def fails(shared: Shared) -> None:
        raise ValueError("here")

    shared, simulation = Shared(), ThreadSimulation()
    simulation.start(wait_for_flag, shared)
    simulation.start(fails, shared)
    with pytest.raises(ValueError, match="here"):
        simulation.run()


def test_time_jumps_to_who_wakes_first() -> None:
    simulation, ends = ThreadSimulation(tick=1), []

    def sleep(name: str, nanoseconds: int) -> None:
        nanosleep(Time(0, nanoseconds), 0)
        ends.append((name, now() >= nanoseconds))

    for name, nanoseconds in (("late", 5_000_000), ("early", 1_000), ("middle", 70_000)):
        simulation.start(sleep, name, nanoseconds)
    simulation.run()
    assert ends == [("early", True), ("middle", True), ("late", True)]


def test_a_wait_with_a_limit_ends() -> None:
    shared, simulation = Shared(), ThreadSimulation()
    time = Time(1, 5)
    simulation.start(futex_wait, shared.flag, 0, 0, address_of(time))
    simulation.run()


def test_threads_that_only_pass_their_turns_do_not_end() -> None:
    def pass_turns(shared: Shared) -> None:
        while shared.flag.load(ACQUIRE) == 0:
            sched_yield()

    shared, simulation = Shared(), ThreadSimulation(most=1000)
    simulation.start(pass_turns, shared)
    simulation.start(pass_turns, shared)
    with pytest.raises(Endless):
        simulation.run()


def test_processes_are_told_apart() -> None:
    simulation = ThreadSimulation()
    tasks = [simulation.start(getpid, process=Process(n)) for n in (7, 9)]
    simulation.run()
    assert [t.result for t in tasks] == [7, 9]


def test_a_random_choice_gives_the_same_for_the_same_seed() -> None:
    def order(seed: int) -> str:
        shared, found, draw = Shared(), [], random.Random(seed)
        simulation = ThreadSimulation(lambda count, preempts: draw.randrange(count))

        def steps(name: str) -> None:
            for _ in range(20):
                shared.count.store(1, RELEASE)
                found.append(name)

        for name in "abc":
            simulation.start(steps, name)
        simulation.run()
        return "".join(found)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(5)}) == 5


@pytest.mark.parametrize("fault", ["none", "twice", "never", "afterwards"])
def test_memory_is_freed_once_and_not_used_afterwards(fault: str) -> None:
    simulation = ThreadSimulation()

    def work() -> None:
        at = aligned_alloc(64, 128)
        assert at % 64 == 0
        if fault != "never":
            free(at)
        if fault == "twice":
            free(at)
        if fault == "afterwards":
            ctypes.c_int32.from_address(at + 8).value = 1

    simulation.start(work)
    if fault == "twice":
        with pytest.raises(AssertionError, match="freed that is not there"):
            simulation.run()
        return
    simulation.run()
    if fault == "afterwards":
        with pytest.raises(AssertionError, match="written into that was freed"):
            simulation.allocated  # noqa: B018
    else:
        assert len(simulation.allocated) == (fault == "never")
