"""What windows cost. Positions of a convolution that read padding or the holes of a dilation are free."""

from __future__ import annotations

import math
from collections.abc import Mapping

from shardc.costs.ops.contraction import product_of_sizes
from shardc.costs.ops.op_cost import MatrixProduct, OpCost, body_steps, per_flop
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import ConvDims, WindowDim

__all__ = ["COSTS"]


def _convolution_flops(op: Instruction) -> int:
    dims: ConvDims = op.attrs["dim_labels"]
    image, kernel = (o.shape.dims for o in op.operands)
    window = op.attrs.get("window")
    work = 2 * kernel[dims.rhs_input_feature]
    work *= op.shape.dims[dims.out_batch] * op.shape.dims[dims.out_feature]
    for n, (left, right, out) in enumerate(zip(dims.lhs_spatial, dims.rhs_spatial, dims.out_spatial, strict=True)):
        along = window.dims[n] if window is not None else WindowDim(kernel[right])
        work *= _meetings(along, image[left], kernel[right], op.shape.dims[out])
    return work


def _meetings(w: WindowDim, image: int, kernel: int, out: int) -> int:
    """How many pairs of an output position and a kernel position read an element of the image."""
    last = (image - 1) * w.lhs_dilate
    period = w.lhs_dilate // math.gcd(w.lhs_dilate, w.stride)
    count = 0
    for k in range(kernel):
        start = k * w.rhs_dilate - w.pad_low
        low = max(0, -(start // w.stride))
        high = min(out, (last - start) // w.stride + 1)
        hits = (o for o in range(low, min(high, low + period)) if (o * w.stride + start) % w.lhs_dilate == 0)
        count += sum(-(-(high - o) // period) for o in hits)
    return count


def _convolution_products(op: Instruction) -> tuple[MatrixProduct, ...]:
    """Every position of the result is a row of what its window sees; groups of features are products of their own."""
    dims: ConvDims = op.attrs["dim_labels"]
    flops = _convolution_flops(op)
    if not flops:
        return ()
    groups = (op.attrs.get("feature_group_count") or 1) * (op.attrs.get("batch_group_count") or 1)
    n = max(1, op.shape.dims[dims.out_feature] // groups)
    m = op.shape.size // max(1, op.shape.dims[dims.out_feature])
    return (product_of_sizes(op, groups, m, n, max(1, flops // (2 * m * n * groups))),)


def _reduce_window(op: Instruction) -> int:
    """Every window combines its elements; but running totals go on from one element to the next."""
    window = 1
    for w, n in zip(op.attrs["window"].dims, op.operands[0].shape.dims, strict=True):
        window *= 1 if _is_running(w, n) else w.size
    return next(op.shape.leaves()).size * window * body_steps(op)


def _is_running(w: WindowDim, n: int) -> bool:
    """Whether windows hold everything up to (or from) their own element."""
    pads = (w.pad_low, w.pad_high)
    return w.size >= n and pads in ((w.size - 1, 0), (0, w.size - 1)) and w == WindowDim(w.size, 1, *pads)


def _select_and_scatter(op: Instruction) -> int:
    """Every window looks for its element and combines one value into it."""
    window: int = math.prod(d.size for d in op.attrs["window"].dims)
    return op.operands[1].shape.size * (window * body_steps(op, "select") + body_steps(op, "scatter"))


COSTS: Mapping[str, OpCost] = {
    "convolution": OpCost(_convolution_flops, products=_convolution_products),
    "reduce-window": OpCost(_reduce_window, host=per_flop),
    "select-and-scatter": OpCost(_select_and_scatter, host=per_flop),
}
