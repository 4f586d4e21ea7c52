"""Which servers of a state folder are alive: each holds the lock of a file while it runs.

The kernel frees the lock when a process ends, however it ends. So a server that was killed is known to be dead at
once, and a slow one is never taken for dead.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

__all__ = ["LiveServers"]


class LiveServers:
    """This server's lock in ``folder``, and tests of the others'; ``name`` is new each time. Raises OSError where locks
    fail."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.name = secrets.token_hex(8)
        self._folder = folder
        self._lock = _lock_file(self._path(self.name))
        self._lock.acquire(blocking=False)

    @contextmanager
    def take_over(self, name: str) -> Iterator[bool]:
        """Yield whether the server ``name`` is dead. If so, no other server learns it within the block, and the file of
        the dead one is removed at its end."""
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
    """A lock that any thread may release: the scheduler may be closed by another thread than opened it."""
    return filelock.FileLock(path, mode=0o600, thread_local=False)
