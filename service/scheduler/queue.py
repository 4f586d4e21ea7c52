"""Makings: orders under way, each for all the jobs that asked for the same; and the line in which they stand."""

from __future__ import annotations

import logging
import math
from bisect import insort
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal

from shardc.hlo.errors import ShardcError
from shardc.launcher.executors.running import Running
from shardc.service.jobs import Job

__all__ = ["Line", "Making"]

log = logging.getLogger("shardc")


@dataclass(slots=True, eq=False)
class Making:
    """One order that is being carried out, or will be, for ``jobs`` (by id, as they are now). The journal has its text.

    ``programs`` are those that it names, and ``leases`` keep them in the store. ``place`` is the time of its first job.
    ``stage``: it waits in the line, for another server that makes the same, or workers have it (``running`` is what
    they do for it just now). It waits for others until ``waits_until`` of `time.monotonic`. ``unwanted``: its end
    concerns nobody.
    """

    key: str
    kind: str
    programs: tuple[str, ...]
    place: float
    jobs: dict[str, Job] = field(default_factory=dict)
    stage: Literal["waiting", "elsewhere", "running"] = "waiting"
    running: list[Running] = field(default_factory=list)
    waits_until: float = math.inf
    unwanted: bool = False
    leases: ExitStack = field(default_factory=ExitStack)

    def let_go(self) -> None:
        """Its programs are not needed any more."""
        try:
            self.leases.close()
        except ShardcError as e:  # they run out by themselves
            log.warning("%s", e)


class Line:
    """Makings by key and first come, first served. For one thread at a time.

    There is at most one making of a key. Example: ``line.add(making)``; ``line.next() is making``, and then its stage
    is "running" until ``line.drop(making)``.
    """

    def __init__(self) -> None:
        self._makings: dict[str, Making] = {}
        self._waiting: list[Making] = []

    def __iter__(self) -> Iterator[Making]:
        return iter(list(self._makings.values()))

    def __len__(self) -> int:
        return len(self._makings)

    def find(self, key: str) -> Making | None:
        return self._makings.get(key)

    def add(self, making: Making) -> None:
        """Put it into the line, behind those that came before it."""
        assert making.key not in self._makings
        self._makings[making.key] = making
        self._enter(making)

    def next(self) -> Making | None:
        """The first of the line, which leaves it for a worker; None when nobody waits."""
        if not self._waiting:
            return None
        making = self._waiting.pop(0)
        making.stage = "running"
        return making

    def put_aside(self, making: Making) -> None:
        """Another server makes it: the one that was next waits beside the line."""
        making.stage = "elsewhere"

    def bring_back(self, making: Making) -> None:
        """The other server is through, or gone: to its place in the line."""
        self._enter(making)

    def drop(self, making: Making) -> None:
        """It is over, or nobody wants it. Without effect when it is not here (any more)."""
        if self._makings.get(making.key) is making:
            del self._makings[making.key]
        if making in self._waiting:
            self._waiting.remove(making)

    def position(self, making: Making) -> int:
        """Counts from 1; 0 when it does not wait in the line."""
        return self._waiting.index(making) + 1 if making.stage == "waiting" else 0

    def places(self) -> dict[str, int]:
        """All positions by key, at once."""
        return {making.key: place for place, making in enumerate(self._waiting, 1)}

    def first(self) -> Making | None:
        return self._waiting[0] if self._waiting else None

    def _enter(self, making: Making) -> None:
        making.stage = "waiting"
        insort(self._waiting, making, key=lambda m: m.place)
