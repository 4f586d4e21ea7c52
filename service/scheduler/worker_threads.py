"""The threads between the queue and the workers, one for each worker: each takes the next task and carries it out.

Queued tasks come first. A thread that finds the queue empty does one piece of a shared order that another thread
carries out, and looks again. So a shared order has all workers that no task waits for, and always the worker of its own
thread; and a new task waits for the end of one piece at most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.running import Workers
from shardc.service.scheduler.open_jobs import OpenJobs, TaskOutcome
from shardc.service.scheduler.queue import TaskInFlight
from shardc.service.scheduler.run_order import OrderRunner
from shardc.service.scheduler.run_task import failure_of
from shardc.service.store.store import Store

__all__ = ["WorkerThreads"]

#: Seconds, beyond what the work itself may take, until another server that makes the same counts as hanging.
_SLACK = 60.0


class WorkerThreads:
    """They take tasks of ``jobs`` until that is closing, and put into ``store`` what ``workers`` make."""

    def __init__(self, jobs: OpenJobs, store: Store, workers: Workers, limits: TaskLimits) -> None:
        self._jobs, self._store, self._workers, self._limits = jobs, store, workers, limits
        self._runner = OrderRunner(jobs, store, workers, limits)
        self._threads: list[threading.Thread] = []

    def start_missing(self) -> None:
        """Start threads until there are as many as workers: a Dask cluster may grow."""
        while len(self._threads) < max(1, self._workers.count):
            name = f"shardc-scheduler-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._serve, name=name, daemon=True))
            self._threads[-1].start()

    def stop(self, tasks: Iterable[TaskInFlight]) -> None:
        """Stop ``tasks``, which are `TaskInFlight.unwanted`."""
        for task in tasks:
            if task.stage != "running":
                task.release_leases()
            with self._jobs.lock:
                running = list(task.running)
            for one in running:
                one.stop()

    def join(self, seconds: float) -> None:
        """Wait for the threads to end; ``jobs`` is closing."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _serve(self) -> None:
        while (work := self._jobs.next()) is not None:
            if isinstance(work, TaskInFlight):
                self._carry_out(work)
            else:
                self._runner.run_piece(*work)

    def _carry_out(self, task: TaskInFlight) -> None:
        try:
            outcome = self._make(task)
        except Exception as e:
            outcome = TaskOutcome(problem=failure_of(e))
        if outcome is not None:
            self._jobs.finish(task, outcome)

    def _make(self, task: TaskInFlight) -> TaskOutcome | None:
        """The result of ``task``; None: it waits for another server."""
        alone = time.monotonic() > task.waits_until
        if not self._jobs.journal.claim(task.key) and not alone:
            self._jobs.wait_for_other_server(task, self._limits.seconds + _SLACK)
            return None
        entry = self._store.find(task.key)
        if entry is not None:
            return TaskOutcome(entry, cached=True)
        order = self._jobs.start(task)
        if not order:
            return TaskOutcome()
        kind, began = task.kind, time.monotonic()
        with self._jobs.lock:
            self._jobs.counters.tasks[kind] += 1
        try:
            files, facts = self._runner.run(task, order)
        finally:
            with self._jobs.lock:
                self._jobs.counters.add_seconds(kind, time.monotonic() - began)
        return TaskOutcome(self._store.put(task.key, files, facts))
