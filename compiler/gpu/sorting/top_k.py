"""Top-k on a GPU: every tile of a row is sorted and keeps its first k, until one tile holds all that are left.

Where k is not much shorter than a tile, the row is sorted, and its beginning is what is wanted.
"""

from __future__ import annotations

from shardc.compiler.elements.sorting import Rows, by_value
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.sorting.block_merge import ItemTypes
from shardc.compiler.gpu.sorting.merge_sort import RowSource, RowTarget, cut_rows, sort_rows, sort_tiles
from shardc.compiler.gpu.sorting.sorting import LONGEST_ROW

__all__ = ["emit_topk", "takes_topk"]

#: A tile keeps at most one of so many items: otherwise too little is gained by a pass.
_GAIN = 4


def takes_topk(kernel: GpuKernel) -> bool:
    """All of rows that 32 bits can count."""
    i = kernel.instruction
    return i.opcode == "topk" and i.operands[0].shape.size <= LONGEST_ROW


def emit_topk(kernel: GpuKernel) -> None:
    """The first k of each row by value (total order for floats), with their positions as s32."""
    i = kernel.instruction
    operand = i.operands[0].shape
    values, positions = i.shape.elements
    length, count = operand.dims[-1], values.dims[-1]
    total = operand.size // length
    types = ItemTypes(by_value(operand.dtype, i.attrs.get("largest", True)), (operand.dtype, positions.dtype), (0,))
    ends = RowTarget(Rows((total, count), 1), kernel.results)
    arrays: list[LaunchArray | None] = [kernel.operands[0], None]
    while True:
        source = RowSource(Rows((total, length), 1), arrays)
        cut = cut_rows(types.dtypes, length, total, kernel.target.warp)
        assert cut is not None
        if cut.tiles == 1 or cut.tile < _GAIN * count:
            sort_rows(kernel, types, source, ends, total, cut)
            return
        length = (cut.tiles - 1) * count + min(count, length - (cut.tiles - 1) * cut.tile)
        arrays = [kernel.scratch(d.nbytes * total * length) for d in types.dtypes]
        kept = RowTarget(Rows((total, length), 1), [a for a in arrays if a is not None], keep=count)
        sort_tiles(kernel, types, source, kept, total, cut)
