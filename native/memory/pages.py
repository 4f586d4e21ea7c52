"""Memory by pages: private ones, and pages of files without a name in their place."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PAGE", "can_share", "map_at", "memory_file", "private_pages"]

PAGE = mmap.PAGESIZE
#: Bytes from which on the system is asked for huge pages.
_HUGE = 4 << 20
_FIXED = 0x10  # MAP_FIXED, on Linux and macOS alike


def private_pages(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed memory that starts at a page; nothing else lies in its pages, and they are gone with the last array."""
    memory = mmap.mmap(-1, max(1, nbytes), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if nbytes >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)[:nbytes]


def can_share() -> bool:
    """Whether the system has files in memory that have no name."""
    return hasattr(os, "memfd_create")


def memory_file(nbytes: int) -> int:
    """A file of zeros in memory without a name, by its descriptor; `OSError` where there is not enough."""
    fd = os.memfd_create("shardc", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, nbytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


def map_at(address: int, nbytes: int, fd: int, offset: int) -> None:
    """Pages of a file in place of what is mapped at ``address``; they stay when the file is closed.

    Raises `OSError` when the system refuses.
    """
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    found = _mmap()(address, nbytes, protection, mmap.MAP_SHARED | _FIXED, fd, offset)
    if found != address:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot map shared memory: {os.strerror(error)}")


@cache
def _mmap() -> Any:
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t)
    return call
