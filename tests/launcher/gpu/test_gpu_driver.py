"""Programs on an emulated GPU, as virtual devices: equal to the CPU's driver, and arrays that stay on the GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P, Program, ShapeDtype
from shardc.collectives.in_process.transport import LocalTransport
from shardc.hlo.config import Config
from shardc.hlo.errors import EnvironmentProblem, InputError, RunError
from shardc.launcher.arrays.array import Array
from shardc.launcher.driver.checked import StepCheck, Unpartitioned
from shardc.launcher.gpu.driver import GpuDriver
from shardc.launcher.gpu.memory import GpuContext
from shardc.native.gpu.emulated.runtime import EmulatedRuntime
from tests.launcher.gpu.gpu_driving import CONFIG, Counting, cpu_driver, gpu_driver, gpu_executable, values

RNG = np.random.default_rng(0)
X = RNG.standard_normal((16, 12)).astype(np.float32)
W = RNG.standard_normal((12, 8)).astype(np.float32)


def mlp(devices: int, donate: bool = False) -> Program:
    """New weights and a loss; ``x`` split by rows, ``w`` by columns where that is even."""

    def step(w: Any, x: Any) -> Any:
        y = x @ w
        loss = (y * y).sum() / 128
        return w - 0.01 * (x.T @ y), loss

    specs = ShapeDtype((12, 8), "float32"), ShapeDtype((16, 12), "float32")
    mesh = Mesh({"d": devices})
    return shardc.trace(
        step, *specs, mesh=mesh, in_shardings=(P(None, "d"), P("d")), donate_argnums=0 if donate else ()
    )


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
@pytest.mark.parametrize("seed", [None, 3])
def test_virtual_devices_compute_what_the_cpu_does(devices: int, seed: int | None) -> None:
    program = mlp(devices)
    driver, cpu = gpu_driver(program, seed), cpu_driver(program)
    for k in (1, 2, 3):
        for got, want in zip(values(driver([W * k, X])), values(cpu([W * k, X])), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)
    assert (driver.steps, driver.collectives_done) == (3, cpu.collectives_done)


def test_arrays_stay_on_the_gpu_and_steps_become_graphs() -> None:
    runtime = Counting()
    driver = gpu_driver(mlp(4, donate=True), runtime=runtime)
    cpu = cpu_driver(mlp(4))
    w, x, w_cpu = driver.put(0, W), driver.put(1, X), W
    before = 0
    for k in range(6):
        if k == 4:
            runtime.copies = runtime.launches = runtime.waits = 0
            before = driver.graphs.captured
        w, loss = driver([w, x])
    assert (runtime.copies, runtime.launches, runtime.waits) == (0, 0, 0)
    assert driver.graphs.captured == before > 0
    for _ in range(6):
        w_cpu, loss_cpu = cpu([w_cpu, X])
    np.testing.assert_allclose(np.asarray(w), np.asarray(w_cpu), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(float(loss), float(loss_cpu), rtol=1e-4)


def test_what_was_read_of_an_array_is_not_what_its_memory_becomes() -> None:
    driver = gpu_driver(mlp(4, donate=True))
    w = driver.put(0, W)
    place = w._shards.addresses.tolist()
    np.testing.assert_array_equal(np.asarray(w), W)
    new, _ = driver([w, X])
    assert w.is_deleted
    assert new._shards.addresses.tolist() == place, "the donated memory is the result's"
    assert np.abs(np.asarray(new) - W).max() > 1e-3
    with pytest.raises(InputError, match="was donated"):
        np.asarray(w)


def test_arrays_go_between_cpu_and_gpu_and_between_layouts() -> None:
    program = mlp(4)
    driver, cpu = gpu_driver(program), cpu_driver(program)
    w, _ = driver([W, X])
    on_cpu, _ = cpu([w, X])  # downloaded
    again, _ = driver([on_cpu, X])  # uploaded
    want = cpu([cpu([cpu([W, X])[0], X])[0], X])[0]
    np.testing.assert_allclose(np.asarray(again), np.asarray(want), rtol=1e-5)
    whole = w.reshard((Mesh({"d": 4}), P("d")))
    np.testing.assert_array_equal(np.asarray(whole), np.asarray(w))
    np.testing.assert_allclose(np.asarray(driver([whole, X])[0]), np.asarray(driver([w, X])[0]))
    assert [s.data.shape for s in w.addressable_shards] == [(12, 2)] * 4
    assert isinstance(w.block_until_ready(), Array)
    np.testing.assert_array_equal(shardc.gather(w), np.asarray(w))


def test_many_small_and_large_arguments_go_through_pinned_memory() -> None:
    def step(*parts: Any) -> Any:
        return parts[0] + 1, parts[1] * 2

    big = RNG.standard_normal(5_000_000).astype(np.float32)  # more than is staged at a time
    program = shardc.trace(step, ShapeDtype((5_000_000,), "float32"), ShapeDtype((), "float32"))
    driver = gpu_driver(program, None)
    more, twice = driver([big, 4.0])
    np.testing.assert_array_equal(np.asarray(more), big + 1)
    assert float(twice) == 8


def test_wrong_arguments_are_told_before_anything_is_launched() -> None:
    runtime = Counting()
    driver = gpu_driver(mlp(2, donate=True), runtime=runtime)
    runtime.launches = 0
    with pytest.raises(InputError, match="takes 2 arguments"):
        driver([W])
    with pytest.raises(InputError, match="the parameter has"):
        driver([W, X[:, :3]])
    assert runtime.launches == 0
    spec = ShapeDtype((12, 8), "float32")
    two = gpu_driver(shardc.trace(lambda a, b: a + b, spec, spec, donate_argnums=0), runtime=runtime)
    w = two.put(0, W)
    with pytest.raises(InputError, match="a donated array is passed a second time"):
        two([w, w])
    assert runtime.launches == 0
    assert not w.is_deleted


def test_too_little_memory_is_a_clear_error() -> None:
    with pytest.raises(EnvironmentProblem, match="out of memory"):
        gpu_driver(mlp(4), runtime=EmulatedRuntime(memory_bytes=1 << 10))


def test_free_memory_is_given_back_before_memory_is_short() -> None:
    def add(x: Any) -> Any:
        return x + 1

    sizes = (300_000, 400_000)
    runtime = EmulatedRuntime(seed=1, memory_bytes=5 << 20)
    context = GpuContext(runtime)
    for n in sizes * 2:  # each fits alone
        executable = gpu_executable(shardc.trace(add, ShapeDtype((n,), "float32")))
        driver = GpuDriver(executable, context, LocalTransport(), CONFIG, array_type=Array)
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(np.asarray(driver([x])[0]), x + 1)
        del driver


def test_steps_are_compared_with_the_unpartitioned_program() -> None:
    program = mlp(4)
    executable = gpu_executable(program)
    transport, config = LocalTransport(), Config(check=True)

    def checked(source: Program) -> GpuDriver:
        whole = Unpartitioned.of(source.propagate())
        check = StepCheck(whole, executable, transport)
        return GpuDriver(executable, GpuContext(EmulatedRuntime(seed=2)), transport, config, check, array_type=Array)

    checked(program)([W, X])

    def other(w: Any, x: Any) -> Any:
        y = x @ w
        return w - 0.02 * (x.T @ y), (y * y).sum() / 128

    specs = ShapeDtype((12, 8), "float32"), ShapeDtype((16, 12), "float32")
    wrong = shardc.trace(other, *specs, mesh=Mesh({"d": 4}), in_shardings=(P(None, "d"), P("d")))
    with pytest.raises(RunError, match="differs from the unpartitioned program in 1 of 2 results"):
        checked(wrong)([W, X])


@pytest.mark.parametrize("forgotten", range(4))
def test_a_forgotten_event_shows(monkeypatch: pytest.MonkeyPatch, forgotten: int) -> None:
    """Planted: every so many waits for another stream are left out; some drawn order of the streams gives it away."""
    program = mlp(4)
    want = values(cpu_driver(program)([W, X]))
    wait, calls = EmulatedRuntime.wait, 0

    def forgetful(self: EmulatedRuntime, event: Any, stream: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % 4 != forgotten:
            wait(self, event, stream)

    monkeypatch.setattr(EmulatedRuntime, "wait", forgetful)
    for seed in range(12):
        got = values(gpu_driver(program, seed)([W, X]))
        if not all(np.allclose(a, b, rtol=2e-5, atol=1e-5) for a, b in zip(got, want, strict=True)):
            return
    pytest.fail("no order of the streams shows that a wait is missing")


def test_checkpoints_and_other_libraries_read_arrays_of_the_gpu(tmp_path: Path) -> None:
    driver = gpu_driver(mlp(4))
    w, loss = driver([W, X])
    shardc.save_checkpoint(tmp_path, {"w": w, "loss": loss}, step=1)
    back = shardc.load_checkpoint(tmp_path, like={"w": w, "loss": loss}).tree
    np.testing.assert_array_equal(np.asarray(back["w"]), np.asarray(w))
    np.testing.assert_allclose(np.asarray(driver([back["w"], X])[0]), np.asarray(driver([w, X])[0]))
    np.testing.assert_array_equal(np.from_dlpack(loss), np.asarray(loss))
    assert w.astype("int32").dtype == np.int32


def test_results_without_elements() -> None:
    spec = ShapeDtype((8, 4), "float32")
    program = shardc.trace(lambda x: (x[:0], x.sum(), x), spec, mesh=Mesh({"d": 2}), in_shardings=P("d"))
    empty, total, same = values(gpu_driver(program)([X[:8, :4]]))
    assert empty.shape == (0, 4)
    np.testing.assert_allclose(total, X[:8, :4].sum(), rtol=1e-5)
    np.testing.assert_array_equal(same, X[:8, :4])
