"""Running the devices of one process up to their next collective, on the threads of the pool.

A phase is what lies between two collectives. Threads without a device help the kernels of others. Results do not depend
on any of it: devices share nothing within a phase.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from shardc.native.pool import Pool, Row

__all__ = ["PhaseRunner"]

#: What a phase may take that never ran, in nanoseconds.
_UNKNOWN = 10_000_000
#: How much of a phase's longest time is believed the next time.
_FADING = 0.9


class PhaseRunner:
    """Calls the step function at address ``step`` for each of ``rows``, on as many threads as the pool may use.

    ``clock`` says the time in seconds; how long a phase took says whether sleeping threads are woken for it.
    """

    def __init__(
        self, step: int, rows: ctypes.Array[Row], pool: Pool, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._step = step
        self._rows = rows
        self._pool = pool
        self._clock = clock
        self._nanoseconds: dict[int, int] = {}

    def run(self, phase: int) -> list[int]:
        """Where each device stopped, in the order of the rows; ``phase`` is the collective that they resume from."""
        expected = self._nanoseconds.get(phase, _UNKNOWN)
        start = self._clock()
        self._pool.advance(self._step, self._rows, expected)
        taken = int((self._clock() - start) * 1e9)
        known = phase in self._nanoseconds
        self._nanoseconds[phase] = max(taken, int(expected * _FADING)) if known else taken
        return [row.answer for row in self._rows]
