"""The drive loop with steps and executors written in Python: order of stops, waiting, failures, what it remembers."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import pytest

from shardc.native.drive.drive_loop import (
    ANSWERED,
    FAILED,
    FINISHED,
    HOST,
    HOSTED,
    PAUSED,
    PERFORM_TYPE,
    RING,
    WAIT,
    WAITING,
    Prepared,
    drive,
    drive_object,
)
from shardc.native.threads.pool import Row, pool, pool_object

STEP = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4, ctypes.c_int32)


class Program:
    """Steps answer ``script`` one after another on every device; collective executors answer what ``perform`` says."""

    def __init__(
        self,
        answer: Callable[[int, int], int],
        devices: int = 1,
        threads: int = 1,
        kinds: tuple[int, ...] = (1, 1, 2),
        perform: Callable[[int, int], int] = lambda index, phase: 0,
    ) -> None:
        self.performed: list[tuple[int, int]] = []
        arenas = [(ctypes.c_int64 * 8)(99) for _ in range(devices)]

        def step(arena: int, arguments: int, results: int, constants: int, device: int) -> int:
            place = ctypes.c_int64.from_address(arena)
            place.value += 1
            return answer(device, place.value - 1)

        def executor(state: int, index: int, phase: int, deadline: int) -> int:
            assert (state, deadline) in ((77, 50_000_000), (77, 0))
            self.performed.append((index, phase))
            return perform(index, phase)

        functions = STEP(step), PERFORM_TYPE(executor)
        addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions]
        rows = (Row * devices)(*(Row(ctypes.addressof(a), 0, 0, 0, d, 0) for d, a in enumerate(arenas)))
        threads_pool = pool(pool_object())
        threads_pool.configure(threads - 1)
        self.keep = functions, arenas
        self.loop: Prepared = drive(drive_object()).prepare(addresses[0], rows, threads_pool, kinds, addresses[1], 77)


@pytest.mark.parametrize("devices", [1, 2, 7])
@pytest.mark.parametrize("threads", [1, 3])
def test_runs_from_the_beginning_to_the_end(devices: int, threads: int) -> None:
    script = [0, 1, 2, 0, 2 | WAIT, -1]
    program = Program(lambda device, place: script[place], devices, threads)
    for times in (1, 2, 3):
        assert program.loop.run() == FINISHED
        assert program.performed == [(0, 0), (1, 0), (2, 1), (0, 0), (2, 2)] * times
    assert [(r.count, r.dones) for r in program.loop.records] == [(6, 0), (3, 0), (3, 3)]
    assert program.loop.job.done == 12
    assert [(e.index, e.phase) for e in program.loop.history] == program.performed
    assert all(e.begin <= e.end for e in program.loop.history)


@pytest.mark.parametrize(
    "answers", [[0, -1], [0, 0, 1], [-1, -1, 0], [7, 7], [-2, -2], [3 | WAIT], [-(1 << 31)], [(1 << 31) - 1]]
)
def test_answers_that_python_must_explain(answers: list[int]) -> None:
    program = Program(lambda device, place: answers[device], len(answers))
    assert program.loop.run() == ANSWERED
    assert [row.answer for row in program.loop.rows] == answers
    assert not program.performed


def test_an_index_that_no_collective_has() -> None:
    program = Program(lambda device, place: 1, 2, kinds=(1, 0, 1))
    assert program.loop.run() == ANSWERED


def test_a_waiting_executor_is_asked_again_for_the_same() -> None:
    answers = iter([1, 1, 0, 1, 0])
    script = [1, 0, -1]
    program = Program(lambda device, place: script[place], 2, perform=lambda index, phase: next(answers))
    assert [program.loop.run() for _ in range(4)] == [WAITING, WAITING, WAITING, FINISHED]
    assert program.performed == [(1, 0), (1, 0), (1, 0), (0, 0), (0, 0)]
    assert [(e.index, e.waits) for e in program.loop.history] == [(1, 2), (0, 1)]


def test_a_long_step_pauses_between_collectives() -> None:
    script = [1, 0, -1]
    program = Program(lambda device, place: script[place], 2)
    program.loop.job.deadline = 0
    assert [program.loop.run() for _ in range(3)] == [PAUSED, PAUSED, FINISHED]
    assert program.performed == [(1, 0), (0, 0)]
    assert program.loop.run() == PAUSED
    program.loop.abandon()
    assert program.loop.run() == PAUSED
    assert program.performed[3:] == [(1, 0)]


def test_an_abandoned_wait_starts_anew() -> None:
    script = [1, 0, -1]
    answers = iter([0, 1, 0, 0])
    program = Program(lambda device, place: script[place], perform=lambda index, phase: next(answers))
    assert program.loop.run() == WAITING
    program.loop.abandon()
    assert program.loop.run() == FINISHED
    assert program.performed == [(1, 0), (0, 0), (1, 0), (0, 0)]


def test_an_executor_that_fails() -> None:
    program = Program(lambda device, place: 1, perform=lambda index, phase: -5)
    assert program.loop.run() == FAILED
    assert (program.loop.job.code, program.loop.job.stop) == (-5, 1)
    assert program.loop.history[-1].end == 0


def test_the_recorder_keeps_the_newest() -> None:
    program = Program(lambda device, place: -1 if place == RING + 10 else place % 2)
    assert program.loop.run() == FINISHED
    assert [e.index for e in program.loop.history] == [n % 2 for n in range(10, RING + 10)]


def test_devices_run_together() -> None:
    together = threading.Barrier(3)

    def answer(device: int, place: int) -> int:
        together.wait(60)  # passes only if three threads are inside at once
        return -1

    assert Program(answer, 3, 3).loop.run() == FINISHED


def test_one_thread_runs_them_in_turn() -> None:
    here, threads, seen = threading.get_ident(), set(), []

    def answer(device: int, place: int) -> int:
        threads.add(threading.get_ident())
        seen.append((place, device))
        return -1 if place else 0

    assert Program(answer, 4, 1).loop.run() == FINISHED
    assert threads == {here}
    assert seen == [(p, d) for p in range(2) for d in range(4)]


def test_what_a_phase_took_is_expected_the_next_time() -> None:
    script = [0, 2, 2 | WAIT, -1]
    program = Program(lambda device, place: script[place], 2)
    assert program.loop.run() == FINISHED
    beginning, after0, after1, *others = program.loop.expected
    assert beginning > 0
    assert after0 > 0
    assert others[1] == 0  # 1's done, which never was
    assert after1 == 0
    assert others[2] > 0
    assert others[3] > 0
    program.loop.expected[0] = 1 << 40  # what a phase once took is forgotten slowly
    assert program.loop.run() == FINISHED
    assert program.loop.expected[0] == ((1 << 40) - (1 << 37)) | 1


def test_devices_that_call_python_are_waited_for() -> None:
    scripts = [[0, HOST | 4, 1, HOST, -1], [0, 1, HOST | 2, -1]]
    program = Program(lambda device, place: scripts[device][place], 2)
    rows, seen = program.loop.rows, []
    state = program.loop.run()
    while state == HOSTED:
        seen.append([row.answer for row in rows])
        for device, row in enumerate(rows):
            if row.answer & HOST:
                row.answer = scripts[device][scripts[device].index(row.answer) + 1]
                ctypes.c_int64.from_address(row.arena).value += 1
        state = program.loop.run()
    assert state == FINISHED
    assert seen == [[HOST | 4, 1], [HOST, HOST | 2]]
    assert program.performed == [(0, 0), (1, 0)]
    assert program.loop.run() == HOSTED
    program.loop.abandon()
    assert program.loop.run() == HOSTED and program.performed[2:] == [(0, 0), (0, 0)]
