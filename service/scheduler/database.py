"""The journal's tables."""

from __future__ import annotations

import logging
import sqlite3
import time
from pathlib import Path

from shardc.hlo.errors import EnvironmentProblem
from shardc.service.sqlite_file import open_sqlite, transaction

__all__ = ["OPEN", "open_database"]

log = logging.getLogger("shardc")

#: Of the tables, and of what `Job` has in it.
_VERSION = 1

#: The jobs that are not over, as a condition.
OPEN = "state IN ('queued', 'running')"

#: ``job`` is all that a `Job` says, as JSON; the columns beside are what is asked for. ``task`` is the text of its
#: order until it is over, ``server`` has the job ('': nobody does), ``downs`` counts servers that went down while they
#: made it. ``claims`` has the server that makes each key, ``servers`` those that have the journal open.
_SCHEMA = (
    """CREATE TABLE jobs (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL,
        finished REAL NOT NULL, job TEXT NOT NULL, task TEXT, server TEXT NOT NULL,
        downs INTEGER NOT NULL DEFAULT 0)""",
    f"CREATE INDEX open_jobs ON jobs (server) WHERE {OPEN}",
    "CREATE INDEX ended_jobs ON jobs (finished)",
    "CREATE INDEX failed_jobs ON jobs (key, finished) WHERE state = 'failed'",
    "CREATE TABLE servers (name TEXT PRIMARY KEY)",
    "CREATE TABLE claims (key TEXT PRIMARY KEY, server TEXT NOT NULL)",
    f"PRAGMA user_version = {_VERSION}",
)


def open_database(path: Path) -> sqlite3.Connection:
    """A connection with all tables there, see `open_sqlite`; a damaged file is put aside with a warning.

    Raises `EnvironmentProblem` for a file of another version.
    """

    def prepare(database: sqlite3.Connection) -> None:
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            with transaction(database):
                for statement in _SCHEMA:
                    database.execute(statement)
        elif version != _VERSION:
            raise EnvironmentProblem(
                f"the journal has version {version}, but this shardc reads version {_VERSION}",
                where=str(path),
                fix="stop its servers, then give --state another folder, or remove the file",
            )

    def put_away(why: str) -> None:
        aside = path.with_suffix(f".damaged-{time.time_ns()}")
        path.rename(aside)
        log.warning("%s is damaged (%s): it was renamed to %s, and its jobs are lost", path, why, aside.name)

    return open_sqlite(path, prepare, put_away)
