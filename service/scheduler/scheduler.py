"""The scheduler: takes orders, has each carried out once, however many jobs ask for it, and knows every job's state.

There is one queue, first come, first served. A thread per worker takes the next task, claims its key in the journal, so
that no other server of the same state makes it too, and waits for the worker. When the queue is empty, it helps with an
order that is carried out in pieces.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.running import Workers
from shardc.service.jobs import Job
from shardc.service.orders import Order, order_key, resolve_order, to_json
from shardc.service.scheduler.housekeeping import Housekeeping, Retention
from shardc.service.scheduler.journal import Journal
from shardc.service.scheduler.open_jobs import OpenJobs
from shardc.service.scheduler.queue import TaskInFlight
from shardc.service.scheduler.refusals import Closing, MissingPrograms, NoSuchJob, QueueFull
from shardc.service.scheduler.run_task import kind_of, programs_of
from shardc.service.scheduler.statistics import SchedulerStatistics
from shardc.service.scheduler.watchers import Callback
from shardc.service.scheduler.worker_threads import WorkerThreads
from shardc.service.store.store import Store

__all__ = ["Scheduler"]

#: Seconds that stopped work has to end.
_ENDING = 10.0


class Scheduler:
    """The jobs of one server. Any thread may call it; all calls but `close` are short.

    ``store`` has programs and results, ``workers`` make the results within ``limits``, and ``journal``, which the
    scheduler closes, keeps jobs as ``retention`` says. At most ``queue_limit`` different orders wait. Every ``pause``
    seconds the scheduler looks at what other servers of the same state do. Example::

        scheduler = Scheduler(store, workers, Journal(state), TaskLimits(seconds=60))
        job = scheduler.submit(PartitionOrder(program=store.put_program(text)))
        scheduler.watch(job.id, print)
        scheduler.close(grace=30)
    """

    def __init__(
        self,
        store: Store,
        workers: Workers,
        journal: Journal,
        limits: TaskLimits,
        queue_limit: int = 1000,
        *,
        retention: Retention | None = None,
        pause: float = 0.5,
    ) -> None:
        self._store, self._workers, self._queue_limit = store, workers, queue_limit
        self._jobs = OpenJobs(journal)
        self._worker_threads = WorkerThreads(self._jobs, store, workers, limits)
        self._housekeeping = Housekeeping(self._jobs, store, self._worker_threads, retention or Retention(), pause)
        self._until = math.inf
        self._housekeeping.start()
        self._worker_threads.start_missing()

    def missing_programs(self, order: Order) -> list[str]:
        """The programs that ``order`` names and the store does not have."""
        return [program for program in programs_of(order) if not self._store.has_program(program)]

    def submit(self, order: Order) -> Job:
        """Make a job for ``order``: it is over at once when the store has the result; otherwise it waits for the task
        in flight of the same order, or for a new one in the queue.

        Raises `MissingPrograms`, `QueueFull`, `Closing`, and `EnvironmentProblem` when it cannot be written down.
        """
        self._check_open()
        order = resolve_order(order)
        key, now = order_key(order), time.time()
        job = Job(secrets.token_hex(16), key, kind_of(order), order.name, "queued", now)
        entry = self._store.find(key)
        if entry is not None:
            job = replace(job, state="done", started=now, finished=now, entry=entry, cached=True)
            self._jobs.add_finished(job)
            return job
        with ExitStack() as leases:
            programs = programs_of(order)
            leases.enter_context(self._store.lease(*programs))
            missing = self.missing_programs(order)
            if missing:
                raise MissingPrograms(missing)
            text = to_json(order)
            with self._jobs.lock:
                self._check_open()
                self._check_queue(key)
                self._jobs.journal.add(job, text)
                return self._jobs.attach(job, programs, leases)

    def job(self, job_id: str) -> Job | None:
        """The job in its present state, also of another server of the same state; None when there is none."""
        return self._jobs.find(job_id)

    def jobs(self, limit: int = 100) -> list[Job]:
        """The newest ``limit`` jobs, newest first."""
        return self._jobs.newest(max(0, limit))

    def cancel(self, job_id: str) -> Job | None:
        """Cancel the job unless it is over; returns its state then, None when there is no such job. Its worker stops,
        unless other jobs wait for the same task."""
        job, abandoned = self._jobs.cancel(job_id)
        if abandoned is not None:
            self._worker_threads.stop([abandoned])
        return job

    def watch(self, job_id: str, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` with the job now and after each change, until the function that this returns is called.

        Any thread may call it, and the scheduler waits for it: it must return at once. Raises `NoSuchJob`.
        """
        with self._jobs.lock:
            job = self._jobs.find(job_id)
            if job is None:
                raise NoSuchJob(job_id)
            return self._jobs.watchers.add(job, callback)

    def statistics(self) -> SchedulerStatistics:
        """Figures of what it does now and has done."""
        return self._jobs.statistics()

    def close(self, grace: float = 30.0) -> None:
        """Take no more orders. Running tasks have ``grace`` seconds to end; all other jobs stay in the journal for
        the next server of this state, or one that runs already.

        A second call, from another thread, only shortens the time that the first one waits.
        """
        jobs = self._jobs
        with jobs.changed:
            first, jobs.closing = not jobs.closing, True
            self._until = min(self._until, time.monotonic() + grace)
            jobs.changed.notify_all()
            if not first:
                return
            while self._running() and time.monotonic() < self._until:
                jobs.changed.wait(self._until - time.monotonic())
            left = self._running()
            for task in left:
                task.unwanted = True
        self._worker_threads.stop(left)
        self._housekeeping.stop(_ENDING)
        self._worker_threads.join(_ENDING)
        jobs.requeue()
        jobs.journal.close()

    def _running(self) -> list[TaskInFlight]:
        return [task for task in self._jobs.queue if task.stage == "running"]

    def _check_open(self) -> None:
        if self._jobs.closing:
            raise Closing

    def _check_queue(self, key: str) -> None:
        """Raises `QueueFull` when as many orders wait as may, beyond those that workers have or could begin at once. An
        order in flight has its place: all who ask for it share that."""
        queue = self._jobs.queue
        waiting = len(queue) - min(len(queue), self._workers.count)
        if waiting >= self._queue_limit and queue.find(key) is None:
            raise QueueFull(waiting, retry_after=max(1, min(60, math.ceil(self._jobs.counters.mean_seconds()))))
