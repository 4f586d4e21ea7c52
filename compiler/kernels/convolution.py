"""Convolution as a matrix product of patches, one index of the outermost output dimension at a time.

Output rows are positions (all output dimensions but the features), depth is the kernel's own dimensions in their own
order, so that the kernel is never copied. Patches are gathered by the same element rules as every loop kernel; where
the input's features are not its fastest dimension they are laid out with positions fastest. Grouped convolutions,
integers and unusual output orders are direct loops.
"""

from __future__ import annotations

import math

from llvmlite import ir

from shardc.compiler.kernels.affine import Condition, Expr, Mask
from shardc.compiler.kernels.contraction import Matrix, convert_all, gemm, gemm_type
from shardc.compiler.kernels.elements import Element, Elements, Index
from shardc.compiler.kernels.emitter import Emitter
from shardc.compiler.kernels.folds import converted, window_position
from shardc.compiler.kernels.frames import Frame, Loop, Val
from shardc.compiler.kernels.function import Kernel, loop_kernel
from shardc.compiler.kernels.mapping import Output, emit_map
from shardc.compiler.kernels.registers import memory_type
from shardc.compiler.kernels.scratch import allocate, release
from shardc.hlo.ir import Instruction
from shardc.hlo.opset import Window
from shardc.hlo.types import DType, array_shape
from shardc.native.vector import I64, constant

__all__ = ["emit_convolution"]

#: Fewer multiplications than this per product are direct loops.
_SMALL = 4096


def emit_convolution(kernel: Kernel) -> None:
    """Patches and BLAS where the shapes allow, direct loops elsewhere."""
    i = kernel.instruction
    kind = gemm_type(i)
    plan = _Plan(i)
    if kind is None or not plan.fits:
        loop_kernel(kernel)
        return
    e = kernel.emitter()
    scratch: list[ir.Value] = []
    filters = kernel.operands[1]
    if i.operands[1].shape.dtype is not kind:
        filters = allocate(e, plan.filters.size * kind.nbytes)
        scratch.append(filters)
        emit_map(e, plan.filters.dims, [Output(filters, array_shape(kind, *plan.filters.dims), plan.filter(kind))])
    out = kernel.results[0]
    if i.shape.dtype is not kind:
        out = allocate(e, i.shape.size * kind.nbytes)
        scratch.append(out)
    patches = allocate(e, plan.rows * plan.depth * kind.nbytes)
    scratch.append(patches)
    _products(e, plan, kind, filters, patches, out)
    if out is not kernel.results[0]:
        convert_all(e, out, kind, kernel.results[0], i.shape)
    release(e, scratch)
    e.finish()


def _products(e: Emitter, plan: _Plan, kind: DType, filters: ir.Value, patches: ir.Value, out: ir.Value) -> None:
    """For each outermost output index: gather patches, multiply."""
    outer = e.source.loop(plan.outer)
    loop = Loop(e.entry, plan.outer)
    e.bind(outer, Val((loop.index,), loop.frame))
    _gather(e, plan, kind, patches, Expr.of(outer), loop.frame)
    b = loop.frame.builder
    offset = b.mul(loop.index, constant(I64, plan.rows * plan.features * (2 if kind.is_complex else 1)))
    place = b.gep(out, [offset], source_etype=memory_type(kind))
    rows, depth, features = plan.rows, plan.depth, plan.features
    filters_last = plan.filter_features_last
    positions_first = not plan.positions_fastest
    if plan.out_features_last:
        left = Matrix(patches, depth if positions_first else rows, not positions_first, ())
        right = Matrix(filters, features if filters_last else depth, not filters_last, ())
        gemm(b, kind, (rows, features, depth), left, right, place)
    else:
        left = Matrix(filters, features if filters_last else depth, filters_last, ())
        right = Matrix(patches, depth if positions_first else rows, positions_first, ())
        gemm(b, kind, (features, rows, depth), left, right, place)
    loop.close()


