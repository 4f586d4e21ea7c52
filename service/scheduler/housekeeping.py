"""Housekeeping: takes over the jobs of servers that went down, follows what other servers did, forgets old jobs."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace

from shardc.hlo.errors import EnvironmentProblem, RunError, ShardcError
from shardc.launcher.executors.problems import from_problem
from shardc.service.jobs import Job
from shardc.service.orders import from_json, order_key
from shardc.service.scheduler.journal import AdoptedJob
from shardc.service.scheduler.open_jobs import OpenJobs, TaskOutcome
from shardc.service.scheduler.run_task import failure_of, programs_of
from shardc.service.scheduler.worker_threads import WorkerThreads
from shardc.service.store.store import Store

__all__ = ["Housekeeping", "Retention"]

log = logging.getLogger("shardc")

#: How many servers may go down while they make a job, before it is taken for the cause.
_MOST_DOWNS = 3
#: Seconds between two searches for jobs to forget, and by which clocks and commits of servers may differ.
_FORGETTING, _CLOCK_SKEW = 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Retention:
    """Jobs that are over are forgotten after ``seconds``, or when there are more than ``jobs``."""

    seconds: float = 86_400.0
    jobs: int = 10_000


class Housekeeping:
    """Repeats its duties every ``pause`` seconds in a thread of its own, from `start` to `stop`."""

    def __init__(
        self, jobs: OpenJobs, store: Store, threads: WorkerThreads, retention: Retention, pause: float
    ) -> None:
        self._jobs, self._store, self._worker_threads = jobs, store, threads
        self._retention, self._pause = retention, pause
        self._journal = jobs.journal
        self._followed, self._forgot, self._ended = time.time(), float("-inf"), 0
        self._published: dict[str, Job] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shardc-scheduler-housekeeping", daemon=True)

    def start(self) -> None:
        """Take over jobs of servers that are gone, then start the thread."""
        self.adopt()
        self._thread.start()

    def stop(self, seconds: float) -> None:
        self._over.set()
        self._thread.join(seconds)

    def adopt(self) -> None:
        """Take over the jobs of servers that are gone."""
        for adopted in self._journal.adopt():
            try:
                self._requeue(adopted)
            except Exception as e:
                self._jobs.end([replace(adopted.job, state="failed", problem=failure_of(e))])

    def _requeue(self, adopted: AdoptedJob) -> None:
        self._jobs.counters.requeued += 1
        order = from_json(adopted.order)
        if adopted.downs >= _MOST_DOWNS:
            what = f"the service stopped {adopted.downs} times during this order, and will not try it again"
            raise RunError(what, fix="submit it again if something else stopped the service")
        with ExitStack() as leases:
            programs = programs_of(order)
            leases.enter_context(self._store.lease(*programs))
            # Another version of shardc may have written the order; the key has to be this version's.
            job = replace(adopted.job, key=order_key(order))
            self._journal.note([job])
            self._jobs.attach(job, programs, leases)

    def _run(self) -> None:
        duties = (
            self._jobs.save,
            self.adopt,
            self._worker_threads.start_missing,
            self._follow_others,
            self._put_back,
            self._publish_progress,
            self._forget,
        )
        while not self._over.wait(self._pause):
            for duty in duties:
                try:
                    duty()
                except ShardcError as e:
                    log.warning("%s", e)
                except Exception as e:  # a fault in one duty is no reason to leave the others undone
                    log.error("a fault of the service", exc_info=e)

    def _follow_others(self) -> None:
        """Stop jobs that other servers have cancelled; tell watchers of the progress of other servers' jobs."""
        if not self._journal.has_changed():
            return
        since, self._followed = self._followed, time.time()
        for job in self._journal.cancelled_jobs(since - _CLOCK_SKEW):
            if self._jobs.task_of(job.id) is not None:
                _, abandoned = self._jobs.cancel(job.id)
                if abandoned is not None:
                    self._worker_threads.stop([abandoned])
        for job_id in self._jobs.watchers.job_ids():
            with self._jobs.lock:
                job_now = self._jobs.find(job_id)
                if job_now is not None:
                    self._jobs.watchers.notify(job_now)

    def _put_back(self) -> None:
        """Finish or put back tasks that waited for another server, when that has ended its work, is gone, or hangs."""
        with self._jobs.lock:
            waiting = [task for task in self._jobs.queue if task.stage == "other_server"]
        for task in waiting:
            if time.monotonic() < task.waits_until and self._journal.is_claimed_by_other(task.key):
                continue
            entry = self._store.find(task.key)
            problem = None if entry else self._journal.failure(task.key, task.arrived)
            if entry is not None:
                self._jobs.finish(task, TaskOutcome(entry, cached=True))
            elif problem is not None and not isinstance(from_problem(problem), EnvironmentProblem):
                self._jobs.finish(task, TaskOutcome(problem=problem))
            else:
                self._jobs.put_back(task)

    def _publish_progress(self) -> None:
        """Write the progress of running jobs into the journal, for clients of other servers."""
        if not self._journal.others():
            return
        with self._jobs.lock:
            running = {j.id: j for task in self._jobs.queue if task.stage == "running" for j in task.jobs.values()}
            news = [job for job in running.values() if self._published.get(job.id) != job]
            if news:
                self._journal.note(news)
            self._published = running

    def _forget(self) -> None:
        ended = sum(self._jobs.counters.ended.values())
        if time.monotonic() - self._forgot > _FORGETTING or ended - self._ended > self._retention.jobs // 4:
            self._forgot, self._ended = time.monotonic(), ended
            self._journal.forget(time.time() - self._retention.seconds, self._retention.jobs)
