"""What both runtimes promise: order of streams and events, graphs, memory, errors before anything is launched.

CUDA's runs over a stand-in for the driver, so that its calls, their order and their arguments are tested without a GPU.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

from shardc.native.gpu.problems import GpuFault, GpuProblem
from shardc.native.gpu.runtime import Image, LaunchShape
from tests.native.gpu.gpu_sample_kernels import BYTES, SHAPE, THREADS, download, sample_runtime, upload

KINDS = pytest.mark.parametrize("kind", ["emulated", "cuda"])


@KINDS
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_stream_keeps_its_order(kind: str, seed: int | None) -> None:
    runtime, image = sample_runtime(kind, seed)
    stream = runtime.stream()
    module = runtime.load([image])
    x = upload(runtime, np.arange(THREADS, dtype=np.float32), stream)
    y = runtime.allocate(BYTES)
    runtime.launch(module.kernel("add"), SHAPE, [x.address, y.address], 3, stream)
    for _ in range(4):
        runtime.launch(module.kernel("double"), SHAPE, [y.address], 0, stream)
    assert (download(runtime, y, stream) == (np.arange(THREADS) + 3) * 16).all()


def _two_streams(kind: str, seed: int, wait: bool) -> float:
    """A value is written by one stream and copied by another, which waits for it or not."""
    runtime, _image = sample_runtime(kind, seed)
    one, other = runtime.stream(), runtime.stream()
    memory = runtime.allocate(BYTES)
    runtime.fill(memory.address, 0, BYTES, one)
    event = runtime.event()
    runtime.record(event, one)
    if wait:
        runtime.wait(event, other)
    return float(download(runtime, memory, other)[0])


@KINDS
def test_a_missing_wait_is_seen_by_some_order(kind: str) -> None:
    assert {_two_streams(kind, seed, True) for seed in range(8)} == {0.0}
    unordered = [_two_streams(kind, seed, False) for seed in range(8)]
    assert any(np.isnan(v) for v in unordered)
    assert any(v == 0 for v in unordered)


@KINDS
def test_nothing_runs_before_somebody_waits(kind: str) -> None:
    runtime, _image = sample_runtime(kind)
    stream = runtime.stream()
    done: list[int] = []
    for n in range(3):
        runtime.host_call(lambda n=n: done.append(n), stream)
    assert done == []
    runtime.synchronize()
    assert done == [0, 1, 2]


@KINDS
@pytest.mark.parametrize("seed", [None, 5])
def test_a_graph_runs_as_often_as_it_is_launched(kind: str, seed: int | None) -> None:
    runtime, image = sample_runtime(kind, seed)
    one, other = runtime.stream(), runtime.stream()
    kernel = runtime.load([image]).kernel("double")
    x, y = (upload(runtime, np.ones(THREADS, np.float32), one) for _ in range(2))

    def work() -> None:
        runtime.launch(kernel, SHAPE, [x.address], 0, one)
        event = runtime.event()
        runtime.record(event, one)
        runtime.wait(event, other)
        runtime.copy(y.address, x.address, BYTES, other)

    graph = runtime.capture([one, other], work)
    runtime.synchronize()
    assert download(runtime, y, one)[0] == 1  # nothing ran
    for _ in range(5):
        graph.launch(one)
    assert (download(runtime, y, one) == 32).all()  # without an event: the graph ends when all its streams do


@KINDS
def test_captures_are_as_strict_as_cuda(kind: str) -> None:
    runtime, _image = sample_runtime(kind)
    stream, outside = runtime.stream(), runtime.stream()
    event = runtime.event()
    runtime.record(event, outside)
    forbidden: list[tuple[Callable[[], None], str]] = [
        (lambda: runtime.wait(event, stream), "other side of a capture"),
        (runtime.synchronize, "inside of a capture"),
        (lambda: runtime.host_call(print, stream), "inside of a capture"),
        (lambda: runtime.capture([stream], lambda: None), "capture inside of a capture"),
    ]
    for work, message in forbidden:
        with pytest.raises(GpuFault, match=message):
            runtime.capture([stream], work)
    inside = runtime.event()
    graph = runtime.capture([stream], lambda: runtime.record(inside, stream))
    with pytest.raises(GpuFault, match="other side"):
        runtime.wait(inside, outside)
    graph.launch(stream)
    runtime.synchronize()


@KINDS
def test_memory_is_limited_and_comes_back(kind: str) -> None:
    runtime, _ = sample_runtime(kind, memory=1 << 20)
    stream = runtime.stream()
    first = runtime.allocate(768 << 10)
    with pytest.raises(
        GpuProblem, match=r"out of memory: 524,288 bytes are needed, but only 262,144 of 1,048,576 are free"
    ):
        runtime.allocate(512 << 10)
    runtime.fill(first.address, 1, first.nbytes, stream)
    del first
    gc.collect()
    again = runtime.allocate(1 << 20)  # waits for the work that used what was given back
    assert again.address % 256 == 0
    runtime.pinned(4 << 20)  # is the host's


@KINDS
def test_work_may_use_what_was_given_back_after_it(kind: str) -> None:
    runtime, image = sample_runtime(kind, 1)
    stream = runtime.stream()
    x = upload(runtime, np.full(THREADS, 7, np.float32), stream)  # drops the pinned array at once
    module = runtime.load([image])
    runtime.launch(module.kernel("double"), SHAPE, [x.address], 0, stream)
    host = runtime.pinned(BYTES)
    runtime.copy(host.ctypes.data, x.address, BYTES, stream)
    del x, module
    gc.collect()
    runtime.synchronize()
    assert (host.view(np.float32) == 14).all()


@KINDS
def test_what_no_gpu_would_do(kind: str) -> None:
    runtime, image = sample_runtime(kind)
    stream = runtime.stream()
    module = runtime.load([image])
    kernel = module.kernel("double")
    x = runtime.allocate(BYTES)
    launches = [
        (LaunchShape((1, 1, 1), 2048), x.address, "blocks of 2048 threads"),
        (LaunchShape((1, 70000, 1), 32), x.address, "a grid of 70000 blocks along axis 1"),
        (LaunchShape((0, 1, 1), 32), x.address, "a grid of 0 blocks"),
        (LaunchShape((1, 1, 1), 32, 100 << 10), x.address, "loaded for 0"),
        (SHAPE, x.address + 4, "no multiple of 16"),
    ]
    for shape, address, message in launches:
        with pytest.raises(GpuFault, match=message):
            runtime.launch(kernel, shape, [address], 0, stream)
    with pytest.raises(GpuFault, match="no kernel 'triple'"):
        module.kernel("triple")
    with pytest.raises(GpuProblem, match="shared memory"):
        module.kernel("double", 300 << 10)
    with pytest.raises(GpuProblem, match="cannot run opencl"):
        runtime.load([Image("opencl", b"")])


@KINDS
def test_errors_of_host_functions_are_raised_once(kind: str) -> None:
    runtime, _image = sample_runtime(kind)
    stream = runtime.stream()
    done: list[int] = []
    runtime.host_call(lambda: 1 // 0, stream)
    runtime.host_call(lambda: done.append(1), stream)
    with pytest.raises(ZeroDivisionError):
        runtime.synchronize()
    runtime.synchronize()
    assert done == [1]
