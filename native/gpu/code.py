"""The code of a thread, by target."""

from __future__ import annotations

from shardc.native.gpu.emulated.coroutines import EmulatedCode
from shardc.native.gpu.grid import GridCode
from shardc.native.gpu.nvptx import NvptxCode
from shardc.native.gpu.target import GpuTarget

__all__ = ["grid_code"]


def grid_code(target: GpuTarget) -> GridCode:
    """A fresh `GridCode` for one kernel function."""
    if target.kind == "emulated":
        return EmulatedCode()
    if target.kind == "amdgpu":
        from shardc.native.gpu.amdgpu import AmdgpuCode

        return AmdgpuCode()
    return NvptxCode(target.arch)
