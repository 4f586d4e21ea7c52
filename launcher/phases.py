"""Running the devices of one process up to their next collective: one after the other, or on threads.

Handing a phase to threads and waiting for them costs more than a short phase takes. So each phase (what lies between
two collectives) is timed on its first two runs, one device after the other, and goes to the threads afterwards if it
is long enough. Results do not depend on the choice: devices share nothing within a phase.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["PhaseRunner"]

T = TypeVar("T")

#: A phase this long, in seconds over all devices, gains from threads: the hand-off takes about 0.6 ms.
_WORTH_THREADS = 1e-3
_TIMED_RUNS = 2


class PhaseRunner:
    """Runs phases on up to ``threads`` threads; ``phase`` is the collective that the devices resume from.

    ``clock`` says the time in seconds, for the choice alone.
    """

    def __init__(self, threads: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._pool = ThreadPoolExecutor(threads, "shardc-device") if threads > 1 else None
        self._seconds: dict[int, list[float]] = {}

    def run(self, phase: int, advance: Callable[[T], int], devices: Sequence[T]) -> list[int]:
        """Where each device stopped, in the order of ``devices``."""
        if self._pool is None:
            return [advance(d) for d in devices]
        timed = self._seconds.setdefault(phase, [])
        if len(timed) < _TIMED_RUNS:
            start = self._clock()
            stops = [advance(d) for d in devices]
            timed.append(self._clock() - start)
            return stops
        if min(timed) < _WORTH_THREADS:
            return [advance(d) for d in devices]
        return list(self._pool.map(advance, devices))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
