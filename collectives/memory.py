"""The memory of one device as collectives see it: arena, arguments, results and constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call import BufferRef
from shardc.hlo.types import DType

__all__ = ["DeviceMemory", "aligned_bytes"]

_ALIGNMENT = 64


def aligned_bytes(nbytes: int) -> NDArray[np.uint8]:
    """Uninitialised memory of ``nbytes`` bytes whose address is a multiple of 64."""
    block = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -block.ctypes.data % _ALIGNMENT
    return block[start : start + nbytes]


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Byte arrays of one device; a `BufferRef` names a range in one of them."""

    arena: NDArray[np.uint8]
    arguments: Sequence[NDArray[np.uint8]]
    results: Sequence[NDArray[np.uint8]]
    constants: NDArray[np.uint8]

    def view(self, ref: BufferRef, dtype: DType) -> NDArray[Any]:
        """The elements that ``ref`` names, without a copy."""
        match ref.space:
            case "arena":
                whole = self.arena
            case "argument":
                whole = self.arguments[ref.index]
            case "result":
                whole = self.results[ref.index]
            case _:
                whole = self.constants
        return whole[ref.offset : ref.offset + ref.nbytes].view(dtype.numpy)
