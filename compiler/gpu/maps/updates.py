"""Results written in parts: dynamic-update-slice in place, and concatenations of many arrays."""

from __future__ import annotations

from shardc.compiler.elements.affine import Expr
from shardc.compiler.elements.elements import Elements, Index
from shardc.compiler.elements.indexing import starts
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.maps.loop import emit_maps
from shardc.compiler.gpu.maps.maps import GridOutput, is_computed_by_rules, value_of
from shardc.compiler.gpu.reductions.staged import folds_to_stage
from shardc.hlo.ir.ir import Computation

__all__ = ["emit_concatenation", "emit_update", "takes_concatenation", "takes_update"]

#: Arrays that one map joins at most: each of its elements looks at all of them.
_JOINED = 4


def takes_update(kernel: GpuKernel) -> bool:
    """An update of an operand that lies where the result does; others are maps over the whole result."""
    root = kernel.computation.root
    if root.opcode != "dynamic-update-slice" or not _without_sums(kernel.computation):
        return False
    return kernel.in_place(root.operands[0])


def emit_update(kernel: GpuKernel) -> None:
    """A map over the update, that writes where the update goes."""
    root = kernel.computation.root
    operand, update = root.operands[:2]

    def place(e: Elements, index: Index) -> Index:
        begin = starts(e, root, 2, operand.shape.dims, update.shape.dims)
        return tuple(x + s for x, s in zip(index, begin, strict=True))

    output = GridOutput(kernel.results[0], root.shape, value_of(update), place, update.shape.dims)
    emit_maps(kernel, kernel.leaves(), [output])


def takes_concatenation(kernel: GpuKernel) -> bool:
    """Of more arrays than a map should choose from."""
    root = kernel.computation.root
    many = root.opcode == "concatenate" and len(root.operands) > _JOINED
    return many and not kernel.aliased and _without_sums(kernel.computation)


def emit_concatenation(kernel: GpuKernel) -> None:
    """A map for each part, that writes where the part goes."""
    root = kernel.computation.root
    d = root.attrs["dimensions"][0]
    start = 0
    for part in root.operands:

        def place(e: Elements, index: Index, start: int = start) -> Index:
            return (*index[:d], index[d] + Expr(start), *index[d + 1 :])

        output = GridOutput(kernel.results[0], root.shape, value_of(part), place, part.shape.dims)
        emit_maps(kernel, kernel.leaves(), [output])
        start += part.shape.dims[d]


def _without_sums(computation: Computation) -> bool:
    """Whether each thread can compute its elements alone. Other kernels come again when their sums are made."""
    return is_computed_by_rules(computation) and not folds_to_stage(computation)
