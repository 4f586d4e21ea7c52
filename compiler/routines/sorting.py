"""Sorts as calls of routines: of one array, in the order of its numbers."""

from __future__ import annotations

import numpy as np

from shardc.compiler.elements.sorting import Rows
from shardc.compiler.lower.lowered import KernelStep
from shardc.compiler.routines.writer import TableWriter, TooLarge
from shardc.hlo.ir.ir import Computation, Instruction

__all__ = ["write_sort"]


def write_sort(writer: TableWriter, step: KernelStep) -> None:
    """A sort by `jax.lax.sort`'s own comparator, of f32 or s32."""
    i = step.instruction
    dims, kind = i.shape.dims, i.shape.dtype
    if len(i.operands) != 1 or kind.name not in ("f32", "s32") or 0 in dims or not dims:
        raise TooLarge
    if not _is_rising(i.attrs["to_apply"], kind.is_float):
        raise TooLarge
    rows = Rows(dims, i.attrs["dimensions"][0])
    to, source = writer.result(step), writer.operand(step, 0)
    writer.sort(to, source, rows.outer * rows.stride, rows.length, rows.stride, kind.is_float)


def _is_rising(comparator: Computation, is_float: bool) -> bool:
    """Is an element in front of another where it is less? Of floats, where zeros are equal, and NaNs behind all."""
    root, (x, y) = comparator.root, comparator.parameters
    if root.opcode != "compare" or root.attrs["direction"] != "LT":
        return False
    if not is_float:
        return root.operands == (x, y)
    sides = zip(root.operands, (x, y), strict=True)
    return root.attrs.get("type") == "TOTALORDER" and all(_is_canonical(side, p) for side, p in sides)


def _is_canonical(value: Instruction, x: Instruction) -> bool:
    """Is it ``x``, but 0 for both zeros, and a NaN for all NaNs?"""
    inner = _chosen(value, "NE", x, x)
    if inner is None or not np.isnan(value.operands[1].attrs["literal"].splat):
        return False
    zero = inner.operands[1] if inner.opcode == "select" else x
    return _chosen(inner, "EQ", x, zero) is x and zero.attrs["literal"].splat == 0


def _chosen(value: Instruction, direction: str, left: Instruction, right: Instruction) -> Instruction | None:
    """What ``select(compare(left, right), constant, ...)`` is else."""
    if value.opcode != "select":
        return None
    condition, constant, other = value.operands
    compared = condition.opcode == "compare" and condition.attrs["direction"] == direction
    if not compared or condition.operands != (left, right) or constant.opcode != "constant":
        return None
    return other
