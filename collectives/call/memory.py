"""The memory of devices as collectives see it."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import RunError
from shardc.hlo.units import bytes_text, count_text

__all__ = ["NO_MEMORY", "PASSED_BY", "aligned_bytes", "check_memory", "out_of_memory"]

_ALIGNMENT = 64
#: Where in a device's arena the mask of groups lies for which it computes nothing: the first device of such a group in
#: this process does. 8 bytes.
PASSED_BY = 8
#: What asking for more memory than there is ends in, or than there are addresses.
NO_MEMORY = (MemoryError, OSError, OverflowError, ValueError)


def out_of_memory(nbytes: int, where: str) -> RunError:
    """The error for ``nbytes`` that are not to be had."""
    return RunError(
        f"{bytes_text(nbytes)} of memory are not available",
        where=where,
        fix="split the array over more devices on other machines, or annotate it so that no device holds it whole",
    )


def check_memory(nbytes: int, devices: int, where: str) -> None:
    """Raise `RunError` where ``devices`` in this process need more memory together, ``nbytes``, than the machine has.

    Systems promise more memory than there is, and end the process once it is written to.
    """
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > present:
        raise RunError(
            f"{count_text(devices, 'device')} in this process need {bytes_text(nbytes)} of memory together, and this "
            f"machine has {bytes_text(present)}",
            where=where,
            fix="use fewer or smaller devices, ranks on several machines, or shardc simulate, which needs no memory",
        )


def aligned_bytes(nbytes: int) -> NDArray[np.uint8]:
    """Uninitialised memory of ``nbytes`` bytes whose address is a multiple of 64."""
    block = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -block.ctypes.data % _ALIGNMENT
    return block[start : start + nbytes]
