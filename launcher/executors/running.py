"""Workers of any kind: their protocol, and submitted tasks with their futures."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from shardc.hlo.errors import RunError, ShardcError
from shardc.launcher.executors.failures import stopped_error
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.problems import from_problem, to_problem
from shardc.launcher.executors.tasks import Progress

__all__ = ["Kind", "Outcome", "Running", "Unfinished", "Workers", "outcome_of"]

#: Children of this process, ranks of the MPI job, or workers of a Dask cluster.
Kind = Literal["processes", "mpi", "dask"]

#: An answer, or the problem in its place: what goes from machine to machine is plain data, errors among it.
Outcome = tuple[Mapping[str, Any] | None, bytes]


def outcome_of(call: Callable[[], bytes]) -> Outcome:
    """What ``call`` returns, or raises of our family."""
    try:
        return None, call()
    except ShardcError as e:
        return to_problem(e), b""


@dataclass(frozen=True)
class Running:
    """A task that was submitted; ``future`` has its answer or a `ShardcError`, and is never cancelled."""

    task: str
    future: Future[bytes] = field(default_factory=Future)
    _unwanted: threading.Event = field(default_factory=threading.Event)
    _ends: list[Callable[[], object]] = field(default_factory=list)

    def stop(self) -> None:
        """Nobody wants the answer: the future gets a `RunError` now, and the task is ended where it runs."""
        if not self._unwanted.is_set() and not self.future.done():
            self._unwanted.set()
            self.fail(stopped_error(self.task))
            self._end()

    def is_stopped(self) -> bool:
        """Whether the task was stopped."""
        return self._unwanted.is_set()

    def follow(self, inner: Future[Outcome], end: Callable[[], object] | None = None) -> None:
        """``inner`` is what an executor makes of it; ``end`` is called when it is stopped."""
        self._ends.extend([inner.cancel] if end is None else [inner.cancel, end])
        inner.add_done_callback(self._done)
        if self.is_stopped():  # meanwhile
            self._end()

    def fail(self, error: BaseException) -> None:
        """The future's error, unless it has something already."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)

    def give_up(self, error: BaseException) -> None:
        """Whoever had it is gone: where work is spread over machines, some of them go away."""
        text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        self.fail(RunError(f"the worker of {self.task!r} was lost ({text})", fix="try again"))

    def _end(self) -> None:
        for end in self._ends:
            end()

    def _done(self, inner: Future[Outcome]) -> None:
        try:
            problem, answer = inner.result()
        except (Exception, CancelledError) as e:
            self.give_up(e)
            return
        if problem is not None:
            self.fail(from_problem(problem))
        else:
            with suppress(InvalidStateError):
                self.future.set_result(answer)


class Unfinished:
    """What was submitted and has no answer yet, by number; threads may share it."""

    def __init__(self) -> None:
        self._numbers, self._found = itertools.count(), dict[int, tuple[Running, Progress | None]]()

    def add(self, running: Running, progress: Progress | None = None) -> int:
        """Its number, under which it is until its future has something."""
        number = next(self._numbers)
        self._found[number] = running, progress
        running.future.add_done_callback(lambda _: self._found.pop(number, None))
        return number

    def report_progress(self, number: int, news: Mapping[str, Any]) -> None:
        """Somebody says how far a task is, which may be over."""
        _, progress = self._found.get(number, (None, None))
        if progress is not None:
            progress(news)

    def stop(self) -> None:
        """Nobody wants any of it."""
        for running, _ in [*self._found.values()]:
            running.stop()


class Workers(Protocol):
    """What `shardc.launcher.executors.open_executor` opens; threads may share it."""

    @property
    def kind(self) -> Kind: ...

    @property
    def count(self) -> int:
        """Tasks that run at a time."""

    def submit(self, task: str, payload: bytes, limits: TaskLimits, progress: Progress | None = None) -> Running:
        """Have a task done, behind those submitted before. ``progress`` hears how far it is: in some other thread, so
        it must be quick, and raise nothing."""
