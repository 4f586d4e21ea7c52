"""Workers, wherever they are: what is asked of them, and what one gets back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Protocol

from shardc.hlo.errors import RunError, ShardcError
from shardc.launcher.executors.ends import stopped
from shardc.launcher.executors.limits import Limits
from shardc.launcher.executors.tasks import Progress

__all__ = ["Kind", "Running", "Workers"]

#: Children of this process, ranks of the MPI job, or workers of a Dask cluster.
Kind = Literal["processes", "mpi", "dask"]


@dataclass(frozen=True)
class Running:
    """A task that was submitted; ``future`` has its answer or a `ShardcError`, and is never cancelled."""

    task: str
    future: Future[bytes] = field(default_factory=Future)
    _wanted: threading.Event = field(default_factory=threading.Event)
    _ends: list[Callable[[], object]] = field(default_factory=list)

    def stop(self) -> None:
        """Nobody wants the answer: the future gets a `RunError` now, and the task is ended where it runs."""
        if not self._wanted.is_set():
            self._wanted.set()
            self.fail(stopped(self.task))
            for end in self._ends:
                end()

    def stopping(self) -> bool:
        """Was it stopped?"""
        return self._wanted.is_set()

    def follow(self, inner: Future[bytes], end: Callable[[], object] | None = None) -> None:
        """``inner`` is what an executor makes of it; ``end`` is called when it is stopped."""
        self._ends.extend([inner.cancel] if end is None else [inner.cancel, end])
        inner.add_done_callback(self._done)

    def fail(self, error: BaseException) -> None:
        """The future's error, unless it has something already."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)

    def _done(self, inner: Future[bytes]) -> None:
        try:
            answer = inner.result()
        except CancelledError:
            self.fail(stopped(self.task))
        except ShardcError as e:
            self.fail(e)
        except BaseException as e:
            text = " ".join(f"{type(e).__name__}: {e}".split())[:500]
            self.fail(RunError(f"the worker of {self.task!r} is lost: {text}", fix="try again"))
        else:
            with suppress(InvalidStateError):
                self.future.set_result(answer)


class Workers(Protocol):
    """What `shardc.launcher.executors.open_executor` opens; threads may share it."""

    @property
    def kind(self) -> Kind: ...

    @property
    def count(self) -> int:
        """Tasks that run at a time."""

    def submit(self, task: str, payload: bytes, limits: Limits, progress: Progress | None = None) -> Running:
        """Have a task done, behind those submitted before. ``progress`` hears how far it is: in some other thread, so
        it must be quick, and raise nothing."""
