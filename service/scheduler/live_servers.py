"""Which servers of a state folder live: each holds the lock of a file while it does.

The kernel frees the lock when a process ends, however it ends. So a server that was killed is known to be dead at
once, and one that is merely slow is never taken for dead.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

__all__ = ["Presence"]


class Presence:
    """This server among the others of ``folder``; ``name`` is new each time. Raises OSError where locks fail."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.name = secrets.token_hex(8)
        self._folder = folder
        self._lock = _lock_file(self._path(self.name))
        self._lock.acquire(blocking=False)

    @contextmanager
    def taking_over(self, name: str) -> Iterator[bool]:
        """Is the server ``name`` dead? Then nobody else finds that out while the block runs, and its file goes."""
        lock = _lock_file(self._path(name))
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            yield False
            return
        try:
            yield True
            self._path(name).unlink(missing_ok=True)
        finally:
            lock.release()

    def close(self) -> None:
        self._path(self.name).unlink(missing_ok=True)
        self._lock.release()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"


def _lock_file(path: Path) -> filelock.BaseFileLock:
    """One that any thread may release: whoever closes the desk is not always who opened it."""
    return filelock.FileLock(path, mode=0o600, thread_local=False)
