"""Memory for arguments and results, used again from step to step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.memory import aligned_bytes

__all__ = ["BufferPool", "Lease"]

Block = NDArray[np.uint8]
#: What kernels ask of results.
_RESULT = 64
#: Blocks of at most so many bytes are cut from larger ones, of so many bytes.
_SMALL, _SLAB = 1 << 10, 1 << 14


class Lease:
    """Memory of a pool that goes back to it when neither this nor an array made from it is left.

    Example: ``lease = pool.lease(64); lease.array()[:] = 0``; native code takes ``lease.address``.
    """

    __slots__ = ("__weakref__", "_block", "_left", "address")

    def __init__(self, block: Block, address: int, left: deque[tuple[Block, int]]) -> None:
        self._block, self.address, self._left = block, address, left

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._block.__array_interface__

    def array(self) -> Block:
        """The memory as bytes."""
        return np.asarray(self)

    def __del__(self) -> None:
        self._left.append((self._block, self.address))


class BufferPool:
    """Unused memory by size, for reuse without new page faults. Blocks return automatically (`Lease`). At most
    ``spare`` bytes are kept; this limit grows to the bytes taken between two calls of `settle`. New memory is from
    ``empty``, by default the process's own.
    """

    def __init__(self, empty: Callable[[int], Block] = aligned_bytes) -> None:
        self._empty = empty
        self._free: dict[int, list[tuple[Block, int]]] = {}
        self._left: deque[tuple[Block, int]] = deque()
        self._taken = self._spare = self._kept = 0
        self._slab = aligned_bytes(0)
        self._used = 0

    def lease(self, nbytes: int) -> Lease:
        if self._left:
            self._collect()
        self._taken += nbytes
        free = self._free.get(nbytes)
        if free:
            self._kept -= nbytes
            return Lease(*free.pop(), self._left)
        block = self._cut(nbytes) if nbytes <= _SMALL else self._empty(nbytes)
        return Lease(block, int(block.__array_interface__["data"][0]), self._left)

    def take(self, nbytes: int) -> Block:
        """A lease's array."""
        return self.lease(nbytes).array()

    def _cut(self, nbytes: int) -> Block:
        """A small block; its neighbours keep the memory that it lies in."""
        start = self._used
        if start + nbytes > self._slab.size:
            self._slab, start = self._empty(_SLAB), 0
        self._used = (start + nbytes + _RESULT - 1) // _RESULT * _RESULT
        return self._slab[start : start + nbytes]

    def settle(self) -> None:
        """A step is over: so much as one step takes may stay for the next one."""
        self._spare, self._taken = max(self._spare, self._taken), 0

    def _collect(self) -> None:
        """What the last reader has left is free again."""
        while self._left:
            block, address = self._left.popleft()
            if self._kept + block.size <= self._spare:
                self._kept += block.size
                self._free.setdefault(block.size, []).append((block, address))
