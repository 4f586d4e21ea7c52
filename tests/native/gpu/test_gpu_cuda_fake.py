"""The CUDA runtime over a stand-in for the driver: what it finds at first, what goes wrong, what memory it keeps."""

from __future__ import annotations

import gc
import inspect
from typing import Any

import numpy as np
import pytest

from shardc.native.gpu.cuda.driver import ENUMS, FUNCTIONS, CudaDriver
from shardc.native.gpu.cuda.probe import probe_driver
from shardc.native.gpu.problems import GpuFault, GpuProblem
from shardc.native.gpu.runtime import Image, LaunchShape
from tests.native.gpu.fake_cuda import FakeCuda
from tests.native.gpu.gpu_sample_kernels import (
    BYTES,
    SHAPE,
    THREADS,
    cuda_runtime,
    download,
    sample_image,
    sample_ptx,
    upload,
)


def fake_cuda(**options: Any) -> FakeCuda:
    return FakeCuda({sample_ptx().data: sample_image().data}, **options)


def test_the_real_bindings_have_what_is_called() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    arity = {name: len(inspect.signature(getattr(bindings, name)).parameters) for name in FUNCTIONS}
    assert arity == dict(FUNCTIONS)
    values = {kind: {name: int(getattr(getattr(bindings, kind), name)) for name in ENUMS[kind]} for kind in ENUMS}
    assert values == {kind: dict(names) for kind, names in ENUMS.items()}
    assert int(bindings.CUhostFn(4096)) == 4096
    CudaDriver(bindings)  # says itself what is missing


def test_the_real_bindings_take_the_options_that_are_given_to_them() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    convert = getattr(bindings, "_HelperCUjit_option", None)
    if convert is None:
        pytest.skip("these bindings convert options elsewhere")
    for name, value in (("CU_JIT_ERROR_LOG_BUFFER", bytearray(16)), ("CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES", 16)):
        convert(getattr(bindings.CUjit_option, name), value)


def test_bindings_that_are_too_old() -> None:
    class Old:
        CUresult = FakeCuda.CUresult

    with pytest.raises(GpuProblem, match="the installed cuda-python lacks cuCtxSetCurrent") as caught:
        CudaDriver(Old())
    assert "pip install" in str(caught.value)


def test_what_a_driver_says() -> None:
    found = probe_driver(CudaDriver(fake_cuda(devices=2, capability=(9, 0))))
    assert [d.ordinal for d in found.devices] == [0, 1]
    device = found.device(1)
    assert (device.name, device.capability, device.shared_bytes) == ("Fake H100", (9, 0), 227 << 10)
    assert device.target.arch == "sm_90"
    with pytest.raises(GpuProblem, match="there is no GPU 2: the driver shows 2"):
        found.device(2)


@pytest.mark.parametrize(
    ("capability", "arch"), [((8, 0), "sm_80"), ((8, 7), "sm_86"), ((8, 9), "sm_89"), ((12, 0), "sm_90")]
)
def test_newer_gpus_run_code_for_older_ones(capability: tuple[int, int], arch: str) -> None:
    assert probe_driver(CudaDriver(fake_cuda(capability=capability))).device(0).target.arch == arch


def test_why_a_gpu_is_not_usable() -> None:
    old = fake_cuda(capability=(7, 5))
    with pytest.raises(GpuProblem, match=r"compute capability 7.5 is not supported; the minimum is 8.0"):
        cuda_runtime(old)
    prohibited = fake_cuda()
    prohibited._attributes[20] = 2
    with pytest.raises(GpuProblem, match="compute mode is Prohibited"):
        cuda_runtime(prohibited)
    none = fake_cuda()
    none.statuses["cuInit"] = [100]
    with pytest.raises(GpuProblem, match="cuInit failed with CUDA_ERROR_NO_DEVICE: no device"):
        cuda_runtime(none)
    with pytest.raises(GpuProblem, match="the driver shows no GPU"):
        cuda_runtime(fake_cuda(devices=0))
    with pytest.raises(GpuProblem, match=r"the driver supports only CUDA 11.8"):
        cuda_runtime(fake_cuda(version=11080))
    for fake in (old, prohibited, none):
        assert fake.calls["cuDevicePrimaryCtxRetain"] == 0  # nothing was begun


