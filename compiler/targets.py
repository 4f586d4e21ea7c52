"""Names of targets: ``cpu``, ``cuda``, ``cuda:sm_90`` and the like, ``cuda-emulated``."""

from __future__ import annotations

from shardc.hlo.errors import EnvironmentProblem, UnsupportedError
from shardc.native.gpu.problems import GpuProblem
from shardc.native.gpu.target import GPU_ARCHS, GpuTarget, gpu_target

__all__ = ["check_target", "find_target", "is_gpu", "name_of"]


def is_gpu(target: str) -> bool:
    """Whether ``target`` is another than this machine's processor."""
    return target != "cpu"


def check_target(target: str) -> None:
    """Raise `UnsupportedError`, which lists what there is, for a name that means no target. Asks no hardware."""
    if target in ("cpu", "cuda"):
        return
    try:
        known = gpu_target(target).kind != "amdgpu"
    except KeyError:
        known = False
    if not known:
        archs = ", ".join(f"cuda:{a}" for a in GPU_ARCHS if a.startswith("sm_"))
        raise UnsupportedError(
            f"unknown compile target {target!r}",
            fix=f"use one of cpu, cuda (the GPU of this machine), {archs}, cuda-emulated",
        )


def name_of(executable_target: str) -> str:
    """The name of what an executable was compiled for. Example: ``emulated sm_80`` is ``cuda-emulated:sm_80``."""
    kind, _, arch = executable_target.partition(" ")
    first = {"nvptx64-nvidia-cuda": "cuda", "emulated": "cuda-emulated"}.get(kind)
    return "cpu" if first is None else f"{first}:{arch}"


def find_target(target: str) -> GpuTarget:
    """The GPU target that ``target`` names. ``cuda`` is the GPU of this machine, whose products may be calls of
    cuBLASLt where its package is there; ``cuda:sm_90`` needs no GPU, and the code no library.

    Raises `UnsupportedError` for other names, `EnvironmentProblem` with the reason where ``cuda`` is not there.
    """
    check_target(target)
    if target != "cuda":
        return gpu_target(target)
    from shardc.native.gpu.cuda.probe import probe_cuda

    try:
        return probe_cuda().device(0).target
    except GpuProblem as problem:
        raise EnvironmentProblem(problem.what, where=problem.where, fix=problem.fix) from None
