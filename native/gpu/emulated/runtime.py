"""A GPU that is this machine's memory and processor: the `Runtime` of the target ``cuda-emulated``.

Nothing runs before somebody waits; then it runs in an order that `WorkQueue` chooses among those that streams and
events permit, on memory that finds what is read unwritten and written astray (`emulated_memory.py`). What CUDA
forbids, such as waiting inside a capture for what lies outside, is forbidden here.
"""

from __future__ import annotations

import ctypes
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.native.gpu.emulated.memory import EmulatedMemory, Heap, Pinned
from shardc.native.gpu.emulated.queue import Work, WorkQueue
from shardc.native.gpu.emulated.threads import FORWARD, EmulatedModule, ThreadOrder, load_emulated
from shardc.native.gpu.launching import check_arguments, check_shape, check_shared
from shardc.native.gpu.problems import GpuFault, GpuProblem
from shardc.native.gpu.runtime import Image, LaunchShape
from shardc.native.gpu.target import GpuTarget, gpu_target

__all__ = ["EmulatedRuntime"]


class _Capture:
    """A graph in the making: work that is never run itself."""

    def __init__(self) -> None:
        self.works: list[Work] = []


class _EmulatedStream:
    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.last: Work | None = None
        self.capture: _Capture | None = None


class _EmulatedEvent:
    def __init__(self, timed: bool) -> None:
        self.timed = timed
        self.work: Work | None = None
        self.capture: _Capture | None = None
        self.seconds: float | None = None


class _Kernel:
    def __init__(self, module: EmulatedModule, name: str, shared_bytes: int) -> None:
        self.module = module
        self.name = name
        self.shared_bytes = shared_bytes


class _EmulatedModule:
    def __init__(self, module: EmulatedModule, target: GpuTarget) -> None:
        self._module = module
        self._target = target

    def kernel(self, symbol: str, shared_bytes: int = 0) -> _Kernel:
        check_shared(symbol, shared_bytes, self._target.chip.shared_bytes)
        if symbol not in self._module.symbols:
            raise GpuFault(f"no kernel {symbol!r} in the loaded code")
        return _Kernel(self._module, symbol, shared_bytes)


class _EmulatedGraph:
    def __init__(self, queue: WorkQueue, works: Sequence[Work]) -> None:
        self._queue = queue
        self._works = works

    def launch(self, stream: Any) -> None:
        if stream.capture is not None:
            raise GpuFault("a graph is launched inside of a capture")
        copies: dict[Work, Work] = {}
        first = [stream.last] if stream.last is not None else []
        for work in self._works:
            copies[work] = self._queue.add(work.run, [copies[a] for a in work.after] or first)
        stream.last = self._queue.add(None, [*first, *copies.values()])


