"""Matrix products as calls of routines."""

from __future__ import annotations

import math

from shardc.compiler.elements.dot_sides import DotSide, DotSides
from shardc.compiler.lower.lowered import Buffer, KernelStep
from shardc.compiler.routines.strided_view import StridedView, dense_strides
from shardc.compiler.routines.writer import TableWriter, TooLarge

__all__ = ["write_dot"]


def write_dot(writer: TableWriter, step: KernelStep) -> None:
    """A product of floats of one type; sides that do not lie as matrices are copied before."""
    i = step.instruction
    kind = i.shape.dtype
    if any(b.shape.dtype is not kind for b in step.operands) or any(0 in b.shape.dims for b in step.operands):
        raise TooLarge
    sides = DotSides(i)
    left, right = (_matrices(writer, b, side) for b, side in zip(step.operands, (sides.left, sides.right), strict=True))
    if right.strides[2] != kind.nbytes and right.dims[2] > 1:
        right = _copy(writer, right, right.dims)
    dims = (sides.batches, sides.m, sides.n)
    to = writer.view(step.results[0]).rearrange(dims, dense_strides(dims, kind.nbytes))
    writer.multiply(kind, to, left, right)


def _matrices(writer: TableWriter, operand: Buffer, side: DotSide) -> StridedView:
    """The operand as (batches, rows, columns)."""
    view = writer.view(operand)
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
