"""A stand-in for the module ``cuda.bindings.driver``, over the emulation: CUDA's rules without a GPU.

It knows what the driver knows: contexts have to be current, a capture spreads over events and has to be joined, memory
may not be taken while one is under way, arguments of a kernel are read where the launch's table points to, by the
kernel's signature in its PTX. Code is PTX of which it has been told the emulated object.
"""

from __future__ import annotations

import ctypes
import enum
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from shardc.native.gpu.cuda.driver import ENUMS, FUNCTIONS
from shardc.native.gpu.emulated.coroutines import EmulatedModule, load_emulated
from shardc.native.gpu.emulated.memory import Heap
from shardc.native.gpu.emulated.queue import Work, WorkQueue
from shardc.native.gpu.problems import GpuFault, GpuProblem
from shardc.native.gpu.runtime import LaunchShape

__all__ = ["FakeCuda", "Status"]

Status = enum.IntEnum(
    "Status",
    {
        **ENUMS["CUresult"],
        "CUDA_ERROR_INVALID_CONTEXT": 201,
        "CUDA_ERROR_INVALID_HANDLE": 400,
        "CUDA_ERROR_LAUNCH_FAILED": 719,
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": 900,
        "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED": 903,
        "CUDA_ERROR_STREAM_CAPTURE_UNJOINED": 904,
        "CUDA_ERROR_STREAM_CAPTURE_ISOLATION": 905,
    },
)
#: What works without a context.
_FREE = frozenset(
    {
        "cuInit",
        "cuDriverGetVersion",
        "cuGetErrorName",
        "cuGetErrorString",
        "cuCtxSetCurrent",
        "cuDevicePrimaryCtxRetain",
    }
    | {name for name in FUNCTIONS if name.startswith("cuDevice")}
)
#: What a capture does not bear: it waits, or changes what graphs rely on.
_UNCAPTURED = frozenset({"cuMemAlloc", "cuMemFree", "cuMemFreeHost", "cuMemHostAlloc", "cuModuleUnload"})