class EmulatedRuntime:
    """An emulated GPU. ``seed`` draws the order of streams, and of the threads of every kernel; None runs work as it
    was put in, threads forward. ``memory_bytes`` is the memory it has (None: no limit).

    Example: ``EmulatedRuntime(seed=7, memory_bytes=1 << 30)``.
    """

    def __init__(
        self,
        ordinal: int = 0,
        *,
        seed: int | None = None,
        memory_bytes: int | None = None,
        target: GpuTarget | None = None,
    ) -> None:
        self._target = target or gpu_target("cuda-emulated")
        self._ordinal = ordinal
        self._memory_bytes = memory_bytes
        self._heap = Heap(memory_bytes, f"emulated GPU {ordinal}")
        self._queue = WorkQueue(seed)
        self._orders = None if seed is None else random.Random(seed + 1)
        self._streams: list[_EmulatedStream] = []
        self._ran: dict[str, None] = {}

    @property
    def target(self) -> GpuTarget:
        return self._target

    @property
    def ordinal(self) -> int:
        return self._ordinal

    @property
    def failed(self) -> bool:
        """Work went wrong: this device cannot be used any more."""
        return self._queue.failed

    def make_current(self) -> None:
        """There are no libraries."""

    def allocate(self, nbytes: int) -> EmulatedMemory:
        self._sweep()
        try:
            return EmulatedMemory(self._heap, nbytes)
        except GpuProblem:
            if self._queue.idle or self._captures():
                raise
        self.synchronize()  # what was given back while work was under way is free now
        return EmulatedMemory(self._heap, nbytes)

    def pinned(self, nbytes: int) -> NDArray[np.uint8]:
        self._sweep()
        return Pinned(self._heap, nbytes).array()

    def load(self, images: Sequence[Image], texts: Sequence[bytes] = ()) -> _EmulatedModule:
        for image in images:
            if image.kind != "emulated":
                raise GpuProblem(
                    f"the emulated GPU cannot run {image.kind} code", fix="compile the program for cuda-emulated"
                )
        return _EmulatedModule(load_emulated([image.data for image in images]), self._target)

    def stream(self) -> _EmulatedStream:
        self._streams.append(_EmulatedStream(len(self._streams) + 1))
        return self._streams[-1]

    def event(self, timed: bool = False) -> _EmulatedEvent:
        return _EmulatedEvent(timed)

    def record(self, event: Any, stream: Any) -> None:
        def happen() -> None:
            event.seconds = time.perf_counter()

        event.work = self._put(stream, happen if event.timed else None)
        event.capture = stream.capture

    def wait(self, event: Any, stream: Any) -> None:
        if event.work is None:
            return  # as with CUDA: an event that was never recorded has happened
        if event.capture is not stream.capture:
            raise GpuFault("a stream waits for an event from the other side of a capture")
        self._put(stream, None, event.work)

    def launch(self, kernel: Any, shape: LaunchShape, pointers: Sequence[int], device: int, stream: Any) -> None:
        check_shape(kernel.name, shape, kernel.shared_bytes)
        check_arguments(kernel.name, pointers)
        arguments = tuple(pointers)

        def run() -> None:
            self._ran[kernel.name] = None
            kernel.module.launch(kernel.name, shape, arguments, device, self._order())

        self._put(stream, run)

    def copy(self, to: int, source: int, nbytes: int, stream: Any) -> None:
        self._heap.check(to, nbytes, "a copy writes")
        self._heap.check(source, nbytes, "a copy reads")
        if abs(to - source) < nbytes:
            raise GpuFault(f"a copy of {nbytes:,} bytes from {source:#x} to {to:#x} overlaps itself")
        self._put(stream, partial(ctypes.memmove, to, source, nbytes))

    def fill(self, to: int, byte: int, nbytes: int, stream: Any) -> None:
        self._heap.check(to, nbytes, "a fill writes")
        self._put(stream, partial(ctypes.memset, to, byte, nbytes))

    def host_call(self, function: Callable[[], None], stream: Any) -> None:
        if stream.capture is not None:
            raise GpuFault("a function of the host inside of a capture")
        self._put(stream, self._queue.called(function))

    def capture(self, streams: Sequence[Any], work: Callable[[], None]) -> _EmulatedGraph:
        if any(stream.capture is not None for stream in streams):
            raise GpuFault("a capture inside of a capture")
        before = [stream.last for stream in streams]
        capture = _Capture()
        for stream in streams:
            stream.capture, stream.last = capture, None
        try:
            work()
        finally:
            for stream, last in zip(streams, before, strict=True):
                stream.capture, stream.last = None, last
        return _EmulatedGraph(self._queue, capture.works)

    def synchronize(self, stream: Any = None) -> None:
        if self._captures():
            raise GpuFault("the host waits for the device inside of a capture")
        if stream is None or stream.last is not None:
            self._queue.finish(None if stream is None else stream.last)
        self._inspect()
        self._sweep()

    def elapsed(self, first: Any, last: Any) -> float:
        if first.seconds is None or last.seconds is None:
            raise GpuFault("the time between events that have not happened, or are not timed")
        return float(last.seconds - first.seconds)

    def describe(self) -> dict[str, Any]:
        return {
            "name": "emulated GPU",
            "ordinal": self._ordinal,
            "capability": self._target.arch,
            "memory": self._memory_bytes,
            "multiprocessors": self._target.chip.multiprocessors,
            "driver": "emulation",
        }

    def _put(self, stream: _EmulatedStream, run: Callable[[], object] | None, *others: Work) -> Work:
        after = (*(() if stream.last is None else (stream.last,)), *others)
        if stream.capture is not None:
            stream.last = Work(run, after)
            stream.capture.works.append(stream.last)
        else:
            stream.last = self._queue.add(run, after)
        return stream.last

    def _captures(self) -> bool:
        return any(stream.capture is not None for stream in self._streams)

    def _order(self) -> ThreadOrder:
        return FORWARD if self._orders is None else ThreadOrder.random(self._orders.getrandbits(31))

    def _inspect(self) -> None:
        ran, self._ran = list(self._ran), {}
        address = next(self._heap.damaged(), None)
        if address is not None:
            failure = GpuFault(f"something was written beside the memory at {address:#x}", where=", ".join(ran[:8]))
            self._queue.fail(failure)
            raise failure

    def _sweep(self) -> None:
        if self._queue.idle:
            self._heap.sweep()
