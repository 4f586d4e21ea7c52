"""A GPU's memory for arrays: pieces that are used again from step to step, and copies from and to the host.

All of it goes through one stream, `Device.main`: who uses other streams lets them begin and end there, so that memory
which one step gives up may be written by the next one before the first is over.
"""

from __future__ import annotations

import heapq
from collections import deque

import numpy as np
from numpy.typing import NDArray

from shardc.launcher.gpu.devices import gpu_errors
from shardc.native.gpu.problems import GpuProblem
from shardc.native.gpu.runtime import Memory, Runtime, Stream

__all__ = ["DeviceLease", "DevicePool", "GpuContext"]

Block = NDArray[np.uint8]
#: Sizes are rounded up to this, and so all leases begin at multiples of it.
_GRAIN = 256
#: Leases of at most so many bytes are cut from pieces of so many bytes.
_SMALL, _SLAB = 64 << 10, 1 << 20
#: Bytes of pinned memory that copies go through.
_STAGE = 16 << 20


class DeviceLease:
    """Memory of a pool that goes back to it when this is gone."""

    __slots__ = ("_left", "_memory", "_nbytes", "address")

    def __init__(self, memory: Memory, address: int, nbytes: int, left: deque[tuple[Memory, int, int]]) -> None:
        self._memory, self.address, self._nbytes, self._left = memory, address, nbytes, left

    def __del__(self) -> None:
        self._left.append((self._memory, self.address, self._nbytes))


class DevicePool:
    """Device memory that nobody uses any more, by size. What is free is given back when the GPU has no other.

    The lowest address of a size goes first: steps that leave the same memory free find their arrays where they were.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._free: dict[int, list[tuple[int, Memory]]] = {}
        self._left: deque[tuple[Memory, int, int]] = deque()
        self._slab: Memory | None = None
        self._used = 0

    def lease(self, nbytes: int) -> DeviceLease:
        """Uninitialised memory, at a multiple of 256; EnvironmentProblem where there is not enough."""
        size = max(_GRAIN, -(-nbytes // _GRAIN) * _GRAIN)
        while self._left:
            memory, address, left = self._left.popleft()
            heapq.heappush(self._free.setdefault(left, []), (address, memory))
        free = self._free.get(size)
        if free:
            address, memory = heapq.heappop(free)
            return DeviceLease(memory, address, size, self._left)
        if size > _SMALL:
            memory = self._allocated(size)
            return DeviceLease(memory, memory.address, size, self._left)
        if self._slab is None or self._used + size > _SLAB:
            self._slab, self._used = self._allocated(_SLAB), 0
        begin, self._used = self._used, self._used + size
        return DeviceLease(self._slab, self._slab.address + begin, size, self._left)

    def _allocated(self, size: int) -> Memory:
        with gpu_errors():
            try:
                return self._runtime.allocate(size)
            except GpuProblem:
                if not self._free:
                    raise
                self._free.clear()
                return self._runtime.allocate(size)


class GpuContext:
    """The memory of one GPU of this process; a `shardc.launcher.arrays.shards.DeviceContext`."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.pool = DevicePool(runtime)
        with gpu_errors():
            #: Where steps begin and end.
            self.main = runtime.stream()
        self._streams: list[Stream] = []
        self._stage: Block = np.empty(0, np.uint8)
        self._staged = 0

    def streams(self, count: int) -> list[Stream]:
        """Streams beside the main one, the same for all programs: steps come one after another."""
        while len(self._streams) < count:
            self._streams.append(self.runtime.stream())
        return self._streams[:count]

    def wait(self) -> None:
        """Until all that was started is done; `RunError` when it went wrong."""
        with gpu_errors():
            self.runtime.synchronize(self.main)

    def read(self, address: int, nbytes: int) -> Block:
        """A copy of the contents after all work that was started."""
        out = np.empty(nbytes, np.uint8)
        self.download([(address, out)])
        return out

    def download(self, pieces: list[tuple[int, Block]]) -> None:
        """Copy from addresses of the device into the host's blocks, through pinned memory, and wait."""
        with gpu_errors():
            pending: list[tuple[Block, Block]] = []
            for address, block in pieces:
                for begin in range(0, block.size, _STAGE):
                    part = block[begin : begin + _STAGE]
                    if not self._fits(part.size):
                        self._arrived(pending)
                    stage = self._take(part.size)
                    self.runtime.copy(_address(stage), address + begin, part.size, self.main)
                    pending.append((part, stage))
            self._arrived(pending)

    def upload(self, address: int, block: Block) -> None:
        """Copy a block to the device, behind what was started there before; the block may change at once."""
        with gpu_errors():
            for begin in range(0, block.size, _STAGE):
                part = block[begin : begin + _STAGE]
                if not self._fits(part.size):
                    self.runtime.synchronize(self.main)
                    self._staged = 0
                stage = self._take(part.size)
                stage[:] = part
                self.runtime.copy(address + begin, _address(stage), part.size, self.main)

    def _arrived(self, pending: list[tuple[Block, Block]]) -> None:
        """Wait, and copy what has come into the pinned memory to where it goes."""
        self.runtime.synchronize(self.main)
        for part, stage in pending:
            part[:] = stage
        pending.clear()
        self._staged = 0

    def _fits(self, nbytes: int) -> bool:
        return self._staged + nbytes <= _STAGE

    def _take(self, nbytes: int) -> Block:
        """The next piece of pinned memory; what lies before it may still be on its way."""
        if not self._stage.size:
            self._stage = self.runtime.pinned(_STAGE)
        begin = self._staged
        self._staged += -(-nbytes // _GRAIN) * _GRAIN
        return self._stage[begin : begin + nbytes]


def _address(block: Block) -> int:
    return int(block.__array_interface__["data"][0])
