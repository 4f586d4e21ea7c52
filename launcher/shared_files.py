"""Files that an MPI library leaves in shared memory when its processes are killed."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

__all__ = ["forget_shared_files"]

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
