"""An NVIDIA GPU through its driver: the `Runtime` of targets ``cuda:sm_*``.

The device's primary context is used, which other libraries of the process (JAX, cuBLASLt, NCCL) share. It is made
current at every call, because they may have made another one so. A launch costs the host some microseconds: steps are
captured as graphs and launched as one.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.native.gpu.cuda.driver import ENUMS
from shardc.native.gpu.cuda.memory import Blocks, CudaMemory, PinnedMemory
from shardc.native.gpu.cuda.module import CudaKernel, CudaModule, load_image
from shardc.native.gpu.cuda.probe import CudaProbe, probe_cuda
from shardc.native.gpu.launching import check_arguments, check_shape
from shardc.native.gpu.problems import GpuFault, GpuProblem, out_of_memory
from shardc.native.gpu.runtime import Image, LaunchShape
from shardc.native.gpu.target import GpuTarget

__all__ = ["CudaRuntime"]

_NON_BLOCKING = 1  # a stream that does not wait for the default stream
_UNTIMED = 2  # an event without a time
_PORTABLE = 1  # pinned for all contexts
_NOT_READY = ENUMS["CUresult"]["CUDA_ERROR_NOT_READY"]
_OUT_OF_MEMORY = ENUMS["CUresult"]["CUDA_ERROR_OUT_OF_MEMORY"]
#: What a kernel that went wrong leaves behind: memory errors, traps, time-outs. The context is lost with it.
_LOST = frozenset({214, 700, 702, 710, *range(714, 720)})
_POLL_SECONDS = 20e-6
_REMEMBERED = 8


class _CudaStream:
    """A stream of the driver, lent by the runtime."""

    def __init__(self, owner: CudaRuntime, raw: Any) -> None:
        self._owner = owner
        self.raw = raw
        self.handle = int(raw)
        self.capture: object = None

    def __del__(self) -> None:
        self._owner.take_stream(self.raw)


class _CudaEvent:
    """An event of the driver; ``capture`` is the capture that it was recorded in."""

    def __init__(self, owner: CudaRuntime, raw: Any, timed: bool) -> None:
        self._owner = owner
        self.raw = raw
        self.timed = timed
        self.recorded = False
        self.capture: object = None

    def __del__(self) -> None:
        self._owner.driver.attempt("cuEventDestroy", self.raw)


class _CudaGraph:
    """A captured step; keeps the kernels that it launches."""

    def __init__(self, owner: CudaRuntime, raw: Any, kernels: tuple[CudaKernel, ...]) -> None:
        self._owner = owner
        self.raw = raw
        self.names = tuple(dict.fromkeys(kernel.name for kernel in kernels))
        self._kernels = kernels

    def launch(self, stream: Any) -> None:
        self._owner.launch_graph(self, stream)

    def __del__(self) -> None:
        self._owner.drop(self)


class CudaRuntime:
    """The GPU ``ordinal``. GpuProblem with the reason when there is none, or it cannot be used.

    ``probe``: what was found (by default `probe_cuda`). Example: ``CudaRuntime(0).describe()``.
    """

    def __init__(self, ordinal: int = 0, *, probe: CudaProbe | None = None) -> None:
        found = probe or probe_cuda()
        self._device = found.device(ordinal)
        if found.driver is None:
            raise GpuProblem("no NVIDIA driver is loaded")
        self.driver = found.driver
        self._version = found.version
        self._target = self._device.target
        self._where = f"GPU {ordinal} ({self._device.name})"
        self._failure: GpuFault | None = None
        self._launched: deque[tuple[str, ...]] = deque(maxlen=_REMEMBERED)
        handle = self._call("cuDeviceGet", ordinal)
        self._context = self._call("cuDevicePrimaryCtxRetain", handle)
        self._streams: list[Any] = []
        self._idle_streams: list[Any] = []
        self._spare_events: list[Any] = []
        self._unused: list[tuple[str, Any]] = []
        self._capture: list[CudaKernel] | None = None
        self._calls: dict[int, Callable[[], None]] = {}
        self._number = 0
        self._raised: list[BaseException] = []
        self._host_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._run_call)
        self._memory = Blocks(self._take, self._free, self)
        self._pinned = Blocks(self._take_pinned, self._free_pinned, self)

    @property
    def target(self) -> GpuTarget:
        return self._target

    @property
    def ordinal(self) -> int:
        return self._device.ordinal

    @property
    def failed(self) -> bool:
        """Work went wrong: this GPU cannot be used in this process any more."""
        return self._failure is not None

    def make_current(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._call("cuCtxSetCurrent", self._context)

    def allocate(self, nbytes: int) -> CudaMemory:
        self.make_current()
        address = self._memory.allocate(nbytes)
        if address is None:
            free, total = self._call("cuMemGetInfo")
            raise out_of_memory(nbytes, int(free), int(total), self._where)
        return CudaMemory(self._memory, address, nbytes)

    def pinned(self, nbytes: int) -> NDArray[np.uint8]:
        self.make_current()
        address = self._pinned.allocate(nbytes)
        if address is None:
            raise GpuProblem(
                f"the host cannot pin {nbytes:,} bytes of memory", fix="raise the limit of locked memory (ulimit -l)"
            )
        return PinnedMemory(self._pinned, address, nbytes).array()

    def load(self, images: Sequence[Image], texts: Sequence[bytes] = ()) -> CudaModule:
        self.make_current()
        self._clear()
        texts = texts or [b""] * len(images)
        pairs = zip(images, texts, strict=True)
        handles = [load_image(self.driver, image, text, self._where) for image, text in pairs]
        return CudaModule(self.driver, handles, self._device.shared_bytes, self._retire)

    def stream(self) -> _CudaStream:
        self.make_current()
        if not self._idle_streams:
            self._streams.append(self._call("cuStreamCreate", _NON_BLOCKING))
            self._idle_streams.append(self._streams[-1])
        return _CudaStream(self, self._idle_streams.pop())

    def event(self, timed: bool = False) -> _CudaEvent:
        self.make_current()
        return _CudaEvent(self, self._call("cuEventCreate", 0 if timed else _UNTIMED), timed)

    def record(self, event: Any, stream: Any) -> None:
        self.make_current()
        self._call("cuEventRecord", event.raw, stream.raw)
        event.recorded, event.capture = True, stream.capture

    def wait(self, event: Any, stream: Any) -> None:
        if not event.recorded:
            return
        if event.capture is not stream.capture:
            raise GpuFault("a stream waits for an event from the other side of a capture")
        self.make_current()
        self._call("cuStreamWaitEvent", stream.raw, event.raw, 0)

    def launch(self, kernel: Any, shape: LaunchShape, pointers: Sequence[int], device: int, stream: Any) -> None:
        if shape is not kernel.checked:
            check_shape(kernel.name, shape, kernel.shared_bytes)
            kernel.checked = shape
        check_arguments(kernel.name, pointers)
        self.make_current()
        self._launched.append(kernel.names)
        status = kernel.launch(self.driver, shape, pointers, device, stream.raw)
        if status != 0:
            raise self._error("cuLaunchKernel", status, kernel.name)
        if self._capture is not None and stream.capture is self._capture:
            self._capture.append(kernel)

    def copy(self, to: int, source: int, nbytes: int, stream: Any) -> None:
        if nbytes:
            self.make_current()
            self._call("cuMemcpyAsync", to, source, nbytes, stream.raw)

    def fill(self, to: int, byte: int, nbytes: int, stream: Any) -> None:
        if nbytes:
            self.make_current()
            self._call("cuMemsetD8Async", to, byte, nbytes, stream.raw)

    def host_call(self, function: Callable[[], None], stream: Any) -> None:
        if stream.capture is not None:
            raise GpuFault("a function of the host inside of a capture")
        self.make_current()
        self._number += 1
        self._calls[self._number] = function
        address = ctypes.cast(self._host_function, ctypes.c_void_p).value
        self._call("cuLaunchHostFunc", stream.raw, self.driver.bindings.CUhostFn(address), self._number)

    def capture(self, streams: Sequence[Any], work: Callable[[], None]) -> _CudaGraph:
        if self._capture is not None:
            raise GpuFault("a capture inside of a capture")
        events = [self.event() for _ in streams]  # before: not while something is captured
        mode = self.driver.value("CUstreamCaptureMode", "CU_STREAM_CAPTURE_MODE_RELAXED")
        first, *others = streams
        self._call("cuStreamBeginCapture", first.raw, mode)
        kernels: list[CudaKernel] = []
        self._capture = kernels
        try:
            for stream in streams:
                stream.capture = kernels
            self._join(events[:1], [first], others)
            work()
            self._join(events[1:], others, [first])
        except BaseException:
            status, unfinished = self.driver.attempt("cuStreamEndCapture", first.raw)
            if status == 0:
                self.driver.attempt("cuGraphDestroy", unfinished)
            raise
        finally:
            self._capture = None
            for stream in streams:
                stream.capture = None
        graph = self._call("cuStreamEndCapture", first.raw)
        try:
            raw = self._call("cuGraphInstantiate", graph, 0)
        finally:
            self.driver.attempt("cuGraphDestroy", graph)
        return _CudaGraph(self, raw, tuple(kernels))

    def launch_graph(self, graph: _CudaGraph, stream: _CudaStream) -> None:
        """Start a captured step."""
        if stream.capture is not None:
            raise GpuFault("a graph is launched inside of a capture")
        self.make_current()
        self._launched.append(graph.names)
        self._call("cuGraphLaunch", graph.raw, stream.raw)

    def synchronize(self, stream: Any = None) -> None:
        if self._capture is not None:
            raise GpuFault("the host waits for the device inside of a capture")
        self.make_current()
        for raw in self._streams if stream is None else (stream.raw,):
            self._finish(raw)
        if stream is None:
            self._launched.clear()
        if self._raised:
            error, self._raised = self._raised[0], []
            raise error

    def elapsed(self, first: Any, last: Any) -> float:
        if not (first.timed and last.timed):
            raise GpuFault("the time between events that are not timed")
        self.make_current()
        return float(self._call("cuEventElapsedTime", first.raw, last.raw)) / 1e3

    def describe(self) -> dict[str, Any]:
        device = self._device
        return {
            "name": device.name,
            "ordinal": device.ordinal,
            "capability": f"{device.capability[0]}.{device.capability[1]}",
            "code": self._target.arch,
            "memory": device.memory,
            "multiprocessors": device.multiprocessors,
            "driver": f"CUDA {self._version // 1000}.{self._version % 1000 // 10}",
        }

    # What `Blocks` asks of the streams.

    @property
    def capturing(self) -> bool:
        return self._capture is not None

    def mark(self) -> list[Any]:
        events = []
        for raw in self._streams:
            event = self._spare_events.pop() if self._spare_events else self._call("cuEventCreate", _UNTIMED)
            self._call("cuEventRecord", event, raw)
            events.append(event)
        return events

    def passed(self, mark: list[Any]) -> bool:
        while mark:
            status, _ = self.driver.attempt("cuEventQuery", mark[-1])
            if status == _NOT_READY:
                return False
            if status != 0:
                raise self._error("cuEventQuery", status)
            self._spare_events.append(mark.pop())
        return True

    def wait_for_all(self) -> None:
        for raw in self._streams:
            self._finish(raw)

    # What values that are gone give back; by any thread.

    def take_stream(self, raw: Any) -> None:
        """A stream that nobody puts work into any more."""
        self._idle_streams.append(raw)

    def drop(self, graph: _CudaGraph) -> None:
        """A graph that is not launched again; the driver lets one that is under way come to its end."""
        if self._capture is None:
            self.driver.attempt("cuGraphExecDestroy", graph.raw)
        else:
            self._unused.append(("cuGraphExecDestroy", graph.raw))

    def _retire(self, module: Any) -> None:
        self._unused.append(("cuModuleUnload", module))

    def _clear(self) -> None:
        """Really give back what is not used any more: the host waits, so only where it has other work anyway."""
        if self._unused and self._capture is None:
            unused, self._unused = self._unused, []
            self.wait_for_all()
            for name, raw in unused:
                self._call(name, raw)

    def _join(
        self, events: Sequence[_CudaEvent], sources: Sequence[_CudaStream], followers: Iterable[_CudaStream]
    ) -> None:
        """All of ``followers`` go on behind ``sources``."""
        followers = tuple(followers)
        for event, source in zip(events, sources, strict=True):
            self.record(event, source)
            for follower in followers:
                self.wait(event, follower)

    def _finish(self, raw: Any) -> None:
        """The stream is empty. A function of the host that is still to run needs Python's lock, which the driver's own
        function may hold while it waits: then this looks again and again."""
        status = _NOT_READY
        while self._calls and status == _NOT_READY:
            status, _ = self.driver.attempt("cuStreamQuery", raw)
            if status == _NOT_READY:
                time.sleep(_POLL_SECONDS)
        if status == _NOT_READY:
            status, _ = self.driver.attempt("cuStreamSynchronize", raw)
        if status != 0:
            raise self._error("cuStreamSynchronize", status)

    def _run_call(self, number: int) -> None:
        try:
            self._calls[number]()
        except BaseException as error:
            self._raised.append(error)
        finally:
            del self._calls[number]

    def _take(self, nbytes: int) -> int | None:
        return self._taken("cuMemAlloc", nbytes)

    def _take_pinned(self, nbytes: int) -> int | None:
        return self._taken("cuMemHostAlloc", nbytes, _PORTABLE)

    def _taken(self, name: str, *arguments: int) -> int | None:
        status, address = self.driver.attempt(name, *arguments)
        if status not in (0, _OUT_OF_MEMORY):
            raise self._error(name, status)
        return int(address) if status == 0 else None

    def _free(self, address: int) -> None:
        self._call("cuMemFree", address)

    def _free_pinned(self, address: int) -> None:
        self._call("cuMemFreeHost", address)

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *answer = self.driver.functions[name](*arguments)
        if status != 0:
            raise self._error(name, int(status))
        return answer[0] if len(answer) == 1 else tuple(answer)

    def _error(self, name: str, status: int, where: str = "") -> Exception:
        if status not in _LOST:
            return self.driver.error(name, status, where or self._where)
        kernels = list(dict.fromkeys(kernel for launched in self._launched for kernel in launched))
        self._failure = GpuFault(
            f"a kernel failed with {self.driver.status_name(status)}",
            where=f"{self._where}; launched last: {', '.join(kernels[-_REMEMBERED:]) or 'nothing of shardc'}",
            fix="restart the process; to find the invalid access, run it under NVIDIA's compute-sanitizer",
        )
        return self._failure
