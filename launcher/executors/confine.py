"""Limits of the operating system (rlimits) that a child sets for a task."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardc.launcher.executors.limits import TaskLimits

__all__ = ["confine", "resident_bytes"]

#: Seconds of processor time over what the clock allows: the parent's clock is the one that counts.
_GRACE = 10


@contextmanager
def confine(limits: TaskLimits) -> Iterator[None]:
    """Within the block this process has no more than ``limits``: memory for data (`MemoryError`, or the end of the
    process, beyond it), processor time on all its cores, and bytes per file. Without a parent that could end it, a
    process that never ends is ended by its processor time."""
    import resource

    memory = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    processors = os.cpu_count() or 1
    wanted = {
        resource.RLIMIT_CPU: math.ceil(used + limits.seconds * processors) + _GRACE,
        resource.RLIMIT_FSIZE: limits.answer_bytes,
        resource.RLIMIT_CORE: 0,
    }
    if limits.memory_bytes:
        wanted[memory] = limits.memory_bytes
    before = {kind: resource.getrlimit(kind) for kind in wanted}
    for kind, most in wanted.items():
        hard = before[kind][1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    try:
        yield
    finally:
        for kind, limit in before.items():
            resource.setrlimit(kind, limit)


def resident_bytes() -> int:
    """Memory that this process has now (where the system does not tell, that it had at most)."""
    if sys.platform == "linux":
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
