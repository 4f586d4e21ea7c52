"""A pool of child processes: each call has one for as long as its task takes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from shardc.launcher.executors.child import Child, DiedBeforeError, Stop
from shardc.launcher.executors.failures import stopped_error
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.tasks import TASKS, Progress

__all__ = ["Children"]


class Children:
    """As many children as there are calls at a time, with ``environment`` (`shardc.launcher.executors.environment`),
    that know ``tasks`` and import what those that ``prepare`` names need before they are asked.

    Threads may share it. `close` ends them all; calls that go on then are stopped.
    """

    def __init__(
        self, environment: Mapping[str, str], tasks: Mapping[str, str] = TASKS, prepare: Sequence[str] = ()
    ) -> None:
        self._made_of = dict(environment), dict(tasks), tuple(prepare)
        self._idle: list[Child] = []
        self._lock, self._closed = threading.Lock(), False

    def start(self, count: int) -> None:
        """Have so many idle, ready for the first tasks."""
        for _ in range(count):
            self._keep(Child(*self._made_of))

    def call(
        self, task: str, payload: bytes, limits: TaskLimits, progress: Progress | None = None, stop: Stop | None = None
    ) -> bytes:
        """`Child.ask` of a child that is free; a new one where there is none, or the old one has died meanwhile.

        Example: ``children.call("order", payload, TaskLimits(seconds=60))``.
        """

        def over() -> bool:
            return self._closed or (stop is not None and stop())

        while not over():
            child = self._idle_child() or Child(*self._made_of)
            try:
                return child.ask(task, payload, limits, progress, over)
            except DiedBeforeError:
                continue
            finally:
                self._keep(child)
        raise stopped_error(task)

    def close(self) -> None:
        """End the idle ones now, the others as soon as their calls notice."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()

    def _idle_child(self) -> Child | None:
        """The one that was used last, if any; those that died meanwhile are forgotten."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                child = self._idle.pop()
            if not child.worn:
                return child
            child.end()

    def _keep(self, child: Child) -> None:
        """For the next call, unless it is of no use any more."""
        worn = child.worn
        with self._lock:
            if not worn and not self._closed:
                self._idle.append(child)
                return
        child.end()
