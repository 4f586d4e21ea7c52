"""SQLite files that several processes share, and that may be found damaged."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

__all__ = ["is_damage", "open_sqlite", "transaction"]

#: Seconds that a process waits for another's transaction.
_LOCK_TIMEOUT = 30.0
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def open_sqlite(
    path: Path, prepare: Callable[[sqlite3.Connection], None], put_away: Callable[[str], None]
) -> sqlite3.Connection:
    """A connection to ``path``, made (for its owner alone) where it is missing, after ``prepare`` of its tables.

    A damaged file is checked for here: ``put_away`` hears what is wrong, has to move or remove it, and a new one takes
    its place. One process at a time opens it. Any thread may use the connection; transactions are the caller's (see
    `transaction`). A commit survives the end of the process; after a power failure the last ones may be gone, none
    half there. Raises sqlite3.Error and OSError.
    """
    with filelock.FileLock(f"{path}.lock", timeout=_LOCK_TIMEOUT):
        try:
            return _connect(path, prepare)
        except sqlite3.DatabaseError as e:
            if not is_damage(e):
                raise
            put_away(str(e))
        for end in ("-wal", "-shm"):
            Path(f"{path}{end}").unlink(missing_ok=True)
        return _connect(path, prepare)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All of the block or nothing of it, and no other process in between."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the error means that the file is no SQLite file, or no longer one."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def _connect(path: Path, prepare: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=_LOCK_TIMEOUT, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            error = sqlite3.DatabaseError(found)
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection
