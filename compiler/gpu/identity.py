"""Which device is this: the kernels of ``partition-id`` and ``replica-id``."""

from __future__ import annotations

from llvmlite import ir

from shardc.compiler.gpu.function import GpuKernel
from shardc.native.math.vector import I32, constant

__all__ = ["IDENTITIES", "emit_identity"]

IDENTITIES = frozenset({"partition-id", "replica-id"})


def emit_identity(kernel: GpuKernel, partitions: int) -> None:
    """One thread that writes the number. Devices count partitions fastest: replica * partitions + partition."""
    function = kernel.function(kernel.results, 1)
    b = ir.IRBuilder(function.function.append_basic_block("entry"))
    function.code.enter(b)
    operation = b.urem if kernel.instruction.opcode == "partition-id" else b.udiv
    b.store(operation(function.device, constant(I32, partitions)), function.pointer(kernel.results[0]))
    function.code.leave(b)
    kernel.launch(function, (1,))
