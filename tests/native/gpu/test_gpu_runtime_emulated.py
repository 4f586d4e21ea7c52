"""The emulated GPU finds what a GPU would not: memory read unwritten, and written astray."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.native.gpu.emulated.queue import WorkQueue
from shardc.native.gpu.emulated.runtime import EmulatedRuntime
from shardc.native.gpu.problems import GpuFault
from tests.native.gpu.gpu_sample_kernels import BYTES, SHAPE, download, sample_image


def test_new_memory_is_poisoned() -> None:
    runtime = EmulatedRuntime()
    assert np.isnan(download(runtime, runtime.allocate(BYTES), runtime.stream())).all()


def test_writes_beside_an_array_are_found() -> None:
    runtime = EmulatedRuntime()
    stream = runtime.stream()
    module = runtime.load([sample_image()])
    x, y = runtime.allocate(BYTES), runtime.allocate(BYTES)
    runtime.launch(module.kernel("astray"), SHAPE, [x.address, y.address], 0, stream)
    with pytest.raises(GpuFault, match="written beside") as caught:
        runtime.synchronize()
    assert caught.value.where == "astray"
    assert runtime.failed
    with pytest.raises(GpuFault, match="written beside"):  # as with a GPU: it is lost
        runtime.synchronize()


def test_times_between_events() -> None:
    runtime = EmulatedRuntime()
    stream = runtime.stream()
    first, last = runtime.event(timed=True), runtime.event(timed=True)
    runtime.record(first, stream)
    runtime.record(last, stream)
    with pytest.raises(GpuFault, match="have not happened"):
        runtime.elapsed(first, last)
    runtime.synchronize()
    assert runtime.elapsed(first, last) >= 0


def test_a_queue_does_not_grow_without_end() -> None:
    queue = WorkQueue()
    done: list[int] = []
    last = None
    for n in range(3 * WorkQueue.LIMIT):
        last = queue.add(lambda n=n: done.append(n), [last] if last else [])
    assert len(done) >= WorkQueue.LIMIT
    queue.finish()
    assert done == list(range(3 * WorkQueue.LIMIT))
    assert queue.idle


def test_copies_stay_in_memory_and_do_not_overlap() -> None:
    runtime = EmulatedRuntime()
    stream = runtime.stream()
    x = runtime.allocate(BYTES)
    with pytest.raises(GpuFault, match="not memory of the device"):
        runtime.copy(x.address, x.address + BYTES, 4, stream)
    with pytest.raises(GpuFault, match="overlaps itself"):
        runtime.copy(x.address, x.address + 4, 8, stream)
