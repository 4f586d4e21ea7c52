"""Devices of a process run in turn or on threads, with the same outcome."""

from __future__ import annotations

import threading
import time

import pytest

from shardc.launcher.phases import PhaseRunner


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("seconds", [0.0, 0.003])
def test_stops_come_in_the_order_of_devices(threads: int, seconds: float) -> None:
    def advance(device: int) -> int:
        time.sleep(seconds * (3 - device))
        return 10 * device

    runner = PhaseRunner(threads)
    assert [runner.run(5, advance, range(3)) for _ in range(4)] == [[0, 10, 20]] * 4
    runner.close()


def test_only_long_phases_go_to_threads() -> None:
    here = threading.get_ident()
    now = 0.0
    runner = PhaseRunner(4, lambda: now)
    seen: dict[int, set[int]] = {0: set(), 1: set()}
    together = threading.Barrier(4)

    def advance(phase: int, device: int, *, threaded: bool) -> int:
        nonlocal now
        seen[phase].add(threading.get_ident())
        if threaded:
            together.wait(60)  # passes only if four threads are inside at once
        else:
            now += 0.002 if phase else 0.0
        return device

    for turn in range(4):
        for phase in seen:
            threaded = phase == 1 and turn >= 2
            stops = runner.run(phase, lambda d, p=phase, t=threaded: advance(p, d, threaded=t), range(4))
            assert stops == [0, 1, 2, 3]
    runner.close()
    assert seen[0] == {here}
    assert len(seen[1]) == 5