def test_code_that_the_driver_refuses() -> None:
    fake = fake_cuda()
    fake.log = b"ptxas application ptx input, line 3; error"
    runtime = cuda_runtime(fake)
    with pytest.raises(GpuProblem, match="line 3; error") as caught:
        runtime.load([Image("ptx", b".version 99")])
    assert "CUDA_ERROR_INVALID_PTX" in caught.value.what
    fake.statuses["cuModuleLoadDataEx"] = [209]
    with pytest.raises(GpuProblem, match="CUDA_ERROR_NO_BINARY_FOR_GPU") as caught:
        runtime.load([Image("cubin", b"\x7fELF\0\0")])
    assert "shardc devices" in str(caught.value.fix)


def test_a_cubin_that_is_too_new_gives_place_to_its_ptx() -> None:
    fake = fake_cuda()
    runtime = cuda_runtime(fake)
    fake.statuses["cuModuleLoadDataEx"] = [200]
    runtime.load([Image("cubin", b"ELF")], [sample_ptx().data]).kernel("add")
    fake.statuses["cuModuleLoadDataEx"] = [200, 222]
    with pytest.raises(GpuProblem, match="cannot load the ptx: CUDA_ERROR_UNSUPPORTED_PTX_VERSION"):
        runtime.load([Image("cubin", b"ELF")], [sample_ptx().data])
    fake.statuses["cuModuleLoadDataEx"] = [200]
    with pytest.raises(GpuProblem, match="cannot load the cubin: CUDA_ERROR_INVALID_IMAGE"):
        runtime.load([Image("cubin", b"ELF")], [b""])


def test_much_shared_memory_is_asked_for() -> None:
    fake = fake_cuda()
    runtime = cuda_runtime(fake)
    stream, module = runtime.stream(), runtime.load([sample_ptx()])
    x = upload(runtime, np.ones(THREADS, np.float32), stream)
    runtime.launch(
        module.kernel("double", 100 << 10), LaunchShape((1, 1, 1), THREADS, 100 << 10), [x.address], 0, stream
    )
    assert download(runtime, x, stream)[0] == 2
    assert fake.calls["cuFuncSetAttribute"] == 1
    module.kernel("double", 40 << 10)
    assert fake.calls["cuFuncSetAttribute"] == 1


