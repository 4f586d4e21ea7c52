"""Convolutions as calls of routines: the input with its padding, its patches as a matrix, and a product."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardc.compiler.elements.convolution_roles import Role, Roles, joint_stride
from shardc.compiler.lower.lowered import KernelStep
from shardc.compiler.routines.strided_view import StridedView, dense_strides
from shardc.compiler.routines.writer import TableWriter, TooLarge

__all__ = ["write_convolution"]


def write_convolution(writer: TableWriter, step: KernelStep) -> None:
    """A convolution of floats, by groups."""
    i = step.instruction
    kind, roles = i.shape.dtype, Roles(i)
    if any(0 in o.shape.dims for o in (*i.operands, i)):
        raise TooLarge
    left = _patches(writer, roles, writer.operand(step, 0))
    right = _filters(writer, roles, writer.operand(step, 1))
    result = writer.result(step)
    sizes = [r.size for r in roles.rows]
    row = joint_stride(sizes, [result.strides[r.own] for r in roles.rows])
    step_of_feature = result.strides[roles.feature_dim]
    dims = (roles.groups, roles.row_count, roles.features)
    if row is not None and (step_of_feature == kind.nbytes or roles.features == 1):
        strides = (roles.features * step_of_feature, row, kind.nbytes)
        writer.multiply(kind, result.rearrange(dims, strides), left, right)
        return
    product = writer.scratch(dims, kind.nbytes)
    writer.multiply(kind, product, left, right)
    order = [r.own for r in roles.rows]
    there = (roles.features * step_of_feature, *(result.strides[d] for d in order), step_of_feature)
    shape = (roles.groups, *sizes, roles.features)
    writer.move(result.rearrange(shape, there), product.rearrange(shape, dense_strides(shape, kind.nbytes)))


def _patches(writer: TableWriter, roles: Roles, source: StridedView) -> StridedView:
    """What the rows read, as (groups, rows, depth)."""
    low, high = list(roles.base), list(roles.base)
    for r in (roles.group, *roles.rows, *roles.depth):
        low[r.dim] += min(r.step, 0) * (r.size - 1)
        high[r.dim] += max(r.step, 0) * (r.size - 1)
    if roles.inside:
        slab, first = source, [0] * len(low)
    else:
        slab, first = _padded(writer, roles, source, low, high), low
    skipped = sum((base - begin) * s for base, begin, s in zip(roles.base, first, slab.strides, strict=True))
    each = [_steps(part, slab) for part in ((roles.group,), roles.rows, roles.depth)]
    sizes = [[r.size for r in part] for part in ((roles.group,), roles.rows, roles.depth)]
    dims = (roles.groups, roles.row_count, roles.depth_count)
    joint = [joint_stride(n, s) for n, s in zip(sizes, each, strict=True)]
    known = [s for s in joint if s is not None]
    if len(known) == len(joint):
        return slab.rearrange(dims, known, skipped)
    shape = tuple(n for part in sizes for n in part)
    patches = writer.scratch(shape, source.element)
    writer.move(patches, slab.rearrange(shape, [s for part in each for s in part], skipped))
    return patches.rearrange(dims, dense_strides(dims, source.element))


def _steps(roles: Sequence[Role], slab: StridedView) -> list[int]:
    return [r.step * slab.strides[r.dim] for r in roles]


def _padded(
    writer: TableWriter, roles: Roles, source: StridedView, low: Sequence[int], high: Sequence[int]
) -> StridedView:
    """Positions from ``low`` to ``high`` of the input: its elements with gaps between them, and zeros."""
    slab = writer.scratch(tuple(h - b + 1 for b, h in zip(low, high, strict=True)), source.element)
    writer.clear(slab)
    there, here = [], []
    for begin, end, n, gap in zip(low, high, source.dims, roles.dilation, strict=True):
        first = max(0, -(-begin // gap))
        past = min(n - 1, end // gap) + 1
        here.append((first, past, 1))
        there.append((first * gap - begin, (past - 1) * gap - begin + 1, gap))
    if all(past > first for first, past, _ in here):
        writer.move(slab.slice(there), source.slice(here))
    return slab


def _filters(writer: TableWriter, roles: Roles, source: StridedView) -> StridedView:
    """The kernel as (groups, depth, features)."""
    dims = (roles.groups, roles.depth_count, roles.features)
    feature = source.strides[roles.kernel_feature_dim]
    each = [source.strides[r.own] for r in roles.depth]
    joint = joint_stride([r.size for r in roles.depth], each)
    if joint is not None and (feature == source.element or roles.features == 1):
        return source.rearrange(dims, (roles.features * feature, joint, source.element))
    shape = (roles.groups, *(r.size for r in roles.depth), roles.features)
    packed = writer.scratch(shape, source.element)
    writer.move(packed, source.rearrange(shape, (roles.features * feature, *each, feature)))
    assert math.prod(dims) == math.prod(shape)
    return packed.rearrange(dims, dense_strides(dims, source.element))
