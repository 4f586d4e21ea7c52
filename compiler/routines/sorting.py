"""Sorts as calls of routines: of one array, in the order of its numbers."""

from __future__ import annotations

from shardc.compiler.elements.sorting import Rows
from shardc.compiler.lower.lowered import KernelStep
from shardc.compiler.routines.writer import TableWriter, TooLarge
from shardc.hlo.ir.sort_keys import sort_keys

__all__ = ["write_sort"]


def write_sort(writer: TableWriter, step: KernelStep) -> None:
    """A sort by `jax.lax.sort`'s own comparator, of f32 or s32."""
    i = step.instruction
    dims, kind = i.shape.dims, i.shape.dtype
    if len(i.operands) != 1 or kind.name not in ("f32", "s32") or 0 in dims or not dims:
        raise TooLarge
    keys = sort_keys(i.attrs["to_apply"])
    if keys is None or keys[0].descending or (kind.is_float and not (keys[0].zeros_equal and keys[0].nans_equal)):
        raise TooLarge
    rows = Rows(dims, i.attrs["dimensions"][0])
    to, source = writer.result(step), writer.operand(step, 0)
    writer.sort(to, source, rows.outer * rows.stride, rows.length, rows.stride, kind.is_float)
