"""Figures of a scheduler: what it does now, and what it has done since it was opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from shardc.service.jobs import Job, State

__all__ = ["Counters", "SchedulerStatistics"]


@dataclass(frozen=True, slots=True)
class SchedulerStatistics:
    """``queued``, ``running`` and ``elsewhere`` (they wait for another server of the same state) are jobs
    now, ``oldest`` the seconds that the first of the queue has waited; everything else counts since the scheduler was
    opened: ``tasks`` are orders handed to workers by kind, ``seconds`` how long these took together (wall clock,
    whatever number of workers one of them had), ``ended`` are jobs by kind and state, ``cached`` those of them that the
    store answered, ``joined`` jobs that found their order in flight, ``requeued`` jobs taken over from a server that
    went down."""

    queued: int
    running: int
    elsewhere: int
    oldest: float
    tasks: Mapping[str, int]
    seconds: Mapping[str, float]
    ended: Mapping[tuple[str, State], int]
    cached: Mapping[str, int]
    joined: int
    requeued: int


@dataclass(slots=True)
class Counters:
    """Counts of events, updated as they happen."""

    tasks: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    ended: Counter[tuple[str, State]] = field(default_factory=Counter)
    cached: Counter[str] = field(default_factory=Counter)
    joined: int = 0
    requeued: int = 0

    def add_seconds(self, kind: str, seconds: float) -> None:
        """A worker has ended with an order, successfully or not."""
        self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds

    def add_ended(self, job: Job) -> None:
        """A job is over."""
        self.ended[job.kind, job.state] += 1
        if job.cached:
            self.cached[job.kind] += 1

    def mean_seconds(self) -> float:
        """Mean seconds of one order; 1 when none has ended."""
        number = sum(self.tasks.values())
        return sum(self.seconds.values()) / number if number else 1.0
