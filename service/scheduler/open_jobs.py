"""The open jobs of a server and the tasks that they wait for: every change of a job's state happens here.

A change is written into the journal, then applied, then told to the watchers, all under one lock, so that journal and
watchers see the changes in the same order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from shardc.hlo.errors import ShardcError
from shardc.service.jobs import Job, StoreEntry
from shardc.service.scheduler.journal import Journal
from shardc.service.scheduler.queue import TaskInFlight, TaskQueue
from shardc.service.scheduler.refusals import Closing
from shardc.service.scheduler.shared_orders import SharedOrder
from shardc.service.scheduler.statistics import Counters, SchedulerStatistics
from shardc.service.scheduler.watchers import Watchers
from shardc.service.workers.pieces import OrderPiece

__all__ = ["OpenJobs", "TaskOutcome"]

log = logging.getLogger("shardc")

#: Jobs that are remembered here while the disk is full.
_MOST_UNSAVED = 10_000


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The result of a task: an entry (``cached``: the store had it already), or a problem."""

    entry: StoreEntry | None = None
    problem: Mapping[str, Any] | None = None
    cached: bool = False


class OpenJobs:
    """Several calls that belong together need ``lock``; ``changed`` is notified when the queue or what runs changes."""

    def __init__(self, journal: Journal) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.journal = journal
        self.queue = TaskQueue()
        self.watchers = Watchers(self.lock)
        self.counters = Counters()
        self.closing = False
        self._shared: list[SharedOrder] = []
        self._tasks: dict[str, TaskInFlight] = {}
        self._unsaved: dict[str, Job] = {}
        self._unreleased: set[str] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def task_of(self, job_id: str) -> TaskInFlight | None:
        """The task that the job waits for; None for jobs that are over and for other servers' jobs."""
        return self._tasks.get(job_id)

    def find(self, job_id: str) -> Job | None:
        """The job in its present state; None when no server of this state knows it."""
        with self.lock:
            task = self._tasks.get(job_id)
            if task is not None:
                return self.with_position(task, task.jobs[job_id])
            return self._unsaved.get(job_id) or self.journal.job(job_id)

    def newest(self, limit: int) -> list[Job]:
        """The newest ``limit`` jobs of all servers of this state, newest first."""
        written = {job.id: job for job in self.journal.jobs(limit)}
        with self.lock:
            found = written | self._unsaved
            positions = self.queue.positions()
            for job_id in self._tasks.keys() & found.keys():
                task = self._tasks[job_id]
                found[job_id] = replace(task.jobs[job_id], position=positions.get(task.key, 0))
            return sorted(found.values(), key=lambda job: job.created, reverse=True)[:limit]

    def with_position(self, task: TaskInFlight, job: Job) -> Job:
        """``job`` with its position in the queue."""
        return replace(job, position=self.queue.position(task))

    def attach(self, job: Job, programs: tuple[str, ...], leases: ExitStack) -> Job:
        """Have ``job``, which is in the journal, wait for the task in flight of its key. A new task enters the queue by
        the job's time and keeps the ``leases`` of its ``programs``."""
        with self.lock:
            task = self.queue.find(job.key)
            if task is None:
                task = TaskInFlight(job.key, job.kind, programs, job.created, leases=leases.pop_all())
                self.queue.add(task)
                self.changed.notify_all()
            else:
                self.counters.joined += 1
                if task.stage == "running":
                    job = replace(job, state="running", started=time.time())
                    self.journal.note([job])
            task.jobs[job.id] = job
            self._tasks[job.id] = task
            return self.with_position(task, job)

    def add_finished(self, job: Job) -> None:
        """Record a job that the store has answered. A disk that refuses to write it down does not fail it."""
        with self.lock:
            try:
                self.journal.add(job)
            except Closing:
                raise
            except ShardcError as e:
                self._save_later([job], e)
            self.counters.add_ended(job)

    def next(self) -> TaskInFlight | tuple[SharedOrder, OrderPiece] | None:
        """Wait for work of a worker thread: the first task of the queue, or else a piece of the shared order that the
        fewest threads work on. None when the server ends."""
        with self.changed:
            while not self.closing or self._shared:
                task = None if self.closing else self.queue.next()
                if task is not None:
                    self._notify_waiting()
                    return task
                for shared in sorted(self._shared, key=lambda s: s.in_progress):
                    piece = shared.take()
                    if piece is not None:
                        return shared, piece
                self.changed.wait()
            return None

    @contextmanager
    def share_pieces(self, shared: SharedOrder) -> Iterator[None]:
        """Within the block all worker threads may take pieces of ``shared``."""
        with self.changed:
            self._shared.append(shared)
        try:
            yield
        finally:
            with self.changed:
                self._shared.remove(shared)
                self.changed.notify_all()

    def wait_for_other_server(self, task: TaskInFlight, seconds: float) -> None:
        """Another server makes the same; it may take that many seconds."""
        with self.lock:
            if not task.unwanted:
                task.waits_until = min(task.waits_until, time.monotonic() + seconds)
                self.queue.wait_for_other_server(task)
                self._update_jobs(task, progress={"stage": "elsewhere"})
                return
        task.release_leases()

    def put_back(self, task: TaskInFlight) -> None:
        """The other server has ended without a result: the task goes back into the queue."""
        with self.lock:
            if task.stage == "other_server" and not task.unwanted:
                self.queue.put_back(task)
                self._update_jobs(task, progress={})
                self.changed.notify_all()

    def start(self, task: TaskInFlight) -> str:
        """A worker takes the task: returns the text of its order, empty when nobody wants it any more."""
        with self.lock:
            if task.unwanted:
                return ""
            changes: dict[str, Any] = {"state": "running", "started": time.time(), "progress": {}}
            self.journal.note(replace(job, **changes) for job in task.jobs.values())
            self._update_jobs(task, **changes)
            return self.journal.order(task.key)

    def note_progress(self, task: TaskInFlight, progress: Mapping[str, Any]) -> None:
        """Record what a worker said of its progress."""
        with self.lock:
            self._update_jobs(task, progress=dict(progress))

    def finish(self, task: TaskInFlight, outcome: TaskOutcome) -> None:
        """End all jobs that still wait for ``task``."""
        with self.changed:
            if not task.unwanted:
                self.end([_end_job(job, outcome) for job in task.jobs.values()])
                self.queue.remove(task)
            if self.queue.find(task.key) is None:
                self._release(task.key)
            self.changed.notify_all()
        task.release_leases()

    def cancel(self, job_id: str) -> tuple[Job | None, TaskInFlight | None]:
        """Cancel a job that is not over. Returns the job, and its task if no other job waits for that: it is to be
        stopped."""
        with self.changed:
            task = self._tasks.get(job_id)
            if task is None:
                job = self._unsaved.get(job_id) or self.journal.cancel(job_id)
                if job is not None:
                    self.watchers.notify(job)
                return job, None
            (job,) = self.end([replace(task.jobs[job_id], state="cancelled")])
            if task.jobs or task.unwanted:
                return job, None
            task.unwanted = True
            self.queue.remove(task)
            self._notify_waiting()
            self.changed.notify_all()
            return job, task

    def end(self, jobs: Iterable[Job]) -> list[Job]:
        """End ``jobs``; returns their final states, for another server may have cancelled them before."""
        with self.lock:
            over = [replace(job, finished=time.time(), position=0) for job in jobs]
            try:
                over = self.journal.note(over)
            except ShardcError as e:
                self._save_later(over, e)
            for job in over:
                task = self._tasks.pop(job.id, None)
                if task is not None:
                    task.jobs.pop(job.id, None)
                self.counters.add_ended(job)
                self.watchers.notify(job)
            return over

    def save(self) -> None:
        """Write what the disk refused before."""
        with self.lock:
            for job in list(self._unsaved.values()):
                self.journal.add(job)
                self.journal.note([job])
                del self._unsaved[job.id]
            for key in list(self._unreleased):
                if self.queue.find(key) is None:
                    self.journal.release(key)
                self._unreleased.discard(key)

    def requeue(self) -> None:
        """Leave all open jobs to the server that opens the journal next."""
        with self.lock:
            for task in self.queue:
                task.release_leases()
                self._update_jobs(task, state="queued", started=0.0, progress={})

    def statistics(self) -> SchedulerStatistics:
        with self.lock:
            stages = [(task.stage, len(task.jobs)) for task in self.queue]
            first, counters = self.queue.first(), self.counters
            return SchedulerStatistics(
                queued=sum(n for stage, n in stages if stage == "waiting"),
                running=sum(n for stage, n in stages if stage == "running"),
                elsewhere=sum(n for stage, n in stages if stage == "other_server"),
                oldest=0.0 if first is None else max(0.0, time.time() - first.arrived),
                tasks=dict(counters.tasks),
                seconds=dict(counters.seconds),
                ended=dict(counters.ended),
                cached=dict(counters.cached),
                joined=counters.joined,
                requeued=counters.requeued,
            )

    def _update_jobs(self, task: TaskInFlight, **changes: Any) -> None:
        for job in list(task.jobs.values()):
            task.jobs[job.id] = replace(job, **changes)
            self.watchers.notify(self.with_position(task, task.jobs[job.id]))

    def _notify_waiting(self) -> None:
        """Tell watchers of queued jobs their new positions."""
        positions = self.queue.positions()
        for job_id in self.watchers.job_ids():
            task = self._tasks.get(job_id)
            if task is not None:
                self.watchers.notify(replace(task.jobs[job_id], position=positions.get(task.key, 0)))

    def _release(self, key: str) -> None:
        """Give up the claim on ``key``: other servers may make it."""
        try:
            self.journal.release(key)
        except ShardcError as e:
            log.warning("%s", e)
            self._unreleased.add(key)

    def _save_later(self, jobs: Iterable[Job], why: ShardcError) -> None:
        log.warning("%s", why)
        self._unsaved.update((job.id, job) for job in jobs)
        while len(self._unsaved) > _MOST_UNSAVED:
            del self._unsaved[next(iter(self._unsaved))]


def _end_job(job: Job, outcome: TaskOutcome) -> Job:
    return replace(
        job,
        state="failed" if outcome.entry is None else "done",
        started=job.started or time.time(),
        entry=outcome.entry,
        problem=outcome.problem,
        cached=outcome.cached,
    )
