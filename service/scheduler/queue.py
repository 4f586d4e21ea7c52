"""Tasks in flight, each for all jobs that asked for the same order, and the queue of those that wait for a worker."""

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

__all__ = ["TaskInFlight", "TaskQueue"]

log = logging.getLogger("shardc")


@dataclass(slots=True, eq=False)
class TaskInFlight:
    """One order that waits for a worker or that workers carry out, for ``jobs`` (by id, in their present state).

    The journal has the order's text. ``programs`` are those that it names, and ``leases`` keep them in the store.
    ``arrived`` is the time of its first job. ``stage``: it waits in the queue, it waits for another server that makes
    the same, or workers have it (``running`` is what they do for it now). It waits for other servers until
    ``waits_until`` of `time.monotonic`. ``unwanted``: nobody waits for its end.
    """

    key: str
    kind: str
    programs: tuple[str, ...]
    arrived: float
    jobs: dict[str, Job] = field(default_factory=dict)
    stage: Literal["waiting", "other_server", "running"] = "waiting"
    running: list[Running] = field(default_factory=list)
    waits_until: float = math.inf
    unwanted: bool = False
    leases: ExitStack = field(default_factory=ExitStack)

    def release_leases(self) -> None:
        """Give its programs' leases back."""
        try:
            self.leases.close()
        except ShardcError as e:  # they expire
            log.warning("%s", e)


class TaskQueue:
    """Tasks in flight by key; those that wait are served in the order of their first job. For one thread at a time.

    There is at most one task of a key. Example: ``queue.add(task)``; then ``queue.next() is task``, and its stage is
    "running" until ``queue.remove(task)``.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, TaskInFlight] = {}
        self._waiting: list[TaskInFlight] = []

    def __iter__(self) -> Iterator[TaskInFlight]:
        return iter(list(self._tasks.values()))

    def __len__(self) -> int:
        return len(self._tasks)

    def find(self, key: str) -> TaskInFlight | None:
        return self._tasks.get(key)

    def add(self, task: TaskInFlight) -> None:
        """Insert a new task behind those that arrived before it."""
        assert task.key not in self._tasks
        self._tasks[task.key] = task
        self._enqueue(task)

    def next(self) -> TaskInFlight | None:
        """Take the first waiting task for a worker; None when none waits."""
        if not self._waiting:
            return None
        task = self._waiting.pop(0)
        task.stage = "running"
        return task

    def wait_for_other_server(self, task: TaskInFlight) -> None:
        """Another server makes what `next` returned."""
        task.stage = "other_server"

    def put_back(self, task: TaskInFlight) -> None:
        """The other server has ended: the task waits again, where it stood."""
        self._enqueue(task)

    def remove(self, task: TaskInFlight) -> None:
        """The task is over, or nobody wants it. Without effect when it was removed before."""
        if self._tasks.get(task.key) is task:
            del self._tasks[task.key]
        if task in self._waiting:
            self._waiting.remove(task)

    def position(self, task: TaskInFlight) -> int:
        """The task's position among those that wait, from 1; 0 when it does not wait."""
        return self._waiting.index(task) + 1 if task.stage == "waiting" else 0

    def positions(self) -> dict[str, int]:
        """All positions by key, at once."""
        return {task.key: position for position, task in enumerate(self._waiting, 1)}

    def first(self) -> TaskInFlight | None:
        return self._waiting[0] if self._waiting else None

    def _enqueue(self, task: TaskInFlight) -> None:
        task.stage = "waiting"
        insort(self._waiting, task, key=lambda t: t.arrived)
