"""What a server does now and then: takes over the jobs of servers that went down, hears what others did, tidies up."""

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
from shardc.service.scheduler.journal import Adopted
from shardc.service.scheduler.open_jobs import OpenJobs, Outcome
from shardc.service.scheduler.run_task import failure_of, programs_of
from shardc.service.scheduler.worker_threads import Hands
from shardc.service.store.store import Store

__all__ = ["Keeping", "Rounds"]

log = logging.getLogger("shardc")

#: How many servers may go down while they make a job, before it is taken for the cause.
_MOST_DOWNS = 3
#: Seconds between two looks for jobs to forget, and by which clocks and commits of servers may be apart.
_FORGETTING, _APART = 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Keeping:
    """Jobs that are over are forgotten after ``seconds``, or when there are more than ``jobs``."""

    seconds: float = 86_400.0
    jobs: int = 10_000


class Rounds:
    """A round every ``pause`` seconds in a thread of its own, from `start` to `stop`."""

    def __init__(self, jobs: OpenJobs, store: Store, hands: Hands, keeping: Keeping, pause: float) -> None:
        self._jobs, self._store, self._hands, self._keeping, self._pause = jobs, store, hands, keeping, pause
        self._journal = jobs.journal
        self._heard, self._forgot, self._ended = time.time(), float("-inf"), 0
        self._shown: dict[str, Job] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go, name="shardc-desk-rounds", daemon=True)

    def start(self) -> None:
        """The first look for jobs to take over is done when this returns."""
        self.adopt()
        self._thread.start()

    def stop(self, seconds: float) -> None:
        self._over.set()
        self._thread.join(seconds)

    def adopt(self) -> None:
        """The jobs of servers that are gone are this one's."""
        for adopted in self._journal.adopt():
            try:
                self._enter(adopted)
            except Exception as e:
                self._jobs.end([replace(adopted.job, state="failed", problem=failure_of(e))])

    def _enter(self, adopted: Adopted) -> None:
        self._jobs.tally.requeued += 1
        order = from_json(adopted.order)
        if adopted.downs >= _MOST_DOWNS:
            what = f"the service went down {adopted.downs} times while it made this, and does not try again"
            raise RunError(what, fix="submit it again if the service was ended by something else")
        with ExitStack() as leases:
            programs = programs_of(order)
            leases.enter_context(self._store.using(*programs))
            # Another version of shardc may have written the order down; its key says what this one makes of it.
            job = replace(adopted.job, key=order_key(order))
            self._journal.note([job])
            self._jobs.enter(job, programs, leases)

    def _go(self) -> None:
        duties = (self._jobs.save, self.adopt, self._hands.hire, self._hear, self._bring_back, self._show, self._forget)
        while not self._over.wait(self._pause):
            for duty in duties:
                try:
                    duty()
                except ShardcError as e:
                    log.warning("%s", e)
                except Exception as e:  # a fault in one duty is no reason to leave the others undone
                    log.error("a fault of the service", exc_info=e)

    def _hear(self) -> None:
        """Other servers have cancelled jobs of ours, or got on with jobs that are watched here."""
        if not self._journal.changed():
            return
        heard, self._heard = self._heard, time.time()
        for job in self._journal.cancelled(heard - _APART):
            if self._jobs.making_of(job.id) is not None:
                _, abandoned = self._jobs.cancel(job.id)
                if abandoned is not None:
                    self._hands.stop([abandoned])
        for job_id in self._jobs.watchers.watched():
            with self._jobs.lock:
                seen = self._jobs.find(job_id)
                if seen is not None:
                    self._jobs.watchers.tell(seen)

    def _bring_back(self) -> None:
        """Another server is through with what it made, is gone, or hangs."""
        with self._jobs.lock:
            elsewhere = [making for making in self._jobs.line if making.stage == "elsewhere"]
        for making in elsewhere:
            if time.monotonic() < making.waits_until and self._journal.claimed_elsewhere(making.key):
                continue
            entry = self._store.find(making.key)
            problem = None if entry else self._journal.failure(making.key, making.place)
            if entry is not None:
                self._jobs.finish(making, Outcome(entry, cached=True))
            elif problem is not None and not isinstance(from_problem(problem), EnvironmentProblem):
                self._jobs.finish(making, Outcome(problem=problem))
            else:
                self._jobs.bring_back(making)

    def _show(self) -> None:
        """How far running jobs are, for those who ask other servers."""
        if not self._journal.others():
            return
        with self._jobs.lock:
            running = {j.id: j for m in self._jobs.line if m.stage == "running" for j in m.jobs.values()}
            news = [job for job in running.values() if self._shown.get(job.id) != job]
            if news:
                self._journal.note(news)
            self._shown = running

    def _forget(self) -> None:
        ended = sum(self._jobs.tally.ended.values())
        if time.monotonic() - self._forgot > _FORGETTING or ended - self._ended > self._keeping.jobs // 4:
            self._forgot, self._ended = time.monotonic(), ended
            self._journal.forget(time.time() - self._keeping.seconds, self._keeping.jobs)
