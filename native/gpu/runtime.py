"""What a host does with a GPU: memory, modules, streams, events, launches and graphs.

`CudaRuntime` (`cuda_runtime.py`) does it through cuda-python, `EmulatedRuntime` (`emulated_runtime.py`) on this
machine's memory with threads as coroutines. Everything above is written against this protocol, so that tests without a
GPU run the same code as a cluster does.

Addresses are integers. Work goes to streams and is done in their order; only `synchronize` waits. Errors are
`GpuFault` (what went wrong on the device; nothing more can be done with it in this process) and `GpuProblem` (driver,
memory, capability). A runtime is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shardc.native.gpu.target import GpuTarget

__all__ = ["DeviceEvent", "DeviceModule", "Graph", "Image", "Kernel", "LaunchShape", "Memory", "Runtime", "Stream"]


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """Blocks by axis, threads of a block, bytes of shared memory of a block."""

    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Image:
    """Code of kernels: ``data`` is a cubin, PTX (both for the CUDA driver) or an object for the emulation."""

    kind: str  # "cubin", "ptx", "emulated"
    data: bytes


class Memory(Protocol):
    """Bytes on the device, free again when this value is gone."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


class Kernel(Protocol):
    """A loaded kernel."""

    @property
    def name(self) -> str: ...


class DeviceModule(Protocol):
    """Loaded code; kernels live as long as it does."""

    def kernel(self, symbol: str, shared_bytes: int = 0) -> Kernel:
        """The kernel ``symbol``, allowed to use so much shared memory."""
        ...


class Stream(Protocol):
    """A queue of work."""

    @property
    def handle(self) -> int: ...


class DeviceEvent(Protocol):
    """A mark in a stream."""


class Graph(Protocol):
    """Captured work, to be launched again and again at the cost of one launch."""

    def launch(self, stream: Stream) -> None: ...


class Runtime(Protocol):
    """One GPU (or its emulation)."""

    @property
    def target(self) -> GpuTarget: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def failed(self) -> bool:
        """Work went wrong: the GPU cannot be used in this process any more."""
        ...

    def make_current(self) -> None:
        """Libraries that this thread calls from now on (cuBLASLt, NCCL) use this GPU."""
        ...

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised, at a multiple of 256. `GpuProblem` when there is not enough.

        Work that was put into streams before the memory is given back may still use it."""
        ...

    def pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """Host memory that copies are fast from and to, as long as the array lives. It may be dropped while copies
        that were started before are under way."""
        ...

    def load(self, images: Sequence[Image], texts: Sequence[bytes] = ()) -> DeviceModule:
        """Load code. ``texts`` has by image its PTX (or nothing): for a driver that is older than a cubin's assembler.
        `GpuProblem`, before anything is launched, for code that this GPU does not run."""
        ...

    def stream(self) -> Stream: ...
    def event(self, timed: bool = False) -> DeviceEvent:
        """A mark to be recorded; only ``timed`` ones can be asked for the time between them."""
        ...

    def record(self, event: DeviceEvent, stream: Stream) -> None: ...
    def wait(self, event: DeviceEvent, stream: Stream) -> None:
        """Later work of ``stream`` begins when ``event``, recorded before, has happened."""
        ...

    def launch(self, kernel: Kernel, shape: LaunchShape, pointers: Sequence[int], device: int, stream: Stream) -> None:
        """Start a kernel of `GridCode`'s signature."""
        ...

    def copy(self, to: int, source: int, nbytes: int, stream: Stream) -> None:
        """Between addresses of the device, or of pinned memory."""
        ...

    def fill(self, to: int, byte: int, nbytes: int, stream: Stream) -> None: ...
    def host_call(self, function: Callable[[], None], stream: Stream) -> None:
        """Run ``function`` on the host when the work before it is done. It may not use the runtime. Not captured."""
        ...

    def capture(self, streams: Sequence[Stream], work: Callable[[], None]) -> Graph:
        """What ``work`` puts into ``streams`` becomes a graph; nothing of it runs. The graph begins when the stream it
        is launched in comes to it, and is done when all of ``streams`` are. ``work`` may not wait for events that were
        recorded before, nor synchronise, nor call the host."""
        ...

    def synchronize(self, stream: Stream | None = None) -> None:
        """Wait for a stream (or all of them); raises what went wrong."""
        ...

    def elapsed(self, first: DeviceEvent, last: DeviceEvent) -> float:
        """Seconds between two timed events, which have happened."""
        ...

    def describe(self) -> dict[str, Any]:
        """Name, memory, capability, versions: plain data."""
        ...
