"""Locks of files. The system frees them when their process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from pathlib import Path

__all__ = ["Lock"]

#: Seconds between two attempts to take a lock.
_PAUSE = 0.02


class Lock:
    """Holds the file ``path``, made where it is missing, until `release` or as long as it is referenced.

    Other processes and other objects of this one wait up to ``wait`` seconds. Raises `BlockingIOError` where the file
    is held by another, and OSError where files cannot be locked.
    """

    def __init__(self, path: Path, wait: float = 0.0) -> None:
        self._path = path
        deadline = time.monotonic() + wait
        while (handle := _taken(path, is_last=time.monotonic() >= deadline)) is None:
            time.sleep(_PAUSE)
        self._handle = handle
        self._close = weakref.finalize(self, os.close, handle)

    def release(self, *, remove: bool = True) -> None:
        """Free the file, and remove it before that unless it has another name by now. A second call does nothing."""
        if not self._close.alive:
            return
        try:
            if remove:
                self._path.unlink(missing_ok=True)
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)  # Also for children that were forked meanwhile.
            self._close()


def _taken(path: Path, *, is_last: bool) -> int | None:
    """A locked file, or None where it is to be tried again."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), path.stat()):
            return handle
    except FileNotFoundError:
        pass
    except BlockingIOError:
        if is_last:
            os.close(handle)
            raise
    except BaseException:
        os.close(handle)
        raise
    # Who held it has removed it, or holds it still.
    os.close(handle)
    return None
