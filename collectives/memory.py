"""The memory of devices as collectives see it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["PASSED_BY", "aligned_bytes"]

_ALIGNMENT = 64
#: Where in a device's arena the mask of groups lies for which it computes nothing: the first device of such a group in
#: this process does. 8 bytes.
PASSED_BY = 8


def aligned_bytes(nbytes: int) -> NDArray[np.uint8]:
    """Uninitialised memory of ``nbytes`` bytes whose address is a multiple of 64."""
    block = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -block.ctypes.data % _ALIGNMENT
    return block[start : start + nbytes]
