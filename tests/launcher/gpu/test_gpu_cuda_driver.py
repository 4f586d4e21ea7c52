"""Whole programs through the CUDA runtime: its driver is a stand-in that runs kernels' emulation by CUDA's rules.

What the step does to a real driver (streams, events, captures, memory) is thereby tested; what kernels do to a GPU is
not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P, Program, ShapeDtype
from shardc.collectives.in_process.transport import LocalTransport
from shardc.hlo.text.reader import read_hlo
from shardc.launcher.arrays.array import Array
from shardc.launcher.gpu.driver import GpuDriver
from shardc.launcher.gpu.memory import GpuContext
from shardc.native.gpu.cuda.driver import CudaDriver
from shardc.native.gpu.cuda.module import CudaModule
from shardc.native.gpu.cuda.probe import probe_driver
from shardc.native.gpu.cuda.runtime import CudaRuntime
from shardc.native.gpu.emulated.coroutines import load_emulated
from shardc.native.gpu.runtime import Image
from shardc.native.gpu.target import GpuTarget, gpu_target
from tests.launcher.gpu.gpu_driving import CONFIG, WHILE, cpu_driver, gpu_executable, values
from tests.native.gpu.fake_cuda import FakeCuda

X = np.random.default_rng(0).standard_normal((16, 12)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((12, 8)).astype(np.float32)


class CudaOverEmulation(CudaRuntime):
    """Takes emulated code for its own: every image becomes a PTX that the stand-in knows the object of."""

    def __init__(self, seed: int | None) -> None:
        self.fake = FakeCuda(seed=seed, memory=1 << 28)
        super().__init__(0, probe=probe_driver(CudaDriver(self.fake)))

    @property
    def target(self) -> GpuTarget:
        return gpu_target("cuda-emulated")

    def load(self, images: Sequence[Image], texts: Sequence[bytes] = ()) -> CudaModule:
        texts = []
        for image in images:
            lines = [f"// {len(self.fake.objects)}", *(f".entry {s}()" for s in load_emulated([image.data]).symbols)]
            texts.append("\n".join(lines).encode())
            self.fake.objects[texts[-1]] = image.data
        return super().load([Image("ptx", text) for text in texts])

    def launch(self, kernel: Any, shape: Any, pointers: Sequence[int], device: int, stream: Any) -> None:
        self.fake.parameters[kernel.name] = len(pointers) + 1
        super().launch(kernel, shape, pointers, device, stream)


def driver_of(program: Any, runtime: CudaRuntime) -> GpuDriver:
    return GpuDriver(gpu_executable(program), GpuContext(runtime), LocalTransport(), CONFIG, array_type=Array)


def train(devices: int) -> Program:
    """New weights, in place, and a loss."""

    def step(w: Any, x: Any) -> Any:
        y = x @ w
        return w - 0.01 * (x.T @ y), (y * y).sum() / 128

    specs = ShapeDtype((12, 8), "float32"), ShapeDtype((16, 12), "float32")
    shardings = P(None, "d"), P("d")
    return shardc.trace(step, *specs, mesh=Mesh({"d": devices}), in_shardings=shardings, donate_argnums=0)


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_steps_become_graphs_and_equal_the_cpu(devices: int, seed: int | None) -> None:
    runtime = CudaOverEmulation(seed)
    driver, cpu = driver_of(train(devices), runtime), cpu_driver(train(devices))
    w, x, w_cpu = driver.put(0, W), driver.put(1, X), W
    for _ in range(6):
        w, loss = driver([w, x])
        w_cpu, loss_cpu = values(cpu([w_cpu, X]))
        np.testing.assert_allclose(np.asarray(loss), loss_cpu, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(w), w_cpu, rtol=1e-5, atol=1e-6)
    calls = runtime.fake.calls
    assert calls["cuGraphInstantiate"] >= 1
    assert calls["cuGraphLaunch"] >= 3
    launches = calls["cuLaunchKernel"]
    driver([w, x])
    assert calls["cuLaunchKernel"] == launches  # all in the graph


@pytest.mark.parametrize("turns", [0, 3])
def test_a_loop_that_the_host_drives(turns: int) -> None:
    runtime = CudaOverEmulation(1)
    driver = driver_of(read_hlo(WHILE.replace("START", "start = s32[] copy(n)")), runtime)
    x = np.linspace(-2, 2, 64, dtype=np.float32)
    wanted = x
    for _ in range(turns):
        wanted = np.tanh(wanted)
    for _ in range(3):
        (got,) = driver([np.int32(turns), x])
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-6)


def test_memory_does_not_grow() -> None:
    runtime = CudaOverEmulation(None)
    driver = driver_of(train(1), runtime)
    w, x = driver.put(0, W), driver.put(1, X)
    for _ in range(3):
        w, _ = driver([w, x])
    taken = runtime.fake.calls["cuMemAlloc"]
    for _ in range(20):
        w, _ = driver([w, x])
    assert runtime.fake.calls["cuMemAlloc"] == taken
