"""The threads between the line and the workers, one for each worker: takes the next making and sees it through.

Makings come first, in their order. A hand that finds the line empty does a piece of an order that another hand sees
through, and looks again. So an order in pieces has all workers that nobody else wants, and always the one of its own
hand; and of a hand that helps, who comes into the line has to wait for the end of one piece only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from shardc.launcher.executors.limits import Limits
from shardc.launcher.executors.running import Workers
from shardc.service.scheduler.open_jobs import OpenJobs, Outcome
from shardc.service.scheduler.queue import Making
from shardc.service.scheduler.run_order import Carrying
from shardc.service.scheduler.run_task import failure_of
from shardc.service.store.store import Store

__all__ = ["Hands"]

#: Seconds, beyond what the work itself may take, until another server that makes the same is taken to hang.
_SLACK = 60.0


class Hands:
    """They take from the line of ``jobs`` until that is closing, and put into the store what ``workers`` make."""

    def __init__(self, jobs: OpenJobs, store: Store, workers: Workers, limits: Limits) -> None:
        self._jobs, self._store, self._workers, self._limits = jobs, store, workers, limits
        self._carrying = Carrying(jobs, store, workers, limits)
        self._threads: list[threading.Thread] = []

    def hire(self) -> None:
        """Have as many threads as there are workers now."""
        while len(self._threads) < max(1, self._workers.count):
            name = f"shardc-desk-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._serve, name=name, daemon=True))
            self._threads[-1].start()

    def stop(self, makings: Iterable[Making]) -> None:
        """End work that is `Making.unwanted`."""
        for making in makings:
            if making.stage != "running":
                making.let_go()
            with self._jobs.lock:
                running = list(making.running)
            for task in running:
                task.stop()

    def join(self, seconds: float) -> None:
        """Wait for the threads after the line is closed."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _serve(self) -> None:
        while (found := self._jobs.next()) is not None:
            if isinstance(found, Making):
                self._see_through(found)
            else:
                self._carrying.do(*found)

    def _see_through(self, making: Making) -> None:
        try:
            outcome = self._make(making)
        except Exception as e:
            outcome = Outcome(problem=failure_of(e))
        if outcome is not None:
            self._jobs.finish(making, outcome)

    def _make(self, making: Making) -> Outcome | None:
        """What becomes of ``making``; None: it waits for another server."""
        alone = time.monotonic() > making.waits_until
        if not self._jobs.journal.claim(making.key) and not alone:
            self._jobs.put_aside(making, self._limits.seconds + _SLACK)
            return None
        entry = self._store.find(making.key)
        if entry is not None:
            return Outcome(entry, cached=True)
        order = self._jobs.begin(making)
        if not order:
            return Outcome()
        kind, began = making.kind, time.monotonic()
        with self._jobs.lock:
            self._jobs.tally.makings[kind] += 1
        try:
            files, facts = self._carrying.carry_out(making, order)
        finally:
            with self._jobs.lock:
                self._jobs.tally.made(kind, time.monotonic() - began)
        return Outcome(self._store.put(making.key, files, facts))
