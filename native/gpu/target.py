"""What GPU code is made for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["GPU_ARCHS", "GpuArch", "GpuTarget", "Kind", "gpu_target", "target_of"]

Kind = Literal["nvptx", "amdgpu", "emulated"]


@dataclass(frozen=True, slots=True)
class GpuArch:
    """What a chip of an architecture has: bytes of shared memory that a block may ask for, multiprocessors of the
    usual chip, and bytes of its last cache. Kernels are cut by these, so results depend on the target alone."""

    shared_bytes: int
    multiprocessors: int
    cache_bytes: int


#: Compute capabilities that code is made for, by LLVM's name.
GPU_ARCHS = {
    "sm_80": GpuArch(163 << 10, 108, 40 << 20),
    "sm_86": GpuArch(99 << 10, 84, 6 << 20),
    "sm_89": GpuArch(99 << 10, 128, 72 << 20),
    "sm_90": GpuArch(227 << 10, 132, 50 << 20),
    "gfx90a": GpuArch(64 << 10, 104, 8 << 20),
}


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """A GPU architecture, or the emulation of one on this machine's processor.

    ``libraries``: products may be calls of cuBLASLt (never in the emulation). Example: ``gpu_target("cuda:sm_90")``.
    """

    kind: Kind
    arch: str
    libraries: bool = False

    @property
    def chip(self) -> GpuArch:
        return GPU_ARCHS[self.arch]

    @property
    def warp(self) -> int:
        """Threads that shuffle among themselves."""
        return 64 if self.kind == "amdgpu" else 32

    def __str__(self) -> str:
        return {"nvptx": "nvptx64-nvidia-cuda ", "amdgpu": "amdgcn-amd-amdhsa ", "emulated": "emulated "}[
            self.kind
        ] + self.arch


def gpu_target(name: str, libraries: bool = False) -> GpuTarget:
    """``cuda:sm_90``, ``cuda-emulated`` (of sm_80) or ``rocm:gfx90a``; KeyError for other names."""
    first, _, arch = name.partition(":")
    kinds: dict[str, tuple[Kind, str]] = {
        "cuda": ("nvptx", "sm_80"),
        "cuda-emulated": ("emulated", "sm_80"),
        "rocm": ("amdgpu", "gfx90a"),
    }
    kind, default = kinds[first]
    arch = arch or default
    if arch not in GPU_ARCHS or arch.startswith("gfx") != (kind == "amdgpu"):
        raise KeyError(name)
    return GpuTarget(kind, arch, libraries and kind == "nvptx")


def target_of(text: str) -> GpuTarget:
    """The target whose `str` is ``text``."""
    return next(t for arch in GPU_ARCHS for kind in get_args(Kind) if str(t := GpuTarget(kind, arch)) == text)