class _Refusal(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(status.name)
        self.status = status


def _method(name: str) -> str:
    """cuMemAlloc -> _mem_alloc"""
    return re.sub(r"[A-Z]", lambda letter: "_" + letter[0].lower(), name.removeprefix("cu"))


class _Handle(int):
    """As the bindings' handles: an object that converts to an integer."""


class _Capture:
    def __init__(self, origin: int) -> None:
        self.origin = origin
        self.works: list[Work] = []
        self.streams: dict[int, Work] = {}


class FakeCuda:
    """The bindings' functions and enumerations. ``objects``: PTX (with no zero at its end) -> its emulated object.

    ``statuses[name]`` is answered by a function instead of doing anything, as often as it is there; ``lost`` is
    answered by everything that waits, once work went wrong. ``calls`` counts calls.
    """

    CUresult = Status

    def __init__(
        self,
        objects: Mapping[bytes, bytes] | None = None,
        *,
        memory: int = 1 << 26,
        capability: tuple[int, int] = (9, 0),
        devices: int = 1,
        version: int = 13000,
        seed: int | None = None,
    ) -> None:
        for kind, names in ENUMS.items():
            if kind != "CUresult":
                setattr(self, kind, enum.IntEnum(kind, dict(names)))
        self.CUhostFn = int
        self.calls: Counter[str] = Counter()
        self.statuses: dict[str, list[int]] = {}
        self.lost: int | None = None
        self.log = b""
        #: Parameters of kernels whose PTX does not say.
        self.parameters: dict[str, int] = {}
        self.objects = dict(objects or {})
        self._memory, self._devices, self._version = memory, devices, version
        self._attributes = {75: capability[0], 76: capability[1], 16: 132, 38: 50 << 20, 20: 0, 97: 227 << 10}
        self._heap = Heap(memory, "fake GPU")
        self._queue = WorkQueue(seed)
        self._current: int | None = None
        self._next = 1000
        self._tails: dict[int, Work | None] = {}
        self._events: dict[int, tuple[Work, _Capture | None] | None] = {}
        self._times: dict[int, float] = {}
        self._captures: dict[int, _Capture] = {}
        self._graphs: dict[int, list[Work]] = {}
        self._modules: dict[int, tuple[EmulatedModule, dict[str, int]]] = {}
        self._functions: dict[int, tuple[EmulatedModule, str, int]] = {}
        self._allowed: dict[int, int] = {}

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        if name not in FUNCTIONS:
            raise AttributeError(name)
        return partial(self._call, name)

    def _call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        assert len(arguments) == FUNCTIONS[name], f"{name} takes {FUNCTIONS[name]} arguments"
        self.calls[name] += 1
        if self.statuses.get(name):
            return (Status(self.statuses[name].pop(0)), None)
        try:
            if name not in _FREE and self._current is None:
                raise _Refusal(Status.CUDA_ERROR_INVALID_CONTEXT)
            if name in _UNCAPTURED and self._captures:
                raise _Refusal(Status.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            answer = getattr(self, _method(name))(*arguments)
        except _Refusal as refusal:
            return (refusal.status, None)
        return (Status.CUDA_SUCCESS,) if answer is None else (Status.CUDA_SUCCESS, *answer)

    def _handle(self) -> _Handle:
        self._next += 1
        return _Handle(self._next)

    # Devices and contexts.

    def _init(self, flags: int) -> None:
        assert flags == 0

    def _driver_get_version(self) -> tuple[int]:
        return (self._version,)

    def _device_get_count(self) -> tuple[int]:
        return (self._devices,)

    def _device_get(self, ordinal: int) -> tuple[int]:
        return (_Handle(ordinal),)

    def _device_get_name(self, length: int, device: int) -> tuple[bytes]:
        return (b"Fake H100".ljust(length, b"\0"),)

    def _device_get_attribute(self, attribute: int, device: int) -> tuple[int]:
        return (self._attributes[attribute],)

    def _device_total_mem(self, device: int) -> tuple[int]:
        return (self._memory,)

    def _device_primary_ctx_retain(self, device: int) -> tuple[int]:
        return (_Handle(77),)

    def _ctx_set_current(self, context: int) -> None:
        assert context == 77
        self._current = context

    def _get_error_name(self, status: Status) -> tuple[bytes]:
        return (status.name.encode(),)

    def _get_error_string(self, status: Status) -> tuple[bytes]:
        return (status.name.removeprefix("CUDA_ERROR_").replace("_", " ").lower().encode(),)

    # Memory.

    def _mem_alloc(self, nbytes: int) -> tuple[int]:
        try:
            return (_Handle(self._heap.allocate(nbytes)),)
        except GpuProblem:
            raise _Refusal(Status.CUDA_ERROR_OUT_OF_MEMORY) from None

    def _mem_host_alloc(self, nbytes: int, flags: int) -> tuple[int]:
        assert flags == 1
        return (_Handle(self._heap.allocate(nbytes, on_device=False)),)

    def _mem_free(self, address: int) -> None:
        self._wait(None)
        self._heap.release(address)
        self._heap.sweep()

    _mem_free_host = _mem_free

    def _mem_get_info(self) -> tuple[int, int]:
        return self._memory - self._heap.used, self._memory

    # Streams, events, work.

    def _stream_create(self, flags: int) -> tuple[int]:
        assert flags == 1
        handle = self._handle()
        self._tails[handle] = None
        return (handle,)

    def _event_create(self, flags: int) -> tuple[int]:
        assert flags in (0, 2)
        handle = self._handle()
        self._events[handle] = None
        return (handle,)

    def _event_destroy(self, event: int) -> None:
        del self._events[event]

    def _event_record(self, event: int, stream: int) -> None:
        work = self._put(stream, lambda: self._times.__setitem__(event, time.perf_counter()))
        self._events[event] = work, self._capture_of(stream)

    def _event_query(self, event: int) -> None:
        recorded = self._events[event]
        if recorded is not None and recorded[1] is None and not recorded[0].done:
            raise _Refusal(Status.CUDA_ERROR_NOT_READY)

    def _event_elapsed_time(self, first: int, last: int) -> tuple[float]:
        return ((self._times[last] - self._times[first]) * 1e3,)

    def _stream_wait_event(self, stream: int, event: int, flags: int) -> None:
        assert flags == 0
        recorded = self._events[event]
        if recorded is None:
            return
        work, capture = recorded
        if capture is None and self._capture_of(stream) is not None:
            raise _Refusal(Status.CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
        if capture is not None and self._capture_of(stream) is None:
            capture.streams[stream] = work  # the stream joins the capture
            return
        self._put(stream, None, work)

    def _stream_query(self, stream: int) -> None:
        tail = self._tails[stream]
        if tail is not None and not tail.done:
            self._queue.finish(tail)
            raise _Refusal(Status.CUDA_ERROR_NOT_READY)

    def _stream_synchronize(self, stream: int) -> None:
        if self._captures:
            raise _Refusal(Status.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        self._wait(self._tails[stream])

    def _memcpy_async(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self._check(to, nbytes)
        self._check(source, nbytes)
        self._put(stream, partial(ctypes.memmove, to, source, nbytes))

    def _memset_d8_async(self, to: int, byte: int, nbytes: int, stream: int) -> None:
        self._check(to, nbytes)
        self._put(stream, partial(ctypes.memset, to, byte, nbytes))

    def _launch_host_func(self, stream: int, function: int, data: int) -> None:
        self._put(stream, partial(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function), data))

    # Code.

    def _module_load_data_ex(self, image: int, count: int, options: list[int], values: list[Any]) -> tuple[int]:
        assert count == len(options) == len(values)
        assert [int(o) for o in options] == [5, 6]
        assert isinstance(values[0], bytearray)
        assert len(values[0]) == values[1]
        ptx = ctypes.string_at(image)
        if ptx not in self.objects:
            values[0][: len(self.log)] = self.log
            raise _Refusal(Status.CUDA_ERROR_INVALID_PTX)
        handle = self._handle()
        entries = re.findall(r"\.entry\s+(\S+?)\(([^)]*)\)", ptx.decode())
        counts = {name: parameters.count(".param") for name, parameters in entries}
        self._modules[handle] = load_emulated([self.objects[ptx]]), counts
        return (handle,)

    def _module_get_function(self, module: int, name: bytes) -> tuple[int]:
        loaded, counts = self._modules[module]
        if name.decode() not in counts:
            raise _Refusal(Status.CUDA_ERROR_NOT_FOUND)
        handle = self._handle()
        self._functions[handle] = loaded, name.decode(), counts[name.decode()]
        return (handle,)

    def _func_set_attribute(self, function: int, attribute: int, value: int) -> None:
        assert attribute == 8
        self._allowed[function] = value

    def _module_unload(self, module: int) -> None:
        assert self._queue.idle, "a module is unloaded while it may run"
        del self._modules[module]

    def _launch_kernel(self, function: int, *rest: Any) -> None:
        *shape, shared, stream, table, extra = rest
        assert (*shape[4:], extra) == (1, 1, 0)
        if shared > self._allowed.get(function, 48 << 10):
            raise _Refusal(Status.CUDA_ERROR_INVALID_VALUE)
        loaded, name, count = self._functions[function]
        count = count or self.parameters[name]
        places = (ctypes.c_uint64 * count).from_address(table)
        pointers = [ctypes.c_uint64.from_address(place).value for place in places[:-1]]
        device = ctypes.c_int32.from_address(places[-1]).value
        launch = LaunchShape((shape[0], shape[1], shape[2]), shape[3], shared)
        self._put(stream, partial(loaded.launch, name, launch, pointers, device))

    # Graphs.

    def _stream_begin_capture(self, stream: int, mode: int) -> None:
        assert mode == 2
        if self._capture_of(stream) is not None:
            raise _Refusal(Status.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
        self._captures[stream] = _Capture(stream)

    def _stream_end_capture(self, stream: int) -> tuple[int]:
        capture = self._captures.pop(stream, None)
        if capture is None:
            raise _Refusal(Status.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
        reached: set[Work] = set()
        waiting = [capture.streams[stream]] if stream in capture.streams else []
        while waiting:
            work = waiting.pop()
            reached.add(work)
            waiting += [w for w in work.after if w not in reached]
        if set(capture.works) - reached:
            raise _Refusal(Status.CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
        handle = self._handle()
        self._graphs[handle] = capture.works
        return (handle,)

    def _graph_instantiate(self, graph: int, flags: int) -> tuple[int]:
        assert flags == 0
        handle = self._handle()
        self._graphs[handle] = self._graphs[graph]
        return (handle,)

    def _graph_destroy(self, graph: int) -> None:
        del self._graphs[graph]

    _graph_exec_destroy = _graph_destroy

    def _graph_launch(self, graph: int, stream: int) -> None:
        before = [tail] if (tail := self._tails[stream]) is not None else []
        copies: dict[Work, Work] = {}
        for work in self._graphs[graph]:
            copies[work] = self._queue.add(work.run, [copies[w] for w in work.after] or before)
        self._tails[stream] = self._queue.add(None, [*before, *copies.values()])

    # What the functions share.

    def _capture_of(self, stream: int) -> _Capture | None:
        return next((c for c in self._captures.values() if stream == c.origin or stream in c.streams), None)

    def _put(self, stream: int, run: Callable[[], object] | None, *others: Work) -> Work:
        capture = self._capture_of(stream)
        tail = self._tails[stream] if capture is None else capture.streams.get(stream)
        after = (*(() if tail is None else (tail,)), *others)
        if capture is None:
            self._tails[stream] = work = self._queue.add(run, after)
        else:
            capture.streams[stream] = work = Work(run, after)
            capture.works.append(work)
        return work

    def _check(self, address: int, nbytes: int) -> None:
        try:
            self._heap.check(address, nbytes, "")
        except GpuFault:
            raise _Refusal(Status.CUDA_ERROR_INVALID_VALUE) from None

    def _wait(self, last: Work | None) -> None:
        if self.lost is None:
            try:
                self._queue.finish(last)
            except GpuFault:
                self.lost = Status.CUDA_ERROR_LAUNCH_FAILED
        if self.lost is not None:
            raise _Refusal(Status(self.lost))
