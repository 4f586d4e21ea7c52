"""dynamic-update-slice in place: only the part that is new is computed and written."""

from __future__ import annotations

from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.loop import emit_maps
from shardc.compiler.gpu.maps import GridOutput, computed_by_rules, value_of
from shardc.compiler.kernels.elements import Elements, Index
from shardc.compiler.kernels.indexing import starts

__all__ = ["emit_update", "takes_update"]


def takes_update(kernel: GpuKernel) -> bool:
    """An update of an operand that lies where the result does; others are maps over the whole result."""
    root = kernel.computation.root
    if root.opcode != "dynamic-update-slice" or not computed_by_rules(kernel.computation):
        return False
    array = kernel.leaves().get(root.operands[0])
    return array is not None and array.index in kernel.aliased


def emit_update(kernel: GpuKernel) -> None:
    """A map over the update, that writes where the update goes."""
    root = kernel.computation.root
    operand, update = root.operands[:2]

    def place(e: Elements, index: Index) -> Index:
        begin = starts(e, root, 2, operand.shape.dims, update.shape.dims)
        return tuple(x + s for x, s in zip(index, begin, strict=True))

    output = GridOutput(kernel.results[0], root.shape, value_of(update), place, update.shape.dims)
    emit_maps(kernel, kernel.leaves(), [output])
