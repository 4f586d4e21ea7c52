"""The jobs of a server that are not over, and what they wait for: whatever becomes of a job happens here.

A change is written into the journal, then made, then told to those who watch, all under one lock; so that everybody
sees the same order of things.
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
from shardc.service.jobs import Entry, Job
from shardc.service.scheduler.journal import Journal
from shardc.service.scheduler.queue import Line, Making
from shardc.service.scheduler.refusals import Closing
from shardc.service.scheduler.shared_orders import Shared
from shardc.service.scheduler.statistics import Statistics, Tally
from shardc.service.scheduler.watchers import Watchers
from shardc.service.workers.pieces import Piece

__all__ = ["OpenJobs", "Outcome"]

log = logging.getLogger("shardc")

#: Jobs that are remembered here while the disk is full.
_MOST_UNSAVED = 10_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a making ended in: an entry (``cached``: that was there already), or a problem."""

    entry: Entry | None = None
    problem: Mapping[str, Any] | None = None
    cached: bool = False


class OpenJobs:
    """Who does several things in one go holds ``lock``; ``turn`` is notified when the line or what runs changes."""

    def __init__(self, journal: Journal) -> None:
        self.lock = threading.RLock()
        self.turn = threading.Condition(self.lock)
        self.journal = journal
        self.line = Line()
        self.watchers = Watchers(self.lock)
        self.tally = Tally()
        self.closing = False
        self._shared: list[Shared] = []
        self._makings: dict[str, Making] = {}
        self._unsaved: dict[str, Job] = {}
        self._unreleased: set[str] = set()

    def __len__(self) -> int:
        return len(self._makings)

    def making_of(self, job_id: str) -> Making | None:
        """What the job waits for; None for jobs that are over, and other servers'."""
        return self._makings.get(job_id)

    def find(self, job_id: str) -> Job | None:
        """The job as it is now; None when no server of this state knows it."""
        with self.lock:
            making = self._makings.get(job_id)
            if making is not None:
                return self.shown(making, making.jobs[job_id])
            return self._unsaved.get(job_id) or self.journal.job(job_id)

    def newest(self, limit: int) -> list[Job]:
        """Newest first."""
        written = {job.id: job for job in self.journal.jobs(limit)}
        with self.lock:
            found = written | self._unsaved
            places = self.line.places()
            for job_id in self._makings.keys() & found.keys():
                making = self._makings[job_id]
                found[job_id] = replace(making.jobs[job_id], position=places.get(making.key, 0))
            return sorted(found.values(), key=lambda job: job.created, reverse=True)[:limit]

    def shown(self, making: Making, job: Job) -> Job:
        """With its position in the line."""
        return replace(job, position=self.line.position(making))

    # Jobs come.

    def enter(self, job: Job, programs: tuple[str, ...], leases: ExitStack) -> Job:
        """Have ``job``, which is in the journal, wait for what is under way, or for a new making at its place in the
        line, which keeps the ``leases`` of its ``programs``."""
        with self.lock:
            making = self.line.find(job.key)
            if making is None:
                making = Making(job.key, job.kind, programs, job.created, leases=leases.pop_all())
                self.line.add(making)
                self.turn.notify_all()
            else:
                self.tally.joined += 1
                if making.stage == "running":
                    job = replace(job, state="running", started=time.time())
                    self.journal.note([job])
            making.jobs[job.id] = job
            self._makings[job.id] = making
            return self.shown(making, job)

    def enter_over(self, job: Job) -> None:
        """A new job that is over already. It needs nothing any more, so a disk that refuses it is no obstacle."""
        with self.lock:
            try:
                self.journal.add(job)
            except Closing:
                raise
            except ShardcError as e:
                self._save_later([job], e)
            self.tally.over(job)

    # They go on.

    def next(self) -> Making | tuple[Shared, Piece] | None:
        """What a hand does next, once there is something: the first of the line, or else a piece of the order that has
        the fewest hands. None at the end."""
        with self.turn:
            while not self.closing or self._shared:
                making = None if self.closing else self.line.next()
                if making is not None:
                    self._tell_waiting()
                    return making
                for shared in sorted(self._shared, key=lambda s: s.going):
                    piece = shared.take()
                    if piece is not None:
                        return shared, piece
                self.turn.wait()
            return None

    @contextmanager
    def sharing(self, shared: Shared) -> Iterator[None]:
        """While this goes on, all hands may take its pieces."""
        with self.turn:
            self._shared.append(shared)
        try:
            yield
        finally:
            with self.turn:
                self._shared.remove(shared)
                self.turn.notify_all()

    def put_aside(self, making: Making, seconds: float) -> None:
        """Another server makes it, and may take so many seconds."""
        with self.lock:
            if not making.unwanted:
                making.waits_until = min(making.waits_until, time.monotonic() + seconds)
                self.line.put_aside(making)
                self._change(making, progress={"stage": "elsewhere"})
                return
        making.let_go()

    def bring_back(self, making: Making) -> None:
        """The other server has not made it."""
        with self.lock:
            if making.stage == "elsewhere" and not making.unwanted:
                self.line.bring_back(making)
                self._change(making, progress={})
                self.turn.notify_all()

    def begin(self, making: Making) -> str:
        """A worker will have it: the text of the order, empty when nobody wants it any more."""
        with self.lock:
            if making.unwanted:
                return ""
            begun: dict[str, Any] = {"state": "running", "started": time.time(), "progress": {}}
            self.journal.note(replace(job, **begun) for job in making.jobs.values())
            self._change(making, **begun)
            return self.journal.order(making.key)

    def hear(self, making: Making, news: Mapping[str, Any]) -> None:
        """A worker tells how far it is."""
        with self.lock:
            self._change(making, progress=dict(news))

    # They end.

    def finish(self, making: Making, outcome: Outcome) -> None:
        """``making`` is over, for all who still wait for it."""
        with self.turn:
            if not making.unwanted:
                self.end([_ended(job, outcome) for job in making.jobs.values()])
                self.line.drop(making)
            if self.line.find(making.key) is None:
                self._release(making.key)
            self.turn.notify_all()
        making.let_go()

    def cancel(self, job_id: str) -> tuple[Job | None, Making | None]:
        """The job after nobody wants it any more, or as it was when it was over; and a making for nobody, to be
        stopped."""
        with self.turn:
            making = self._makings.get(job_id)
            if making is None:
                job = self._unsaved.get(job_id) or self.journal.cancel(job_id)
                if job is not None:
                    self.watchers.tell(job)
                return job, None
            (job,) = self.end([replace(making.jobs[job_id], state="cancelled")])
            if making.jobs or making.unwanted:
                return job, None
            making.unwanted = True
            self.line.drop(making)
            self._tell_waiting()
            self.turn.notify_all()
            return job, making

    def end(self, jobs: Iterable[Job]) -> list[Job]:
        """``jobs`` are over; as they are then, for another server may have cancelled them before."""
        with self.lock:
            over = [replace(job, finished=time.time(), position=0) for job in jobs]
            try:
                over = self.journal.note(over)
            except ShardcError as e:
                self._save_later(over, e)
            for job in over:
                making = self._makings.pop(job.id, None)
                if making is not None:
                    making.jobs.pop(job.id, None)
                self.tally.over(job)
                self.watchers.tell(job)
            return over

    def save(self) -> None:
        """Write down what the disk refused before."""
        with self.lock:
            for job in list(self._unsaved.values()):
                self.journal.add(job)
                self.journal.note([job])
                del self._unsaved[job.id]
            for key in list(self._unreleased):
                if self.line.find(key) is None:
                    self.journal.release(key)
                self._unreleased.discard(key)

    # All of them.

    def requeue(self) -> None:
        """Leave all that is open to whoever opens the journal next."""
        with self.lock:
            for making in self.line:
                making.let_go()
                self._change(making, state="queued", started=0.0, progress={})

    def statistics(self) -> Statistics:
        with self.lock:
            stages = [(making.stage, len(making.jobs)) for making in self.line]
            first, tally = self.line.first(), self.tally
            return Statistics(
                queued=sum(n for stage, n in stages if stage == "waiting"),
                running=sum(n for stage, n in stages if stage == "running"),
                elsewhere=sum(n for stage, n in stages if stage == "elsewhere"),
                oldest=0.0 if first is None else max(0.0, time.time() - first.place),
                makings=dict(tally.makings),
                seconds=dict(tally.seconds),
                ended=dict(tally.ended),
                cached=dict(tally.cached),
                joined=tally.joined,
                requeued=tally.requeued,
            )

    def _change(self, making: Making, **changes: Any) -> None:
        for job in list(making.jobs.values()):
            making.jobs[job.id] = replace(job, **changes)
            self.watchers.tell(self.shown(making, making.jobs[job.id]))

    def _tell_waiting(self) -> None:
        """Those who wait have moved up."""
        places = self.line.places()
        for job_id in self.watchers.watched():
            making = self._makings.get(job_id)
            if making is not None:
                self.watchers.tell(replace(making.jobs[job_id], position=places.get(making.key, 0)))

    def _release(self, key: str) -> None:
        """Other servers may make ``key``."""
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


def _ended(job: Job, outcome: Outcome) -> Job:
    return replace(
        job,
        state="failed" if outcome.entry is None else "done",
        started=job.started or time.time(),
        entry=outcome.entry,
        problem=outcome.problem,
        cached=outcome.cached,
    )
