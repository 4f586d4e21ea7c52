"""GPUs as the launcher sees them: what a target means here, one runtime per GPU, errors of the family."""

from __future__ import annotations

import pytest

from shardc.hlo.errors import EnvironmentProblem, RunError
from shardc.launcher.gpu import devices
from shardc.launcher.gpu.devices import find_gpus, gpu_errors, gpu_facts, gpu_target_here, open_runtime
from shardc.native.gpu.cuda.driver import CudaDriver
from shardc.native.gpu.cuda.probe import CudaProbe, probe_driver
from shardc.native.gpu.problems import GpuFault, GpuProblem
from shardc.native.gpu.target import gpu_target
from tests.native.gpu.fake_cuda import FakeCuda

EMULATED = gpu_target("cuda-emulated")


def pretend(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> CudaProbe:
    """The GPUs that the launcher finds are those of a stand-in."""
    found = probe_driver(CudaDriver(fake))
    monkeypatch.setattr(devices, "find_gpus", lambda: found)
    return found


def test_problems_and_faults_are_told_in_the_family() -> None:
    with pytest.raises(EnvironmentProblem, match="no room") as problem, gpu_errors():
        raise GpuProblem("no room", where="GPU 0", fix="make some")
    assert (problem.value.where, problem.value.fix) == ("GPU 0", "make some")
    with pytest.raises(RunError, match="went wrong") as fault, gpu_errors():
        raise GpuFault("went wrong", where="kernel k")
    assert fault.value.where == "kernel k"


def test_programs_share_a_runtime_until_it_fails() -> None:
    runtime = open_runtime(EMULATED, 3)
    assert open_runtime(EMULATED, 3) is runtime
    assert open_runtime(EMULATED, 4) is not runtime
    stream, memory = runtime.stream(), runtime.allocate(4)
    with pytest.raises(GpuFault):
        runtime.copy(memory.address, 1, 4, stream)  # refused: nothing was begun
    assert open_runtime(EMULATED, 3) is runtime

    def astray() -> None:
        raise GpuFault("a kernel failed")

    runtime._put(stream, astray)  # type: ignore[attr-defined]
    with pytest.raises(GpuFault):
        runtime.synchronize()
    assert open_runtime(EMULATED, 3) is not runtime
    assert open_runtime(EMULATED, 3) is open_runtime(EMULATED, 3)


def test_without_a_gpu_the_reason_comes_first() -> None:
    if find_gpus().devices:
        pytest.skip("there is a GPU")
    for call in (gpu_target_here, lambda: open_runtime(gpu_target("cuda:sm_80"))):
        with pytest.raises(EnvironmentProblem, match="no NVIDIA GPU can be used: "):
            call()
    assert str(gpu_facts()["GPU"]).startswith("none: ")


def test_what_cuda_means_here(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, FakeCuda(capability=(8, 9), devices=2))
    assert str(gpu_target_here(1)) == "nvptx64-nvidia-cuda sm_89"
    with pytest.raises(EnvironmentProblem, match="there is no GPU 2: the driver shows 2"):
        gpu_target_here(2)
    with pytest.raises(
        EnvironmentProblem, match=r"compiled for sm_90, but this GPU has compute capability 8.9"
    ) as caught:
        open_runtime(gpu_target("cuda:sm_90"))
    assert caught.value.fix == "compile for cuda:sm_89"
    with pytest.raises(EnvironmentProblem, match="code for gfx90a can be generated, but not run"):
        open_runtime(gpu_target("rocm:gfx90a"))


def test_what_is_told_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, FakeCuda(devices=1))
    facts = gpu_facts()
    assert facts["GPU 0"] == "Fake H100, 64.0 MiB, compute capability 9.0, code sm_90"
    assert facts["GPU driver"] == "CUDA 13.0"
    pretend(monkeypatch, FakeCuda(capability=(7, 0)))
    assert "not usable, its compute capability 7.0 is not supported; the minimum is 8.0" in gpu_facts()["GPU 0"]
