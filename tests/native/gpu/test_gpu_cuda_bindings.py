"""The CUDA runtime through the real cuda-python, down to the arguments that arrive in the driver's library: a stub of
it, in C, prints them. What is missing to a GPU then is the GPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import gc
import numpy as np
from shardc.native.gpu.cuda.runtime import CudaRuntime
from shardc.native.gpu.problems import GpuFault, GpuProblem
from shardc.native.gpu.runtime import Image, LaunchShape

def failed(call):
    try:
        call()
    except (GpuFault, GpuProblem) as error:
        print("raised", type(error).__name__, str(error).replace("\\n", " | "), flush=True)

runtime = CudaRuntime(0)
print(runtime.describe(), flush=True)
stream, other = runtime.stream(), runtime.stream()
module = runtime.load([Image("ptx", b".version 8")])
failed(lambda: runtime.load([Image("ptx", b"bad")]))
kernel = module.kernel("add", 100 << 10)
failed(lambda: module.kernel("nope"))
x, y = runtime.allocate(256), runtime.allocate(256)
print("x, y", hex(x.address), hex(y.address), flush=True)
host = runtime.pinned(256)
host.view(np.float32)[:] = np.arange(64)
runtime.copy(x.address, host.ctypes.data, 256, stream)
runtime.launch(kernel, LaunchShape((1, 2, 3), 64, 70 << 10), [x.address, y.address], -5, stream)
runtime.copy(host.ctypes.data, y.address, 256, stream)
runtime.host_call(lambda: print("called", host.view(np.float32)[:4], flush=True), stream)
runtime.synchronize(stream)
runtime.fill(y.address, 7, 256, stream)
event = runtime.event(timed=True)
runtime.record(event, stream)
runtime.wait(event, other)
print("seconds", runtime.elapsed(event, event), flush=True)
graph = runtime.capture([stream, other], lambda: runtime.launch(
    kernel, LaunchShape((1, 1, 1), 64), [x.address, y.address], 2, other))
graph.launch(stream)
del x, y
gc.collect()
runtime.allocate(256)
failed(lambda: runtime.allocate(1 << 40))
runtime.fill(0, 0, 1, stream)
failed(lambda: runtime.synchronize(stream))
"""

ARRIVED = [
    r"cuInit 0",
    r"'name': 'Stub GPU', .*'capability': '9.0', 'code': 'sm_90', 'memory': 17179869184",
    r"cuStreamCreate flags 1 -> 0x110",
    r"cuModuleLoadDataEx image \.ver n 2 options 5 6 size 16384",
    r"raised GpuProblem the driver cannot load the ptx: CUDA_ERROR_STUB: stub string \| stub log: line 7",
    r"cuModuleGetFunction 0x4d0 add",
    r"cuFuncSetAttribute 0xf00 8 102400",
    r"raised GpuFault no kernel 'nope'",
    r"x, y (?P<x>0x\w+) (?P<y>0x\w+)",
    r"cuMemHostAlloc 512 1",
    r"cuMemcpyAsync 256 stream 0x110",
    r"cuLaunchKernel 0xf00 grid 1 2 3 block 64 1 1 shared 71680 stream 0x110 (?P=x) (?P=y) device -5 extra \(nil\)",
    r"cuMemcpyAsync 256 stream 0x110",
    r"cuLaunchHostFunc 0x110",
    r"called \[-5\. -4\. -3\. -2\.\]",
    r"cuStreamSynchronize 0x110",
    r"cuMemsetD8Async 7 256 0x110",
    r"cuEventCreate flags 0 -> (?P<event>0x\w+)",
    r"cuEventRecord (?P=event) 0x110",
    r"cuStreamWaitEvent 0x120 (?P=event) 0",
    r"seconds 0.0015",
    r"cuStreamBeginCapture 0x110 2",
    r"cuEventRecord (?P<fork>0x\w+) 0x110",
    r"cuStreamWaitEvent 0x120 (?P=fork) 0",
    r"cuLaunchKernel .* stream 0x120 .* device 2 ",
    r"cuEventRecord (?P<join>0x\w+) 0x120",
    r"cuStreamWaitEvent 0x110 (?P=join) 0",
    r"cuStreamEndCapture 0x110",
    r"cuGraphInstantiate 0x6a 0",
    r"cuGraphDestroy 0x6a",
    r"cuGraphLaunch 0x6e 0x110",
    r"cuEventQuery",
    r"raised GpuProblem out of memory: 1,099,511,627,776 bytes are needed, but only 123 of 456 are free",
    r"raised GpuFault a kernel failed with CUDA_ERROR_ILLEGAL_ADDRESS: .*launched last: add",
]


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stub, which is found before any real driver."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler that makes a libcuda.so.1")
    pytest.importorskip("cuda.bindings.driver")
    folder = tmp_path_factory.mktemp("stub")
    source = Path(__file__).with_name("stub_driver.c")
    options = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1")]
    subprocess.run([compiler, *options, str(source), "-ldl"], check=True, timeout=60)
    return folder


def test_arguments_arrive_as_they_were_meant(stub: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(stub)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = iter(done.stdout.splitlines())
    known: dict[str, str] = {}
    for wanted in ARRIVED:
        pattern = wanted
        for name, value in known.items():
            pattern = pattern.replace(f"(?P={name})", re.escape(value))
        hit = next((m for line in lines if (m := re.search(pattern, line))), None)
        assert hit is not None, f"{pattern}\n\n{done.stdout}"
        known |= hit.groupdict()


def test_shardc_devices_names_the_gpu(stub: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(stub)}
    done = subprocess.run(
        [sys.executable, "-m", "shardc", "devices"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert re.search(r"GPU 0 +Stub GPU, 16(\.\d+)? GiB, compute capability 9.0, code sm_90", done.stdout), done.stdout
    assert re.search(r"GPU driver +CUDA 13.0", done.stdout)
