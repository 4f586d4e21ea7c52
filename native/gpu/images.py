"""Modules of kernels and their images, by target: for who makes a handful of kernels and loads them at once."""

from __future__ import annotations

from llvmlite import ir

from shardc.native.gpu.amdgpu import new_amdgpu_module
from shardc.native.gpu.emulated.coroutines import compile_emulated, new_emulated_module
from shardc.native.gpu.nvptx import emit_ptx, new_nvptx_module
from shardc.native.gpu.problems import GpuProblem
from shardc.native.gpu.runtime import Image
from shardc.native.gpu.target import GpuTarget

__all__ = ["gpu_image", "new_gpu_module"]


def new_gpu_module(name: str, target: GpuTarget) -> ir.Module:
    """An empty module for kernels of ``target``."""
    if target.kind == "emulated":
        return new_emulated_module(name)
    if target.kind == "amdgpu":
        return new_amdgpu_module(name, target)
    return new_nvptx_module(name, target)


def gpu_image(module: ir.Module, target: GpuTarget) -> Image:
    """What a runtime loads: PTX, or an object for the emulation. `GpuProblem` for targets that nothing runs on."""
    if target.kind == "emulated":
        return Image("emulated", compile_emulated(module))
    if target.kind != "nvptx":
        raise GpuProblem(f"this process cannot run code for {target}", fix='use "cuda" or "cuda-emulated"')
    return Image("ptx", emit_ptx(module, target))
