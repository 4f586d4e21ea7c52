"""The journal: every job on disk before its client hears of it, so that none is lost when a server goes down.

One SQLite file in the state folder, for all servers of it. It says which server has a job and which makes what
(`claim`). Changes of state happen in it first: a job that is over stays as it is, whoever else wanted to end it.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shardc.hlo.codec import plain
from shardc.hlo.errors import EnvironmentProblem
from shardc.service.jobs import Job
from shardc.service.scheduler.database import OPEN, open_database
from shardc.service.scheduler.live_servers import LiveServers
from shardc.service.scheduler.refusals import Closing
from shardc.service.sqlite_file import transaction

__all__ = ["AdoptedJob", "Journal"]


@dataclass(frozen=True, slots=True)
class AdoptedJob:
    """A job of a server that is gone, the text of its order, and how many servers went down while they made it."""

    job: Job
    order: str
    downs: int


class Journal:
    """The journal of the folder ``state``, as one server uses it. Any thread may call it.

    What the disk refuses is an `EnvironmentProblem`, and `Closing` what is asked of it after its end. A file that is
    no journal any more is put aside with a warning (its jobs are lost), one of another version is an
    `EnvironmentProblem`.
    """

    def __init__(self, state: Path) -> None:
        self.path = state / "journal.sqlite"
        self._lock = threading.RLock()
        self._seen, self._closed = -1, False
        with _storage_errors(self.path), ExitStack() as opened:
            state.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._live_servers = opened.enter_context(closing(LiveServers(state / "servers")))
            self._database = opened.enter_context(closing(open_database(self.path)))
            self._database.execute("INSERT INTO servers (name) VALUES (?)", (self.server,))
            opened.pop_all()

    @property
    def server(self) -> str:
        """This server's name in the journal."""
        return self._live_servers.name

    def add(self, job: Job, order: str = "") -> None:
        """Insert a job of this server, unless it is there. The text of its order is kept until the job is over."""
        row = (job.id, job.key, job.state, job.finished, plain.to_json(job), order or None, self.server)
        with self._writing() as database:
            columns = "id, key, state, finished, job, task, server"
            database.execute(f"INSERT OR IGNORE INTO jobs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def note(self, jobs: Iterable[Job]) -> list[Job]:
        """Update ``jobs`` and return their present states: those that were over before stay as they were."""
        with self._writing() as database:
            return [job if _write(database, job) else _read(database, job.id) or job for job in jobs]

    def cancel(self, job_id: str) -> Job | None:
        """Cancel the job unless it is over; returns its state then."""
        with self._writing() as database:
            job = _read(database, job_id)
            if job is None or job.over:
                return job
            cancelled = replace(job, state="cancelled", finished=time.time())
            _write(database, cancelled)
            return cancelled

    def job(self, job_id: str) -> Job | None:
        with self._reading() as database:
            return _read(database, job_id)

    def jobs(self, limit: int) -> list[Job]:
        """The newest ``limit`` jobs of all servers, newest first."""
        with self._reading() as database:
            rows = database.execute("SELECT job FROM jobs ORDER BY seq DESC LIMIT ?", (limit,)).fetchall()
        return [plain.from_json(Job, text) for (text,) in rows]

    def cancelled_jobs(self, since: float) -> list[Job]:
        """The jobs of this server that somebody, maybe another server, has cancelled after ``since``."""
        with self._reading() as database:
            rows = database.execute(
                "SELECT job FROM jobs WHERE finished >= ? AND state = 'cancelled' AND server = ?", (since, self.server)
            ).fetchall()
        return [plain.from_json(Job, text) for (text,) in rows]

    def order(self, key: str) -> str:
        """The text of the order that open jobs of this server under ``key`` wait for; empty when there are none."""
        with self._reading() as database:
            row = database.execute(
                f"SELECT task FROM jobs WHERE server = ? AND key = ? AND {OPEN} LIMIT 1", (self.server, key)
            ).fetchone()
        return "" if row is None else str(row[0])

    def failure(self, key: str, since: float) -> Mapping[str, Any] | None:
        """The problem of the last job under ``key`` that failed after ``since``."""
        with self._reading() as database:
            row = database.execute(
                "SELECT job FROM jobs WHERE key = ? AND state = 'failed' AND finished >= ? ORDER BY finished DESC",
                (key, since),
            ).fetchone()
        return None if row is None else plain.from_json(Job, row[0]).problem

    def has_changed(self) -> bool:
        """Whether another server has written since the last call. (Nearly free.)"""
        with self._reading() as database:
            seen, self._seen = self._seen, database.execute("PRAGMA data_version").fetchone()[0]
            return bool(seen != self._seen)

    def claim(self, key: str) -> bool:
        """Whether this server may make ``key``: if so, no other may until `release`; if not, another one does."""
        with self._writing() as database:
            database.execute("INSERT OR IGNORE INTO claims (key, server) VALUES (?, ?)", (key, self.server))
            return _claimant(database, key) == self.server

    def is_claimed_by_other(self, key: str) -> bool:
        with self._reading() as database:
            return _claimant(database, key) not in (None, self.server)

    def release(self, key: str) -> None:
        with self._writing() as database:
            database.execute("DELETE FROM claims WHERE key = ? AND server = ?", (key, self.server))

    def others(self) -> list[str]:
        """The other servers that have opened this journal and not closed it: alive, or not taken over yet."""
        with self._reading() as database:
            rows = database.execute("SELECT name FROM servers WHERE name != ?", (self.server,)).fetchall()
        return [name for (name,) in rows]

    def adopt(self) -> Iterator[AdoptedJob]:
        """Take over the open jobs of servers that are gone: they come out queued, as jobs of this server."""
        with self._reading() as database:
            left = database.execute(f"SELECT 1 FROM jobs WHERE server = '' AND {OPEN} LIMIT 1").fetchone()
        if left:
            yield from self._take("")
        for name in self.others():
            with _storage_errors(self.path), self._live_servers.take_over(name) as gone:
                if gone:
                    yield from self._take(name)

    def forget(self, before: float, most: int) -> None:
        """Delete the jobs that ended ``before`` that time, and of those that are over all but the newest ``most``."""
        with self._writing() as database:
            database.execute(f"DELETE FROM jobs WHERE finished > 0 AND finished < ? AND NOT {OPEN}", (before,))
            kept = "SELECT seq FROM jobs ORDER BY seq DESC LIMIT 1 OFFSET ?"
            database.execute(f"DELETE FROM jobs WHERE seq <= ({kept}) AND NOT {OPEN}", (most,))

    def close(self) -> None:
        """Close the journal. Open jobs stay for the next server, and this end does not count as a crash."""
        with self._lock:
            try:
                with self._writing() as database:
                    for job, _, _ in _open_jobs(database, self.server):
                        _write(database, _fresh(job), server="")
                    _forget_server(database, self.server)
            finally:
                self._closed = True
                self._database.close()
                self._live_servers.close()

    def _take(self, server: str) -> list[AdoptedJob]:
        """Take over the open jobs of ``server``, which is gone; its name and its claims are removed."""
        taken = []
        with self._writing() as database:
            for job, order, downs in _open_jobs(database, server):
                down = int(job.state == "running")
                fresh = _fresh(job)
                _write(database, fresh, server=self.server, downs=down)
                taken.append(AdoptedJob(fresh, order, downs + down))
            if server:
                _forget_server(database, server)
        return taken

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _storage_errors(self.path):
            yield self._usable()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """All of the block or nothing of it, and no other server in between."""
        with self._lock, _storage_errors(self.path), transaction(self._usable()) as database:
            yield database

    def _usable(self) -> sqlite3.Connection:
        if self._closed:
            raise Closing
        return self._database


def _write(database: sqlite3.Connection, job: Job, server: str | None = None, downs: int = 0) -> bool:
    """Update ``job``, and its server unless that is None; False when the job was over before."""
    changed = database.execute(
        "UPDATE jobs SET key = ?, state = ?, finished = ?, job = ?, task = CASE WHEN ? THEN NULL ELSE task END,"
        f" server = COALESCE(?, server), downs = downs + ? WHERE id = ? AND {OPEN}",
        (job.key, job.state, job.finished, plain.to_json(job), job.over, server, downs, job.id),
    )
    return changed.rowcount > 0


def _read(database: sqlite3.Connection, job_id: str) -> Job | None:
    row = database.execute("SELECT job FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return None if row is None else plain.from_json(Job, row[0])


def _open_jobs(database: sqlite3.Connection, server: str) -> list[tuple[Job, str, int]]:
    rows = database.execute(
        f"SELECT job, task, downs FROM jobs WHERE server = ? AND {OPEN} ORDER BY seq", (server,)
    ).fetchall()
    return [(plain.from_json(Job, text), order or "", downs) for text, order, downs in rows]


def _fresh(job: Job) -> Job:
    """``job`` as it was before anybody began with it."""
    return replace(job, state="queued", started=0.0, progress={})


def _claimant(database: sqlite3.Connection, key: str) -> str | None:
    row = database.execute("SELECT server FROM claims WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def _forget_server(database: sqlite3.Connection, server: str) -> None:
    database.execute("DELETE FROM claims WHERE server = ?", (server,))
    database.execute("DELETE FROM servers WHERE name = ?", (server,))


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    """What the disk or SQLite refuse, as an error of the family."""
    try:
        yield
    except (sqlite3.Error, OSError) as e:
        raise EnvironmentProblem(
            f"the journal of the service's jobs cannot be used: {e}", where=str(path), fix="check the disk of --state"
        ) from e
