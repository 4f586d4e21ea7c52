"""Tasks on the other ranks of an MPI job: `mpi4py.futures`, each of whose ranks has a child.

Beside it rank 0 hears how far tasks are, and tells that nobody wants one any more (`Notes`).
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from shardc.hlo.errors import EnvironmentProblem
from shardc.launcher.executors.children import Children
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.mpi_notes import Notes
from shardc.launcher.executors.running import Kind, Outcome, Running, Unfinished, Workers, outcome_of
from shardc.launcher.executors.tasks import Progress
from shardc.launcher.jobs.mpi_environment import start_mpi

__all__ = ["on_mpi", "share"]

#: Seconds between two looks of ranks that wait, at most.
_BACKOFF = 0.01


@contextmanager
def on_mpi(
    environment: Mapping[str, str], tasks: Mapping[str, str], prepare: Sequence[str]
) -> Iterator[Workers | None]:
    """The ranks but 0, a task each at a time; all ranks call it together, see `open_executor`."""
    from mpi4py.futures import MPICommExecutor

    mpi = start_mpi()
    if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
        what = "this MPI library does not let several threads of a process use it (MPI_THREAD_MULTIPLE)"
        raise EnvironmentProblem(what, where=mpi.Get_library_version().splitlines()[0])
    ranks = mpi.COMM_WORLD.Get_size()
    if ranks == 1:
        raise EnvironmentProblem("the MPI job has no rank for workers", fix="start the job with two or more ranks")
    world, notes = mpi.COMM_WORLD.Dup(), Notes(mpi, mpi.COMM_WORLD.Dup())
    if world.Get_rank() == 0:
        leader = _Leader(ranks - 1, notes)
        listening = threading.Thread(target=notes.listen, args=(leader.receive,), name="shardc-notes")
        try:
            with MPICommExecutor(world, backoff=_BACKOFF) as executor:
                leader.executor = executor
                listening.start()
                try:
                    yield leader
                finally:
                    leader.unfinished.stop()
        finally:
            notes.tell(last=True)
            listening.join()
            notes.close()
            world.Free()
    else:
        with _serving_tasks(Children(environment, tasks, prepare), notes, bool(prepare)), MPICommExecutor(world):
            pass
        notes.listen(_too_late)
        notes.tell(last=True)
        notes.close()
        world.Free()
        yield None


def share(data: Any) -> Any:
    """The plain data that rank 0 gives, on all ranks; all call it together."""
    return start_mpi().COMM_WORLD.bcast(data, root=0)


@dataclass
class _Leader:
    """Rank 0's workers."""

    count: int
    notes: Notes
    executor: Any = None
    kind: Kind = "mpi"
    unfinished: Unfinished = field(default_factory=Unfinished)

    def submit(self, task: str, payload: bytes, limits: TaskLimits, progress: Progress | None = None) -> Running:
        running = Running(task)
        number = self.unfinished.add(running, progress)
        call = self.executor.submit(_on_this_rank, number, task, payload, limits, progress is not None)
        running.follow(call, lambda: self.notes.tell(number))
        return running

    def receive(self, number: int, data: bytes) -> None:
        self.unfinished.report_progress(number, json.loads(data))


def _too_late(number: int, data: bytes) -> None:
    """A task that is over was stopped."""


@dataclass
class _WorkerRank:
    """One that works: its children, and the numbers of tasks that nobody wants any more."""

    children: Children
    notes: Notes
    unwanted: set[int] = field(default_factory=set)

    def call(self, number: int, task: str, payload: bytes, limits: TaskLimits, tell: bool) -> bytes:
        self.unwanted = {n for n in self.unwanted if n >= number}

        def unwanted() -> bool:
            self.unwanted |= {n for n, _ in self.notes.hear()}
            return number in self.unwanted

        def progress(news: Mapping[str, Any]) -> None:
            self.notes.tell(number, json.dumps(news).encode())

        return self.children.call(task, payload, limits, progress if tell else None, unwanted)


#: What the calls of a rank use, while it works.
_RANK: ContextVar[_WorkerRank] = ContextVar("rank")


def _on_this_rank(*call: Any) -> Outcome:
    return outcome_of(lambda: _RANK.get().call(*call))


@contextmanager
def _serving_tasks(children: Children, notes: Notes, prepare: bool) -> Iterator[None]:
    """While this rank works; rank 0 alone hears signals, and says when it is over."""
    main = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)} if main else {}
    token = _RANK.set(_WorkerRank(children, notes))
    try:
        if prepare:
            children.start(1)
        yield
    finally:
        _RANK.reset(token)
        children.close()
        for number, handler in before.items():
            signal.signal(number, handler)
