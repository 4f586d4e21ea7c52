"""Memory that is given back while work under way still uses it, and given out again when that work is done.

The driver's own functions to take and free memory wait for the device, and may not be called while a graph is
captured. So blocks that are given back are kept: at the next request, an event is recorded in every stream; once those
events have happened, nothing uses the blocks any more. Only when memory runs out are kept blocks really freed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from shardc.native.gpu.host_bytes import HostBytes

__all__ = ["Blocks", "CudaMemory", "Marks", "PinnedMemory"]

_SMALL = 1 << 20
_LARGE_STEP = 2 << 20
_SMALL_STEP = 512


class Marks(Protocol):
    """What the streams of a runtime have been through."""

    @property
    def capturing(self) -> bool: ...
    def mark(self) -> Any:
        """Where all streams are now."""
        ...

    def passed(self, mark: Any) -> bool:
        """All streams are beyond the mark."""
        ...

    def wait_for_all(self) -> None:
        """All streams are empty."""
        ...


class Blocks:
    """Blocks of one kind of memory, by size. ``take`` asks the driver for a block (None: there is not enough),
    ``free`` gives one back to it."""

    def __init__(self, take: Callable[[int], int | None], free: Callable[[int], None], marks: Marks) -> None:
        self._take = take
        self._free = free
        self._marks = marks
        self._ready: dict[int, list[int]] = {}
        self._leaving: deque[tuple[Any, list[tuple[int, int]]]] = deque()
        self._released: list[tuple[int, int]] = []

    @staticmethod
    def rounded(nbytes: int) -> int:
        """The size of the block for so many bytes."""
        step = _SMALL_STEP if nbytes <= _SMALL else _LARGE_STEP
        return max(-(-nbytes // step) * step, step)

    def allocate(self, nbytes: int) -> int | None:
        """The address of a block that nothing uses; None when there is none."""
        size = self.rounded(nbytes)
        self._collect()
        ready = self._ready.get(size)
        if ready:
            return ready.pop()
        address = self._take(size)
        if address is None and not self._marks.capturing:
            self.trim()
            address = self._take(size)
        return address

    def release(self, address: int, nbytes: int) -> None:
        """No more work will be started with the block. May be called by any thread."""
        self._released.append((address, self.rounded(nbytes)))

    def trim(self) -> None:
        """Wait for the device, and free what is kept."""
        self._marks.wait_for_all()
        kept = [address for blocks in self._ready.values() for address in blocks]
        kept += [address for _, blocks in self._leaving for address, _ in blocks]
        released, self._released = self._released, []
        self._ready.clear()
        self._leaving.clear()
        for address in (*kept, *(address for address, _ in released)):
            self._free(address)

    def _collect(self) -> None:
        if self._marks.capturing:
            return
        if self._released:
            released, self._released = self._released, []
            self._leaving.append((self._marks.mark(), released))
        while self._leaving and self._marks.passed(self._leaving[0][0]):
            for address, size in self._leaving.popleft()[1]:
                self._ready.setdefault(size, []).append(address)


class CudaMemory:
    """Memory of the device, given back when this value is gone."""

    def __init__(self, blocks: Blocks, address: int, nbytes: int) -> None:
        self._blocks = blocks
        self.address = address
        self.nbytes = nbytes

    def __del__(self) -> None:
        self._blocks.release(self.address, self.nbytes)


class PinnedMemory(HostBytes):
    """Memory of the host that the device copies from and to; an array over it keeps it."""

    def __init__(self, blocks: Blocks, address: int, nbytes: int) -> None:
        super().__init__(address, nbytes)
        self._blocks = blocks

    def __del__(self) -> None:
        self._blocks.release(self.address, self.nbytes)
