"""Which kernel emitter makes the GPU code of which op, for the op matrix."""

from __future__ import annotations

from llvmlite import ir

from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.kernel import find_kernel_emitter
from shardc.compiler.gpu.samples import sample
from shardc.hlo.errors import UnsupportedError
from shardc.native.gpu.target import gpu_target

__all__ = ["kernel_emitter_name"]


def kernel_emitter_name(opcode: str) -> str | None:
    """The kernel emitter that makes a typical kernel of an op; None where the host computes it.

    KeyError for ops that are no kernel's concern. Example: ``kernel_emitter_name("transpose")`` is ``"loop"``.
    """
    instruction = sample(opcode)
    try:
        emitter = find_kernel_emitter(GpuKernel(ir.Module("support"), instruction, "k", gpu_target("cuda")))
    except UnsupportedError:
        return None
    return None if emitter is None else emitter.name
