"""What a profiled step records, and where: plain data that travels with the executable.

A step compiled for profiling keeps a record behind its arena. All numbers are 64-bit words::

    clock at the last mark | events so far | 6 words unused
    per site: times it ran | nanoseconds in all
    per event, until there is no room: site | clock when it began | clock when it ended

The clock is ``CLOCK_MONOTONIC`` in nanoseconds. A site is a leaf step of the program: a kernel, a copy, a collective
(the time until the driver goes on). Work between two sites, such as a loop's test, counts to the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EVENT_WORDS", "HEADER_WORDS", "SITE_WORDS", "ProfilePlan", "ProfileRecord", "ProfileStep"]

HEADER_WORDS, SITE_WORDS, EVENT_WORDS = 8, 2, 3


@dataclass(frozen=True, slots=True)
class ProfileStep:
    """A step of the program that is timed.

    ``kind`` is ``kernel``, ``copy``, ``collective`` (where it starts) or ``await`` (where it is done, if that is
    elsewhere); ``kernel`` the native function; ``holds`` says in words what it
    computes. ``read`` and ``written`` are the bytes that one execution must move, ``flops`` what it must compute.
    """

    kind: str
    kernel: str
    name: str
    holds: str
    op_name: str
    source: str
    dtype: str
    read: int
    written: int
    flops: int


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    """One device's record of a step: executions and nanoseconds by site; ``events`` are rows (site, begin, end)."""

    calls: NDArray[np.int64]
    nanoseconds: NDArray[np.int64]
    events: NDArray[np.int64]
    dropped: int


@dataclass(frozen=True, slots=True)
class ProfilePlan:
    """The record's place: ``offset`` bytes into the arena, room for ``events`` events; and what its sites are.

    ``program`` is the key of what was compiled (`shardc.compiler.measured.program_key`).
    """

    sites: tuple[ProfileStep, ...]
    offset: int
    events: int
    program: str = ""

    @property
    def nbytes(self) -> int:
        return 8 * (self.first_event + EVENT_WORDS * self.events)

    @property
    def first_event(self) -> int:
        """The word where events begin."""
        return HEADER_WORDS + SITE_WORDS * len(self.sites)

    def record_integers(self, arena: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The record within a device's arena, to be cleared (``[:] = 0``) before a step."""
        return arena[self.offset : self.offset + self.nbytes].view(np.int64)

    def read(self, arena: NDArray[np.uint8]) -> ProfileRecord:
        """A copy of what the last steps recorded."""
        words = self.record_integers(arena)
        sites: NDArray[Any] = words[HEADER_WORDS : self.first_event].reshape(-1, SITE_WORDS).copy()
        count = int(words[1])
        kept = min(count, self.events)
        events = words[self.first_event :][: kept * EVENT_WORDS].reshape(-1, EVENT_WORDS).copy()
        return ProfileRecord(sites[:, 0], sites[:, 1], events, count - kept)
