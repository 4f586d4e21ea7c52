"""The index: size and last use of every object in the store, in SQLite.

It says what to evict and nothing else; what is there, the store says itself. So an index that is missing or damaged is
made again from a listing, and one that lags behind (another server writes to the same store) is put right by the next.
Several processes may use it at once.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from shardc.hlo.errors import EnvironmentProblem
from shardc.service.sqlite_file import is_damage, open_sqlite, transaction

__all__ = ["StoreIndex"]

_T = TypeVar("_T")

_TABLE = """
CREATE TABLE IF NOT EXISTS things (
    place TEXT PRIMARY KEY,     -- entries/NAME OF KEY/ab/abcd..., programs/ab/abcd...
    bytes INTEGER NOT NULL,
    used REAL NOT NULL,         -- time.time()
    added REAL NOT NULL
) WITHOUT ROWID
"""


class StoreIndex:
    """The index in the file ``path``, made when it is missing or damaged; ``fresh`` tells that it was, until `agree`.

    Raises `EnvironmentProblem` when it cannot be read or written. Safe to use from several threads.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._last = 0.0
        self.fresh = False
        with self._problems():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._connection = self._open()

    def add(self, place: str, size: int) -> None:
        """``place`` has ``size`` bytes now, and was used just now."""
        now = self.now()
        text = "INSERT OR REPLACE INTO things VALUES (?, ?, ?, ?)"
        self._do(lambda c: c.execute(text, (place, size, now, now)))

    def remove(self, places: Iterable[str]) -> None:
        gone = [(place,) for place in places]
        self._do(lambda c: c.executemany("DELETE FROM things WHERE place = ?", gone))

    def use(self, times: Mapping[str, float]) -> None:
        """Things were used at ``times``."""
        rows = [(when, place) for place, when in times.items()]
        self._do(lambda c: c.executemany("UPDATE things SET used = max(used, ?) WHERE place = ?", rows))

    def now(self) -> float:
        """The time, never twice the same in this process: last uses have an order."""
        with self._lock:
            return self._now()

    def total(self) -> int:
        """Bytes of everything."""
        return int(self._do(lambda c: c.execute("SELECT coalesce(sum(bytes), 0) FROM things").fetchone())[0])

    def count(self, beginning: str) -> int:
        """How many places begin so."""
        text = "SELECT count(*) FROM things WHERE place >= ? AND place < ?"
        return int(self._do(lambda c: c.execute(text, (beginning, beginning + "\x7f")).fetchone())[0])

    def oldest(self) -> list[tuple[str, int]]:
        """Places and their bytes; what was not used for longest is first."""
        return self._do(lambda c: c.execute("SELECT place, bytes FROM things ORDER BY used, place").fetchall())

    def agree(self, listing: Mapping[str, tuple[int, float]], began: float) -> None:
        """Agree with the sizes and times of a ``listing`` that ``began`` then; what came later is left alone."""

        def agree(c: sqlite3.Connection) -> None:
            known = dict(c.execute("SELECT place, added FROM things"))
            gone = [(place,) for place, added in known.items() if place not in listing and added < began]
            c.executemany("DELETE FROM things WHERE place = ?", gone)
            sizes = [(size, place, size) for place, (size, _) in listing.items() if place in known]
            c.executemany("UPDATE things SET bytes = ? WHERE place = ? AND bytes <> ?", sizes)
            new = [(place, size, when, when) for place, (size, when) in listing.items() if place not in known]
            c.executemany("INSERT OR IGNORE INTO things VALUES (?, ?, ?, ?)", new)

        self._do(agree)
        self.fresh = False

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _now(self) -> float:
        self._last = max(time.time(), self._last + 1e-6)
        return self._last

    def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """One transaction; when the file turns out to be damaged, again with a new one."""
        with self._lock, self._problems():
            try:
                with transaction(self._connection) as connection:
                    return work(connection)
            except sqlite3.DatabaseError as e:
                if not is_damage(e):
                    raise
            self._connection.close()
            self._connection = self._open()
            with transaction(self._connection) as connection:
                return work(connection)

    def _open(self) -> sqlite3.Connection:
        return open_sqlite(self._path, self._prepare, lambda problem: self._path.unlink(missing_ok=True))

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'things'").fetchone():
            self.fresh = True
        connection.execute(_TABLE)

    @contextmanager
    def _problems(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as e:
            raise EnvironmentProblem(
                f"the index of the store cannot be used: {e}",
                where=str(self._path),
                fix="check the disk space, or name another folder: --state",
            ) from e
