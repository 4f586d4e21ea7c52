"""Matrix products as calls of routines."""

from __future__ import annotations

import math

from shardc.compiler.elements.dot_sides import DotSide, DotSides
from shardc.compiler.lower.lowered import KernelStep
from shardc.compiler.routines.strided_view import StridedView, dense_strides
from shardc.compiler.routines.writer import TableWriter, TooLarge

__all__ = ["write_dot"]


def write_dot(writer: TableWriter, step: KernelStep) -> None:
    """A product of floats; sides that do not lie as matrices are copied before."""
    i = step.instruction
    kind = i.shape.dtype
    if any(0 in o.shape.dims for o in i.operands):
        raise TooLarge
    sides = DotSides(i)
    left = _matrices(writer, writer.operand(step, 0), sides.left)
    right = _matrices(writer, writer.operand(step, 1), sides.right)
    if right.strides[2] != kind.nbytes and right.dims[2] > 1:
        right = _copy(writer, right, right.dims)
    dims = (sides.batches, sides.m, sides.n)
    to = writer.result(step).rearrange(dims, dense_strides(dims, kind.nbytes))
    writer.multiply(kind, to, left, right)


def _matrices(writer: TableWriter, view: StridedView, side: DotSide) -> StridedView:
    """An operand as (batches, rows, columns)."""
    parts = (side.batch, side.rows, side.columns)
    dims = tuple(side.size(part) for part in parts)
    strides = [side.joint_stride(part) for part in parts]
    known = [s * view.element for s in strides if s is not None]
    if len(known) == len(strides):
        return view.rearrange(dims, known)
    return _copy(writer, view.permute([d for part in parts for d in part]), dims)


def _copy(writer: TableWriter, source: StridedView, dims: tuple[int, ...]) -> StridedView:
    """A dense copy, as an array of ``dims``."""
    assert math.prod(dims) == math.prod(source.dims)
    dense = writer.scratch(source.dims, source.element)
    writer.move(dense, source)
    return dense.rearrange(dims, dense_strides(dims, source.element))
