"""Files that an MPI library leaves in shared memory when its processes are killed."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["forget_shared_files", "sweep_shared_files"]

#: MPICH's: all ranks of a node have it mapped when MPI_Init is over, and nobody looks for it by name again.
_FILES = re.compile(r"/dev/shm/mpich_shm_\S+$", re.MULTILINE)


def forget_shared_files(maps: Path = Path("/proc/self/maps")) -> list[Path]:
    """Take away the names of files that this process shares with the others of its node; their memory stays.

    One rank of each node calls it when all have started MPI. Returns what it took away.
    """
    try:
        found = sorted({Path(m) for m in _FILES.findall(maps.read_text())})
    except OSError:
        return []
    for path in found:
        with contextlib.suppress(OSError):
            path.unlink()
    return found


#: Names that MPICH, Open MPI (5 and 4) and Intel MPI give to files of a node's ranks.
_OF_RANKS = re.compile(r"mpich_shm_|sm_segment\.|vader_segment\.|Intel_MPI_")
#: Seconds between two looks: a job that begins maps its files sooner after it made them.
_PAUSE = 0.2
#: Looks until ranks that are being killed have let go of theirs.
_LOOKS = 10


def sweep_shared_files(
    begin: float, folder: Path = Path("/dev/shm"), proc: Path = Path("/proc"), pause: float = _PAUSE
) -> list[Path]:
    """Remove files that killed ranks left: this user's, made since ``begin`` (`time.time`), which nobody has mapped.

    Called when a job has failed. Returns what it removed.
    """
    left = _candidates(begin, folder)
    free: list[Path] = []
    removed: list[Path] = []
    for _ in range(_LOOKS):
        before, free = free, _unmapped(left, proc)
        for path in sorted({*before} & {*free}):
            with contextlib.suppress(OSError):
                path.unlink()
            removed.append(path)
        left = [p for p in left if p not in removed]
        if not left:
            break
        time.sleep(pause)
    return removed


def _candidates(begin: float, folder: Path) -> list[Path]:
    out = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if _OF_RANKS.match(path.name):
                with contextlib.suppress(OSError):
                    status = path.lstat()
                    if status.st_uid == os.getuid() and status.st_ctime >= begin:
                        out.append(path)
    return out


def _unmapped(paths: Iterable[Path], proc: Path) -> list[Path]:
    """Those that no process shows in its map; a process that is gone meanwhile has none."""
    names = {str(p) for p in paths}
    for maps in proc.glob("[0-9]*/maps") if names else ():
        with contextlib.suppress(OSError):
            text = maps.read_text(errors="replace")
            names -= {name for name in names if name in text}
    return sorted(map(Path, names))
