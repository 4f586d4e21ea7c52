"""What a desk has done since it opened, and what it does now, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from shardc.service.jobs import Job, State

__all__ = ["Statistics", "Tally"]


@dataclass(frozen=True, slots=True)
class Statistics:
    """``queued``, ``running`` and ``elsewhere`` (another server of the same state makes what they wait for) are jobs
    now, ``oldest`` the seconds that the first of the queue has waited; everything else counts since the desk opened:
    ``makings`` are orders handed to workers by kind, ``seconds`` how long these took together (by the clock, whatever
    number of workers one of them had), ``ended`` are jobs by kind and state, ``cached`` those of them that were there
    already, ``joined`` jobs that found their order under way, ``requeued`` jobs taken over from a server that went
    down."""

    queued: int
    running: int
    elsewhere: int
    oldest: float
    makings: Mapping[str, int]
    seconds: Mapping[str, float]
    ended: Mapping[tuple[str, State], int]
    cached: Mapping[str, int]
    joined: int
    requeued: int


@dataclass(slots=True)
class Tally:
    """What is counted as it happens."""

    makings: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    ended: Counter[tuple[str, State]] = field(default_factory=Counter)
    cached: Counter[str] = field(default_factory=Counter)
    joined: int = 0
    requeued: int = 0

    def made(self, kind: str, seconds: float) -> None:
        """A worker is through with an order, one way or another."""
        self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds

    def over(self, job: Job) -> None:
        self.ended[job.kind, job.state] += 1
        if job.cached:
            self.cached[job.kind] += 1

    def usual_seconds(self) -> float:
        """What one order has taken in the middle; 1 when nothing is known."""
        number = sum(self.makings.values())
        return sum(self.seconds.values()) / number if number else 1.0
