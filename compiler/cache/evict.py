"""Evict: the cache folder keeps its size; what was not used for longest goes first.

Reading an entry marks it as used. Ranks and jobs may do all this at the same time, on network file systems too: a
file that has gone is a miss for its reader, and a file that another process has removed already counts as removed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["evict", "evict_now_and_then", "mark_used"]

#: Folders below the cache folder whose files can be made again.
_FOLDERS = ("executables", "objects", "sources", "sweeps")

#: After evicting, this share of the limit is in use.
_LEFT = 0.75

#: Seconds between two looks at the whole folder, and between two marks of an entry.
_EVERY, _MARK = 600.0, 3600.0


def mark_used(path: Path) -> None:
    """Note that an entry was read; at most once an hour."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > _MARK:
            os.utime(path)


def evict_now_and_then(folder: Path, limit: int) -> None:
    """`evict`, unless somebody has looked in the last ten minutes: that costs a system call for each entry."""
    stamp = folder / "evicted"
    with suppress(OSError):
        if stamp.exists() and abs(time.time() - stamp.stat().st_mtime) < _EVERY:
            return
        stamp.touch()
        evict(folder, limit)


def evict(folder: Path, limit: int) -> None:
    """Remove the entries that were not used for longest until at most ``limit`` bytes are left (0: no limit)."""
    found = sorted(_entries(folder)) if limit else []
    total = sum(nbytes for _, nbytes, _ in found)
    if total <= limit:
        return
    for _, nbytes, path in found:
        if total <= limit * _LEFT:
            return
        for gone in (path, path.with_suffix(".lock")):
            with suppress(OSError):
                gone.unlink()
        total -= nbytes


def _entries(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Time of last use, bytes on disk and path of each entry, also of what a killed process left half written."""
    for part in _FOLDERS:
        with suppress(OSError):
            for subfolder in os.scandir(folder / part):
                with suppress(OSError):
                    for entry in os.scandir(subfolder.path):
                        if not entry.name.endswith(".lock"):
                            with suppress(OSError):
                                found = entry.stat()
                                yield found.st_mtime, -(-found.st_size // 4096) * 4096, Path(entry.path)
