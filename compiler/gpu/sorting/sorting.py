"""Sort on a GPU: stable, with any comparator that is arithmetic, of any number of arrays.

What moves are the elements that the comparator looks at, and those that are no bigger than a position; the rest is
gathered by position at the end.
"""

from __future__ import annotations

from shardc.compiler.elements.scalar_programs import is_scalar_program
from shardc.compiler.elements.sorting import Rows
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.sorting.block_merge import ItemTypes
from shardc.compiler.gpu.sorting.merge_sort import RowSource, RowTarget, SortShape, cut_rows, sort_rows
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.types import DTYPES

__all__ = ["LONGEST_ROW", "emit_sort", "takes_sort"]

_POSITION = DTYPES["s32"]
#: Positions and sums of them are counted in 32 bits.
LONGEST_ROW = 1 << 30


def takes_sort(kernel: GpuKernel) -> bool:
    """Sorts whose comparator is arithmetic, of items that shared memory can hold some of."""
    i = kernel.instruction
    if i.opcode != "sort" or not is_scalar_program(i.attrs["to_apply"]):
        return False
    rows = _rows(kernel)
    if rows.length > LONGEST_ROW or rows.outer * rows.stride > LONGEST_ROW:
        return False
    return _cut(kernel, rows, *_moving(kernel)) is not None


def emit_sort(kernel: GpuKernel) -> None:
    """Sort rows along one dimension."""
    rows = _rows(kernel)
    types, carried = _moving(kernel)
    cut = _cut(kernel, rows, types, carried)
    assert cut is not None
    operands = kernel.instruction.operands
    rest = [n for n in range(len(operands)) if n not in carried]
    gathered = [(kernel.operands[n], kernel.results[n], operands[n].shape.dtype) for n in rest]
    sources: list[LaunchArray | None] = [kernel.operands[n] for n in carried]
    source = RowSource(rows, [*sources, None] if rest else sources)
    target = RowTarget(rows, [kernel.results[n] for n in carried], gathered)
    sort_rows(kernel, types, source, target, rows.outer * rows.stride, cut)


def _rows(kernel: GpuKernel) -> Rows:
    i = kernel.instruction
    return Rows(i.operands[0].shape.dims, i.attrs["dimensions"][0])


def _moving(kernel: GpuKernel) -> tuple[ItemTypes, list[int]]:
    """What items are made of, and which operands are carried in them."""
    i = kernel.instruction
    comparator: Computation = i.attrs["to_apply"]
    dtypes = [o.shape.dtype for o in i.operands]
    read = {o for step in comparator for o in step.operands} | {comparator.root}
    keys = [n for n in range(len(dtypes)) if read & set(comparator.parameters[2 * n : 2 * n + 2])]
    others = [n for n in range(len(dtypes)) if n not in keys]
    if sum(dtypes[n].nbytes for n in others) <= _POSITION.nbytes:
        carried = [*keys, *others]
        return ItemTypes(comparator, [dtypes[n] for n in carried], keys), carried
    return ItemTypes(comparator, [*(dtypes[n] for n in keys), _POSITION], keys), keys


def _cut(kernel: GpuKernel, rows: Rows, types: ItemTypes, carried: list[int]) -> SortShape | None:
    return cut_rows(types.dtypes, rows.length, rows.outer * rows.stride, kernel.target.warp)
