"""Callbacks that are told of a job's changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import RLock

from shardc.service.jobs import Job

__all__ = ["Callback", "Watchers"]

log = logging.getLogger("shardc")

#: Gets a job after each change. It must return at once; one that raises is not called again.
Callback = Callable[[Job], None]


class Watchers:
    """Callbacks by job, called in the order of the changes: whoever changes a job holds ``lock``."""

    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        self._callbacks: dict[str, list[Callback]] = {}
        self._told: dict[str, Job] = {}

    def add(self, job: Job, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` with ``job`` now and after each change, until the function that this returns is called."""
        with self._lock:
            self._callbacks.setdefault(job.id, []).append(callback)
            self._told.setdefault(job.id, job)
            self._call(callback, job)
        return lambda: self._remove(job.id, callback)

    def notify(self, job: Job) -> None:
        """Call the callbacks of ``job``, unless they know this state already."""
        with self._lock:
            if self._told.get(job.id, job) != job:
                self._told[job.id] = job
                for callback in list(self._callbacks[job.id]):
                    self._call(callback, job)

    def job_ids(self) -> set[str]:
        """The ids of jobs that have callbacks."""
        with self._lock:
            return set(self._callbacks)

    def _call(self, callback: Callback, job: Job) -> None:
        try:
            callback(job)
        except Exception as e:
            log.warning("the watchers of job %s cannot be notified: %s", job.id, e)
            self._remove(job.id, callback)

    def _remove(self, job_id: str, callback: Callback) -> None:
        with self._lock:
            left = [c for c in self._callbacks.get(job_id, ()) if c is not callback]
            if left:
                self._callbacks[job_id] = left
            else:
                self._callbacks.pop(job_id, None)
                self._told.pop(job_id, None)
