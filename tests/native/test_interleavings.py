"""The pool and the meetings as plain Python, in every order of their threads with few preemptions."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.platform import Platform, platform_of
from shardc.native.lowlevel.records import RELAXED, Atomic, current_run
from shardc.native.lowlevel.simulation import Choose, Deadlock, Process, ThreadSimulation, explore
from shardc.native.lowlevel.system import Time, nanosleep
from shardc.native.threads import pool_jobs, pool_workers
from shardc.native.threads.meeting import Meeting, arrive, wait, wait_sharing
from shardc.native.threads.pool_jobs import parallel
from shardc.native.threads.pool_records import POOL
from shardc.native.threads.pool_workers import configure

LATE = 10**15


@pytest.mark.parametrize("spin", [0, 3000])
@pytest.mark.parametrize("rounds", [1, 2])
def test_nobody_misses_a_meeting(spin: int, rounds: int) -> None:
    """Whoever is last wakes who sleeps, in every round."""

    def program(choose: Choose) -> None:
        meeting, simulation = Meeting(), ThreadSimulation(choose)
        meeting.count = -1  # counters wrap around

        def come() -> None:
            for n in range(rounds):
                target = -1 + 2 * (n + 1)
                arrive(meeting, target)
                assert wait(meeting, target, spin, LATE)

        simulation.start(come)
        simulation.start(come, process=Process(2))
        simulation.run()
        assert (meeting.count.load(RELAXED), meeting.sleepers.load(RELAXED)) == (2 * rounds - 1, 0)

    assert explore(program, 1 if spin else 4 - rounds) > 20


def test_three_meet_in_any_order() -> None:
    def program(choose: Choose) -> None:
        meeting, simulation = Meeting(), ThreadSimulation(choose)

        def come(cores: int) -> None:
            arrive(meeting, 3)
            assert wait_sharing(meeting, 3, 3000, LATE, cores)
            assert meeting.count.load(RELAXED) == 3

        for n in range(3):
            simulation.start(come, 1 + n, process=Process(n))
        simulation.run()

    explore(program, 1)


def test_who_waits_in_vain_is_no_sleeper_afterwards() -> None:
    def program(choose: Choose) -> None:
        meeting, simulation = Meeting(), ThreadSimulation(choose)
        waiting = simulation.start(wait, meeting, 2, 0, 50_000)
        simulation.start(arrive, meeting, 2)
        simulation.run()
        assert not waiting.result
        assert meeting.sleepers.load(RELAXED) == 0

    explore(program, 3)


@pytest.fixture(params=[True, False], ids=["futex", "condition"])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """How threads sleep; and a pool with a single slot, so that there are not too many orders."""
    monkeypatch.setattr(pool_jobs, "SLOTS", 1)
    monkeypatch.setattr(pool_workers, "SLOTS", 1)
    return platform_of("x86_64-unknown-linux-gnu", futex=request.param)


def jobs(choose: Choose, platform: Platform, piece: Callable[[address, i64, i64], None], count: int) -> None:
    """Two jobs of ``count`` indices, each worth waking the worker."""
    simulation = ThreadSimulation(choose, tick=20_000)

    def call() -> None:
        configure(1, 10_000)
        for _ in range(2):
            parallel(piece, 0, count, 1_000_000)
        slot = POOL.slots[0]
        assert slot.pending.load(RELAXED) == slot.taken.load(RELAXED) == 0

    simulation.start(call, process=Process(1, platform=platform))
    simulation.run()


def test_every_index_is_done_once_in_every_order(platform: Platform) -> None:
    def program(choose: Choose) -> None:
        done = [0, 0, 0]

        def piece(context: address, begin: i64, end: i64) -> None:
            nanosleep(Time(0, 30_000 if begin == 2 else 1_000), 0)  # the worker, which has the last one, is late
            for k in range(begin, end):
                done[k] += 1

        jobs(choose, platform, piece, 3)
        assert done == [2, 2, 2]

    assert explore(program, 1) > 20


def test_a_worker_comes_when_there_is_work_for_it(platform: Platform) -> None:
    """Two pieces that wait for each other: both a lost wake-up of the worker and one of the caller are deadlocks."""

    def program(choose: Choose) -> None:
        together, rounds = Meeting(), [0]

        def piece(context: address, begin: i64, end: i64) -> None:
            rounds[0] += 1
            target = (rounds[0] + 1) // 2 * 2
            arrive(together, target)
            assert wait(together, target, 0, LATE)

        jobs(choose, platform, piece, 2)
        assert rounds == [4]

    assert explore(program, 1) > 20


def test_a_sleep_without_another_look_is_found(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last piece may be done between the look and the sleep: then nobody wakes the caller."""

    def sleep(word: Atomic[i32], old: i32) -> None:
        current_run().before_atomic()
        current_run().wait_on(word.address, None)

    monkeypatch.setattr(pool_jobs, "sleep_on", sleep)

    def piece(context: address, begin: i64, end: i64) -> None:
        nanosleep(Time(0, 30_000 if begin == 2 else 1_000), 0)  # the worker begins with the last one

    with pytest.raises(Deadlock):
        explore(lambda choose: jobs(choose, platform, piece, 3), 1)


@pytest.mark.parametrize("seed", range(20))
def test_several_callers_and_workers_at_random(seed: int, platform: Platform) -> None:
    draw, done = random.Random(seed), [0] * 10
    simulation = ThreadSimulation(lambda count, preempts: draw.randrange(count), tick=5_000, most=10**6)

    def piece(context: address, begin: i64, end: i64) -> None:
        for k in range(begin, end):
            done[k] += 1
            if context and k == 3:
                parallel(piece, 0, 2, 1_000_000)  # a piece may call the pool

    def call(nested: int) -> None:
        configure(2, 10_000)
        for _ in range(3):
            parallel(piece, nested, 5, 1_000_000)

    process = Process(1, platform=platform)
    for nested in (0, 1, 0):
        simulation.start(call, nested, process=process)
    simulation.run()
    assert done == [12, 12, 9, 9, 9, 0, 0, 0, 0, 0]
