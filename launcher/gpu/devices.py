"""The GPUs of this machine: all of them, the unusable ones with the reason, and the runtime of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

from shardc.hlo.errors import EnvironmentProblem, RunError
from shardc.hlo.units import bytes_text
from shardc.native.gpu.problems import GpuFault, GpuProblem
from shardc.native.gpu.target import GpuTarget, Kind

if TYPE_CHECKING:
    from shardc.native.gpu.cuda.probe import CudaDevice, CudaProbe
    from shardc.native.gpu.runtime import Runtime

__all__ = ["find_gpus", "gpu_errors", "gpu_facts", "gpu_target_here", "open_runtime"]


@contextmanager
def gpu_errors() -> Iterator[None]:
    """`GpuProblem` leaves as `EnvironmentProblem` (something is missing), `GpuFault` as `RunError` (a run failed)."""
    try:
        yield
    except GpuProblem as problem:
        raise EnvironmentProblem(problem.what, where=problem.where, fix=problem.fix) from problem
    except GpuFault as fault:
        raise RunError(fault.what, where=fault.where, fix=fault.fix) from fault


def find_gpus() -> CudaProbe:
    """What was found: ``devices``, each with its ``problem``, or the ``problem`` that there are none. Never raises."""
    from shardc.native.gpu.cuda.probe import probe_cuda

    return probe_cuda()


def gpu_target_here(ordinal: int = 0) -> GpuTarget:
    """What the target ``cuda`` means on this machine: code for GPU ``ordinal``. EnvironmentProblem with the reason when
    it cannot be used; nothing has been started then."""
    with gpu_errors():
        return find_gpus().device(ordinal).target


def open_runtime(target: GpuTarget, ordinal: int = 0) -> Runtime:
    """The runtime that runs code for ``target`` on GPU ``ordinal``; the same one at every call, so that programs share
    memory. EnvironmentProblem when there is no such GPU, or it does not run such code."""
    with gpu_errors():
        if target.kind == "amdgpu":
            raise GpuProblem(
                f"code for {target.arch} can be generated, but not run", fix="choose cuda or cuda-emulated"
            )
        if target.kind == "nvptx":
            _check(find_gpus().device(ordinal), target)
        arch = target.arch if target.kind == "emulated" else ""  # a GPU runs code for older ones, too
        shared = (_opened(target.kind, arch, ordinal, attempt) for attempt in count())
        return next(r for r in shared if not (r.failed and target.kind == "emulated"))


@lru_cache(maxsize=64)
def _opened(kind: Kind, arch: str, ordinal: int, attempt: int) -> Runtime:
    """``attempt``: an emulated GPU that failed gives place to another."""
    if kind == "emulated":
        from shardc.native.gpu.emulated.runtime import EmulatedRuntime

        return EmulatedRuntime(ordinal, target=GpuTarget("emulated", arch))
    from shardc.native.gpu.cuda.runtime import CudaRuntime

    return CudaRuntime(ordinal)


def _check(device: CudaDevice, target: GpuTarget) -> None:
    wanted = int(target.arch.removeprefix("sm_"))
    if wanted > 10 * device.capability[0] + device.capability[1]:
        raise GpuProblem(
            f"the program was compiled for {target.arch}, but this GPU has compute capability "
            f"{device.capability[0]}.{device.capability[1]}",
            where=f"GPU {device.ordinal} ({device.name})",
            fix=f"compile for cuda:{device.target.arch}",
        )


def gpu_facts() -> dict[str, Any]:
    """What `shardc devices` says about GPUs: a line for each, for the libraries, and what to do where there is none."""
    from shardc.native.gpu.assemble import can_assemble
    from shardc.native.gpu.cuda.probe import library_problem

    found = find_gpus()
    facts: dict[str, Any] = {f"GPU {device.ordinal}": _line(device) for device in found.devices}
    if found.driver is None:
        facts["GPU"] = f"none: {found.problem}" + (f"; {found.fix}" if found.fix else "")
    else:
        facts["GPU driver"] = f"CUDA {found.version // 1000}.{found.version % 1000 // 10}"
    facts["GPU emulation"] = "cuda-emulated, on this processor"
    facts["PTX assembler"] = "installed" if can_assemble() else "none: the driver is used (pip install 'shardc[cuda]')"
    for library, problem, without in (
        ("cuBLASLt", library_problem("cuBLASLt"), "kernels of shardc"),
        ("NCCL", library_problem("NCCL"), "staging through the host"),
    ):
        facts[library] = f"none ({problem}); used instead: {without}" if problem else "installed"
    return facts


def _line(device: CudaDevice) -> str:
    text = (
        f"{device.name}, {bytes_text(device.memory)}, compute capability {device.capability[0]}.{device.capability[1]}"
    )
    return f"{text}: not usable, {device.problem}" if device.problem else f"{text}, code {device.target.arch}"
