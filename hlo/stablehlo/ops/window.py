"""Convolutions and sliding windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.stablehlo.converter import Handler, MlirOp
from shardc.hlo.stablehlo.ops.contraction import operand_precision

__all__ = ["HANDLERS"]


def _pairs(op: MlirOp, name: str, rank: int) -> tuple[tuple[int, int], ...]:
    flat = op.ints(name, (0, 0) * rank)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def _window(op: MlirOp, sizes: tuple[int, ...], strides: str, lhs_dilation: str, rhs_dilation: str) -> Window:
    rank = len(sizes)
    ones = (1,) * rank
    reversal = tuple(bool(r) for r in op.get("window_reversal") or (False,) * rank)
    rows = zip(
        sizes,
        op.ints(strides, ones),
        _pairs(op, "padding", rank),
        op.ints(lhs_dilation, ones),
        op.ints(rhs_dilation, ones),
        reversal,
        strict=True,
    )
    return Window(
        tuple(WindowDim(size, stride, low, high, lhs, rhs, flip) for size, stride, (low, high), lhs, rhs, flip in rows)
    )


def _convolution(op: MlirOp) -> Sequence[Instruction]:
    numbers = op.get("dimension_numbers")
    labels = ConvDims(
        numbers["input_batch_dimension"],
        numbers["input_feature_dimension"],
        numbers["input_spatial_dimensions"],
        numbers["kernel_input_feature_dimension"],
        numbers["kernel_output_feature_dimension"],
        numbers["kernel_spatial_dimensions"],
        numbers["output_batch_dimension"],
        numbers["output_feature_dimension"],
        numbers["output_spatial_dimensions"],
    )
    sizes = tuple(op.operands[1].shape.dims[d] for d in labels.rhs_spatial)
    attrs: dict[str, Any] = {"dim_labels": labels}
    if sizes:
        attrs["window"] = _window(op, sizes, "window_strides", "lhs_dilation", "rhs_dilation")
    for name in ("feature_group_count", "batch_group_count"):
        if op.get(name, 1) != 1:
            attrs[name] = int(op.get(name))
    return op.emit_result("convolution", *op.operands, **attrs, **operand_precision(op))


def _reduce_window(op: MlirOp) -> Sequence[Instruction]:
    window = _window(op, op.ints("window_dimensions"), "window_strides", "base_dilations", "window_dilations")
    return op.emit_results("reduce-window", *op.operands, window=window, to_apply=op.convert_region(0))


def _select_and_scatter(op: MlirOp) -> Sequence[Instruction]:
    rank = op.operands[0].shape.rank
    window = _window(op, op.ints("window_dimensions", (1,) * rank), "window_strides", "", "")
    return op.emit_result(
        "select-and-scatter",
        *op.operands,
        window=window,
        select=op.convert_region(0, "select"),
        scatter=op.convert_region(1),
    )


HANDLERS: Mapping[str, Handler] = {
    "stablehlo.convolution": _convolution,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.select_and_scatter": _select_and_scatter,
}
