"""The desk: takes orders, has each carried out once however many jobs ask for it, and knows what became of every job.

Orders stand in one line, first come, first served. A thread per worker takes the next one, claims its key in the
journal, so that no other server of the same state makes it too, and waits for the worker. When nobody stands in the
line, it helps with an order that is done in pieces.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from shardc.launcher.executors.limits import Limits
from shardc.launcher.executors.running import Workers
from shardc.service.jobs import Job
from shardc.service.orders import Order, order_key, resolved, to_json
from shardc.service.scheduler.housekeeping import Keeping, Rounds
from shardc.service.scheduler.journal import Journal
from shardc.service.scheduler.open_jobs import OpenJobs
from shardc.service.scheduler.queue import Making
from shardc.service.scheduler.refusals import Closing, MissingPrograms, NoSuchJob, QueueFull
from shardc.service.scheduler.run_task import kind_of, programs_of
from shardc.service.scheduler.statistics import Statistics
from shardc.service.scheduler.watchers import Callback
from shardc.service.scheduler.worker_threads import Hands
from shardc.service.store.store import Store

__all__ = ["Desk"]

#: Seconds that work which was stopped gets to end.
_ENDING = 10.0


class Desk:
    """Jobs of one server. Any thread may call it; all calls are short, but `close`.

    ``store`` has programs and results, ``workers`` make the results within ``limits``, ``journal`` (which the desk
    closes) remembers, within ``keeping``. At most ``queue`` jobs wait. Every ``pause`` seconds it looks at what other
    servers of the same state do. Example::

        desk = Desk(store, workers, Journal(state), Limits(seconds=60))
        job = desk.submit(PartitionOrder(program=store.put_program(text)))
        desk.watch(job.id, print)
        desk.close(grace=30)
    """

    def __init__(
        self,
        store: Store,
        workers: Workers,
        journal: Journal,
        limits: Limits,
        queue: int = 1000,
        *,
        keeping: Keeping | None = None,
        pause: float = 0.5,
    ) -> None:
        self._store, self._workers, self._queue = store, workers, queue
        self._jobs = OpenJobs(journal)
        self._hands = Hands(self._jobs, store, workers, limits)
        self._rounds = Rounds(self._jobs, store, self._hands, keeping or Keeping(), pause)
        self._until = math.inf
        self._rounds.start()
        self._hands.hire()

    def missing(self, order: Order) -> list[str]:
        """The programs that ``order`` names and the store does not have."""
        return [program for program in programs_of(order) if not self._store.has_program(program)]

    def submit(self, order: Order) -> Job:
        """A new job for ``order``: over at once when its result is in the store, otherwise in the line, or with the
        others that wait for the same.

        Raises `MissingPrograms`, `QueueFull`, `Closing`, and `EnvironmentProblem` when it cannot be written down.
        """
        self._check_open()
        order = resolved(order)
        key, now = order_key(order), time.time()
        job = Job(secrets.token_hex(16), key, kind_of(order), order.name, "queued", now)
        entry = self._store.find(key)
        if entry is not None:
            job = replace(job, state="done", started=now, finished=now, entry=entry, cached=True)
            self._jobs.enter_over(job)
            return job
        with ExitStack() as leases:
            programs = programs_of(order)
            leases.enter_context(self._store.using(*programs))
            missing = self.missing(order)
            if missing:
                raise MissingPrograms(missing)
            text = to_json(order)
            with self._jobs.lock:
                self._check_open()
                self._check_room()
                self._jobs.journal.add(job, text)
                return self._jobs.enter(job, programs, leases)

    def job(self, job_id: str) -> Job | None:
        """The job as it is now, also of another server of the same state; None when there is none."""
        return self._jobs.find(job_id)

    def jobs(self, limit: int = 100) -> list[Job]:
        """The newest jobs, newest first."""
        return self._jobs.newest(max(0, limit))

    def cancel(self, job_id: str) -> Job | None:
        """The job after nobody wants it any more: cancelled, or as it was when it was over. None: there is no such
        job. Its worker stops, unless other jobs wait for the same."""
        job, abandoned = self._jobs.cancel(job_id)
        if abandoned is not None:
            self._hands.stop([abandoned])
        return job

    def watch(self, job_id: str, callback: Callback) -> Callable[[], None]:
        """Have ``callback`` hear of the job as it is, at once, and then of each change; what this returns ends that.

        The desk waits for the callback, which may come from any thread: it must return at once. Raises `NoSuchJob`.
        """
        with self._jobs.lock:
            job = self._jobs.find(job_id)
            if job is None:
                raise NoSuchJob(job_id)
            return self._jobs.watchers.add(job, callback)

    def statistics(self) -> Statistics:
        """What it has done, and does now, in numbers."""
        return self._jobs.statistics()

    def close(self, grace: float = 30.0) -> None:
        """Take no more orders; what runs may end within ``grace`` seconds, everything else goes back to the journal,
        for the next server of this state, or one that is there.

        A second call, from another thread, only shortens the time that the first one waits.
        """
        jobs = self._jobs
        with jobs.turn:
            first, jobs.closing = not jobs.closing, True
            self._until = min(self._until, time.monotonic() + grace)
            jobs.turn.notify_all()
            if not first:
                return
            while self._running() and time.monotonic() < self._until:
                jobs.turn.wait(self._until - time.monotonic())
            left = self._running()
            for making in left:
                making.unwanted = True
        self._hands.stop(left)
        self._rounds.stop(_ENDING)
        self._hands.join(_ENDING)
        jobs.requeue()
        jobs.journal.close()

    def _running(self) -> list[Making]:
        return [making for making in self._jobs.line if making.stage == "running"]

    def _check_open(self) -> None:
        if self._jobs.closing:
            raise Closing

    def _check_room(self) -> None:
        """Jobs beyond those that workers have, or could have at once, wait."""
        waiting = len(self._jobs) - min(len(self._jobs.line), self._workers.count)
        if waiting >= self._queue:
            raise QueueFull(waiting, retry_after=max(1, min(60, math.ceil(self._jobs.tally.usual_seconds()))))