def _gather(e: Emitter, plan: _Plan, kind: DType, patches: ir.Value, outer: Expr, frame: Frame) -> None:
    """The patch matrix of one outermost index, (positions, depth) or the other way round."""
    positions, depth = len(plan.row_sizes), plan.depth_sizes
    sizes = (*depth, *plan.row_sizes) if plan.positions_fastest else (*plan.row_sizes, *depth)

    def element(e: Elements, index: Index, mask: Mask) -> object:
        cut = len(depth) if plan.positions_fastest else positions
        first, second = index[:cut], index[cut:]
        inner, where = (first, second) if plan.positions_fastest else (second, first)
        return plan.patch(e, (outer, *where), inner, mask, kind)

    emit_map(e, sizes, [Output(patches, array_shape(kind, *sizes), element)], frame)


class _Plan:
    """Sizes and orders of the product that a convolution is."""

    def __init__(self, i: Instruction) -> None:
        self.instruction = i
        self.labels = i.attrs["dim_labels"]
        self.window = i.attrs.get("window", Window(())).dims
        self.input, self.filters = (o.shape for o in i.operands)
        d = self.labels
        rank = i.shape.rank
        self.features = i.shape.dims[d.out_feature]
        self.row_dims = [k for k in range(rank) if k != d.out_feature]
        self.outer = i.shape.dims[0] if rank else 1
        self.row_sizes = tuple(i.shape.dims[k] for k in self.row_dims[1:])
        self.rows = math.prod(self.row_sizes)
        self.depth_dims = [k for k in range(rank) if k != d.rhs_output_feature]
        self.depth_sizes = tuple(self.filters.dims[k] for k in self.depth_dims)
        self.depth = math.prod(self.depth_sizes)
        self.filter_features_last = d.rhs_output_feature == rank - 1
        self.out_features_last = d.out_feature == rank - 1
        self.positions_fastest = d.lhs_feature != self.input.rank - 1

    @property
    def fits(self) -> bool:
        """Ungrouped, features first or last in kernel and (each outermost slice of the) output, worth a product."""
        a, d = self.instruction.attrs, self.labels
        ungrouped = a.get("feature_group_count", 1) == 1 and a.get("batch_group_count", 1) == 1
        rank = self.instruction.shape.rank
        ends = d.rhs_output_feature in (0, rank - 1) and d.out_feature in (1, rank - 1) and d.out_feature != 0
        work = self.rows * self.depth * self.features
        return ungrouped and ends and work >= _SMALL and self.input.size > 0

    def filter(self, kind: DType) -> Element:
        """Elements of the kernel in the product's type."""
        operand = self.instruction.operands[1]

        def element(e: Elements, index: Index, mask: Mask) -> object:
            return converted(e, e.value(operand, index, mask), operand.shape.dtype, kind)

        return element

    def patch(self, e: Elements, where: Index, inner: Index, mask: Mask, kind: DType) -> object:
        """The input element that output position ``where`` multiplies with kernel position ``inner``, or zero."""
        d = self.labels
        operand = self.instruction.operands[0]
        out = dict(zip(self.row_dims, where, strict=True))
        filters = dict(zip(self.depth_dims, inner, strict=True))
        at = {d.lhs_batch: out[d.out_batch], d.lhs_feature: filters[d.rhs_input_feature]}
        conditions: list[Condition] = []
        for number, w in enumerate(self.window):
            dim = d.lhs_spatial[number]
            offset = filters[d.rhs_spatial[number]]
            position, tests = window_position(e, out[d.out_spatial[number]], offset, self.input.dims[dim], w)
            if tests is None:
                return e.constant(0, kind)
            at[dim] = position
            conditions.extend(tests)
        index = tuple(at[k] for k in range(self.input.rank))
        value = converted(e, e.value(operand, index, (*mask, *conditions)), operand.shape.dtype, kind)
        return e.choose(conditions, value, e.constant(0, kind)) if conditions else value
