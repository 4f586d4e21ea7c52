"""The memory of devices as collectives see it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import RunError

__all__ = ["NO_MEMORY", "PASSED_BY", "aligned_bytes", "out_of_memory"]

_ALIGNMENT = 64
#: Where in a device's arena the mask of groups lies for which it computes nothing: the first device of such a group in
#: this process does. 8 bytes.
PASSED_BY = 8
#: What asking for more memory than there is ends in, or than there are addresses.
NO_MEMORY = (MemoryError, OSError, OverflowError, ValueError)


def out_of_memory(nbytes: int, where: str) -> RunError:
    """The error for ``nbytes`` that are not to be had."""
    return RunError(
        f"{nbytes / 2**30:,.1f} GiB of memory are not available",
        where=where,
        fix="split the array over more devices on other machines, or annotate it so that no device holds it whole",
    )


def aligned_bytes(nbytes: int) -> NDArray[np.uint8]:
    """Uninitialised memory of ``nbytes`` bytes whose address is a multiple of 64."""
    block = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -block.ctypes.data % _ALIGNMENT
    return block[start : start + nbytes]
