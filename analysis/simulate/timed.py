"""A program as the simulator's clock sees it: who takes how long, what travels, what waits, what repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Timed", "TimedBranches", "TimedDone", "TimedLoop", "TimedStart", "TimedWork"]


@dataclass(frozen=True, slots=True)
class TimedWork:
    """The processor does ``work`` for so many ``seconds``; ``position`` numbers leaf steps for the memory curve."""

    work: int
    seconds: float
    kind: str = "kernel"
    position: int = 0


@dataclass(frozen=True, slots=True)
class TimedStart:
    """A transfer begins, which takes ``seconds`` alone; ``loads`` are the seconds that it keeps each kind of links
    busy. ``overhead`` are the processor's seconds to start it. The processor waits for it if ``waits``."""

    work: int
    seconds: float
    loads: Mapping[str, float]
    overhead: float = 0.0
    waits: bool = False
    position: int = 0


@dataclass(frozen=True, slots=True)
class TimedDone:
    """The processor waits until the newest transfer of ``work`` has landed."""

    work: int
    overhead: float = 0.0
    position: int = 0


@dataclass(frozen=True, slots=True)
class TimedLoop:
    """``condition``, ``body``, ``condition``, ... with ``trips`` bodies. Whatever starts in a body is done in it."""

    name: str
    trips: int
    condition: Sequence[Timed]
    body: Sequence[Timed]


@dataclass(frozen=True, slots=True)
class TimedBranches:
    """One of the branches runs; the clock takes the one that takes longest."""

    branches: Sequence[Sequence[Timed]]


Timed = TimedWork | TimedStart | TimedDone | TimedLoop | TimedBranches
