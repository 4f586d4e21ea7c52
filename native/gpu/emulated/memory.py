"""The emulated device's memory: poisoned when it is given out, and between guards.

All bits are set at first (NaN, or an index out of bounds), so that a kernel that reads what nobody wrote is found by
its result; guards are looked at whenever the host waits, so that one that writes beside its arrays is found, too.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import numpy as np

from shardc.native.gpu.host_bytes import HostBytes
from shardc.native.gpu.problems import GpuFault, GpuProblem, out_of_memory

__all__ = ["EmulatedMemory", "Heap", "Pinned"]

_ALIGNMENT = 256
_GUARD = 256
_GUARD_BYTE = 0xA5
_POISON = 0xFF


class _Block:
    """Bytes of this process, a guard before and behind them."""

    def __init__(self, nbytes: int, on_device: bool) -> None:
        raw = np.empty(nbytes + 2 * _GUARD + _ALIGNMENT, np.uint8)
        start = -(raw.ctypes.data + _GUARD) % _ALIGNMENT + _GUARD
        self._raw = raw  # keeps the memory
        self._guards = (raw[start - _GUARD : start], raw[start + nbytes : start + nbytes + _GUARD])
        for guard in self._guards:
            guard[:] = _GUARD_BYTE
        raw[start : start + nbytes] = _POISON
        self.address = int(raw.ctypes.data) + start
        self.nbytes = nbytes
        self.on_device = on_device

    def intact(self) -> bool:
        return all(bool((guard == _GUARD_BYTE).all()) for guard in self._guards)


class Heap:
    """All memory of one emulated device, and pinned memory; ``memory_bytes`` is how much the device has."""

    def __init__(self, memory_bytes: int | None, device: str) -> None:
        self._most = memory_bytes
        self._device = device
        self._starts: list[int] = []
        self._blocks: dict[int, _Block] = {}
        self._released: list[int] = []
        self.used = 0

    def allocate(self, nbytes: int, on_device: bool = True) -> int:
        """The address of new memory."""
        if on_device and self._most is not None and self.used + nbytes > self._most:
            raise out_of_memory(nbytes, self._most - self.used, self._most, self._device)
        try:
            block = _Block(nbytes, on_device)
        except MemoryError:
            raise GpuProblem(
                f"this machine lacks {nbytes:,} bytes of memory for the emulated GPU", where=self._device
            ) from None
        bisect.insort(self._starts, block.address)
        self._blocks[block.address] = block
        self.used += nbytes if on_device else 0
        return block.address

    def release(self, address: int) -> None:
        """Nobody will put in more work with this memory; `sweep` frees it. May be called by any thread."""
        self._released.append(address)

    def sweep(self) -> None:
        """No work is under way: what was released is free."""
        while self._released:
            address = self._released.pop()
            block = self._blocks.pop(address)
            del self._starts[bisect.bisect_left(self._starts, address)]
            self.used -= block.nbytes if block.on_device else 0

    def check(self, address: int, nbytes: int, what: str) -> None:
        """GpuFault unless the bytes lie in memory that was given out."""
        at = bisect.bisect_right(self._starts, address) - 1
        block = self._blocks[self._starts[at]] if at >= 0 else None
        if block is None or address + nbytes > block.address + block.nbytes:
            raise GpuFault(f"{what} {nbytes:,} bytes at {address:#x}: not memory of the device nor pinned memory")

    def damaged(self) -> Iterator[int]:
        """Addresses of memory beside which somebody wrote."""
        return (block.address for block in self._blocks.values() if not block.intact())


class EmulatedMemory:
    """Memory of the device, given back when this value is gone."""

    def __init__(self, heap: Heap, nbytes: int) -> None:
        self.nbytes = nbytes
        self.address = heap.allocate(nbytes)
        self._heap = heap

    def __del__(self) -> None:
        if hasattr(self, "_heap"):
            self._heap.release(self.address)


class Pinned(HostBytes):
    """Memory of the host; an array over it keeps it."""

    def __init__(self, heap: Heap, nbytes: int) -> None:
        super().__init__(heap.allocate(nbytes, on_device=False), nbytes)
        self._heap = heap

    def __del__(self) -> None:
        if hasattr(self, "_heap"):
            self._heap.release(self.address)
