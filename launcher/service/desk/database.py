"""The journal's SQLite file: opened, made where there is none, put aside where it is damaged."""

from __future__ import annotations

import os
import sqlite3
import time
import warnings
from pathlib import Path

from shardc.hlo.errors import EnvironmentProblem

__all__ = ["OPEN", "open_database"]

#: Of the tables, and of what `Job` has in it.
_VERSION = 1

#: The jobs that are not over, as a condition.
OPEN = "state IN ('queued', 'running')"

#: ``job`` is all that a `Job` says, as JSON; the columns beside are what is asked for. ``task`` is the text of its
#: order until it is over, ``server`` has the job ('': nobody does), ``downs`` counts servers that went down while they
#: made it. ``claims`` says who makes what, ``servers`` who is there.
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS jobs (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL,
        finished REAL NOT NULL, job TEXT NOT NULL, task TEXT, server TEXT NOT NULL,
        downs INTEGER NOT NULL DEFAULT 0)""",
    f"CREATE INDEX IF NOT EXISTS open_jobs ON jobs (server) WHERE {OPEN}",
    "CREATE INDEX IF NOT EXISTS ended_jobs ON jobs (finished)",
    "CREATE INDEX IF NOT EXISTS failed_jobs ON jobs (key, finished) WHERE state = 'failed'",
    "CREATE TABLE IF NOT EXISTS servers (name TEXT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, server TEXT NOT NULL)",
)


def open_database(path: Path) -> sqlite3.Connection:
    """A connection that any thread may use, with all tables there; transactions are the caller's.

    A file that SQLite cannot read is put aside with a warning, one of another version is an `EnvironmentProblem`.
    Raises sqlite3.Error and OSError for what the disk refuses.
    """
    try:
        return _connect(path)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as e:
        aside = path.with_suffix(f".damaged-{time.time_ns()}")
        path.rename(aside)
        for part in ("-wal", "-shm"):
            Path(f"{path}{part}").unlink(missing_ok=True)
        warnings.warn(f"{path} is damaged ({e}): it is called {aside.name} now, its jobs are lost", stacklevel=2)
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    database = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        # A commit survives the end of the process; after a power failure the last ones may be gone, none half there.
        database.execute("PRAGMA synchronous = NORMAL")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _VERSION):
            raise EnvironmentProblem(
                f"the journal has version {version}, and this shardc reads version {_VERSION}",
                where=str(path),
                fix="end its servers, then give --state another folder or remove the file",
            )
        if version == 0:
            database.execute("BEGIN IMMEDIATE")
            for statement in (*_SCHEMA, f"PRAGMA user_version = {_VERSION}", "COMMIT"):
                database.execute(statement)
    except BaseException:
        database.close()
        raise
    return database
