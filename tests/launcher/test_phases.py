"""Devices of a process run on the pool's threads: each once per phase, together where there are threads for them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from shardc.launcher.driver import STEP_TYPE
from shardc.launcher.phases import PhaseRunner
from shardc.native.pool import Row, pool, pool_object


def runner(step: Callable[[int], int], devices: int, threads: int) -> tuple[PhaseRunner, object]:
    """A runner of a Python function of the device, and what must stay alive for it."""
    native = STEP_TYPE(lambda arena, arguments, results, constants, device: step(device))
    rows = (Row * devices)(*(Row(None, None, None, None, d, 0) for d in range(devices)))
    address = ctypes.cast(native, ctypes.c_void_p).value
    assert address is not None
    pool(pool_object()).configure(threads - 1)
    return PhaseRunner(address, rows, pool(pool_object())), native


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("devices", [2, 7])
def test_stops_come_in_the_order_of_devices(threads: int, devices: int) -> None:
    seen: list[int] = []

    def step(device: int) -> int:
        seen.append(device)
        return 10 * device - 1

    run, keep = runner(step, devices, threads)
    for _ in range(4):
        assert run.run(5) == [10 * d - 1 for d in range(devices)]
    assert sorted(seen) == sorted(list(range(devices)) * 4)
    del keep


def test_devices_run_together() -> None:
    together = threading.Barrier(3)

    def step(device: int) -> int:
        together.wait(60)  # passes only if three threads are inside at once
        return device

    run, keep = runner(step, 3, 3)
    assert run.run(-1) == [0, 1, 2]
    del keep


def test_one_thread_runs_them_in_turn() -> None:
    here = threading.get_ident()
    threads = set()

    def step(device: int) -> int:
        threads.add(threading.get_ident())
        return device

    run, keep = runner(step, 4, 1)
    assert run.run(-1) == [0, 1, 2, 3]
    assert threads == {here}
    del keep


class Recorder:
    """In place of a pool: notes how long it is told that phases take; they take what ``takes`` says."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.now = self.takes = 0.0

    def advance(self, step: int, rows: ctypes.Array[Row], nanoseconds: int) -> None:
        self.told.append(nanoseconds)
        self.now += self.takes


def test_what_a_phase_took_is_expected_the_next_time() -> None:
    recorder = Recorder()
    run = PhaseRunner(0, (Row * 2)(), cast(Any, recorder), lambda: recorder.now)
    for microseconds in (400, 100, 10, 10, 500, 10):
        recorder.takes = microseconds * 1e-6
        run.run(3)
    first, *told = recorder.told
    assert first > 1_000_000
    assert [round(n / 1000) for n in told] == [400, 360, 324, 292, 500]