def test_a_lost_gpu_names_the_kernels() -> None:
    fake = fake_cuda()
    runtime = cuda_runtime(fake)
    stream, module = runtime.stream(), runtime.load([sample_ptx()])
    x = upload(runtime, np.ones(THREADS, np.float32), stream)
    runtime.synchronize()
    runtime.launch(module.kernel("double"), SHAPE, [x.address], 0, stream)
    graph = runtime.capture([stream], lambda: runtime.launch(module.kernel("add"), SHAPE, [x.address] * 2, 0, stream))
    graph.launch(stream)
    fake.lost = 700
    with pytest.raises(GpuFault, match="CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        runtime.synchronize(stream)
    assert caught.value.where == "GPU 0 (Fake H100); launched last: double, add"
    assert runtime.failed
    for call in (runtime.stream, runtime.synchronize, lambda: runtime.allocate(4)):
        with pytest.raises(GpuFault, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            call()


def test_other_errors_name_the_function() -> None:
    fake = fake_cuda()
    runtime = cuda_runtime(fake)
    fake.statuses["cuEventCreate"] = [1]
    with pytest.raises(GpuFault, match="cuEventCreate failed with CUDA_ERROR_INVALID_VALUE: invalid value"):
        runtime.event()
    assert not runtime.failed
    runtime.event()


def test_memory_is_used_again_without_asking_the_driver() -> None:
    fake = fake_cuda()
    runtime = cuda_runtime(fake)
    stream = runtime.stream()
    for step in range(10):
        memory = upload(runtime, np.full(THREADS, step, np.float32), stream)
        assert download(runtime, memory, stream)[0] == step
    assert fake.calls["cuMemAlloc"] <= 3
    assert fake.calls["cuMemFree"] == 0
    assert fake.calls["cuMemHostAlloc"] <= 6


def test_memory_in_use_is_not_given_out_again() -> None:
    runtime = cuda_runtime(fake_cuda())
    stream = runtime.stream()
    first = runtime.allocate(BYTES)
    runtime.fill(first.address, 1, BYTES, stream)
    place = first.address
    del first
    gc.collect()
    second = runtime.allocate(BYTES)  # the fill has not happened yet
    assert second.address != place
    runtime.synchronize()
    assert runtime.allocate(BYTES).address == place


def test_memory_that_runs_out_is_collected_first() -> None:
    fake = fake_cuda(memory=8 << 20)
    runtime = cuda_runtime(fake)
    kept = [runtime.allocate(2 << 20) for _ in range(4)]
    with pytest.raises(GpuProblem, match="out of memory: 4,194,304 bytes are needed, but only 0 of 8,388,608 are free"):
        runtime.allocate(4 << 20)
    kept.clear()
    runtime.allocate(8 << 20)
    assert fake.calls["cuMemFree"] == 4


def test_what_is_dropped_inside_of_a_capture_waits() -> None:
    fake = fake_cuda()
    runtime = cuda_runtime(fake)
    one, other = runtime.stream(), runtime.stream()
    kernel = runtime.load([sample_ptx()]).kernel("double")
    x = upload(runtime, np.ones(THREADS, np.float32), one)

    kept = [runtime.allocate(4), runtime.pinned(4), runtime.load([sample_ptx()]), runtime.capture([one], lambda: None)]

    def work() -> None:
        runtime.launch(kernel, SHAPE, [x.address], 0, one)
        kept.clear()
        gc.collect()
        runtime.record(runtime.event(), other)

    runtime.capture([one, other], work).launch(other)
    assert download(runtime, x, other)[0] == 2
    runtime.load([])
    assert fake.calls["cuModuleUnload"] == 1
    assert fake.calls["cuGraphExecDestroy"] == 2


def test_a_capture_that_fails_leaves_the_streams_usable() -> None:
    fake = fake_cuda()
    runtime = cuda_runtime(fake)
    streams = [runtime.stream() for _ in range(3)]

    def work() -> None:
        runtime.record(runtime.event(), streams[2])
        raise KeyError("x")

    with pytest.raises(KeyError):
        runtime.capture(streams, work)
    runtime.capture(streams, lambda: None).launch(streams[1])
    runtime.synchronize()


def test_modules_go_when_nothing_uses_them() -> None:
    fake = fake_cuda()
    runtime = cuda_runtime(fake)
    stream = runtime.stream()
    x = upload(runtime, np.ones(THREADS, np.float32), stream)
    runtime.launch(runtime.load([sample_ptx()]).kernel("double"), SHAPE, [x.address], 0, stream)
    gc.collect()
    assert fake.calls["cuModuleUnload"] == 0
    assert download(runtime, x, stream)[0] == 2
    runtime.load([sample_ptx()])
    assert fake.calls["cuModuleUnload"] == 1


def test_streams_are_used_again() -> None:
    fake = fake_cuda()
    runtime = cuda_runtime(fake)
    for _ in range(5):
        runtime.stream()
    assert fake.calls["cuStreamCreate"] == 1


def test_times() -> None:
    runtime = cuda_runtime(fake_cuda())
    stream = runtime.stream()
    first, last = runtime.event(timed=True), runtime.event(timed=True)
    runtime.record(first, stream)
    runtime.record(last, stream)
    runtime.synchronize()
    assert 0 <= runtime.elapsed(first, last) < 60
    with pytest.raises(GpuFault, match="not timed"):
        runtime.elapsed(runtime.event(), last)
