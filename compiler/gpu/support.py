"""Who makes the GPU code of which op, for the op matrix."""

from __future__ import annotations

from llvmlite import ir

from shardc.compiler.cpu.support import KERNELS
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.kernel import hero_of
from shardc.compiler.gpu.samples import sample
from shardc.hlo.errors import UnsupportedError
from shardc.native.gpu.target import gpu_target

__all__ = ["gpu_hero"]


def gpu_hero(opcode: str) -> str | None:
    """The name of the hero that makes a typical kernel of an op; None where the host computes it.

    KeyError for ops that are no kernel's concern. Example: ``gpu_hero("transpose")`` is ``"loop"``.
    """
    if KERNELS[opcode]:
        raise KeyError(opcode)
    try:
        hero = hero_of(GpuKernel(ir.Module("support"), sample(opcode), "k", gpu_target("cuda")))
    except UnsupportedError:
        return None
    return None if hero is None else hero.name
