"""Gather, scatter and dynamic slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.stablehlo.converter import Handler, MlirOp

__all__ = ["HANDLERS"]


def _gather(op: MlirOp) -> Sequence[Instruction]:
    numbers = op.get("dimension_numbers")
    attrs: dict[str, Any] = {
        "offset_dims": numbers["offset_dims"],
        "collapsed_slice_dims": numbers["collapsed_slice_dims"],
        "start_index_map": numbers["start_index_map"],
        "index_vector_dim": numbers["index_vector_dim"],
        "slice_sizes": op.ints("slice_sizes"),
    }
    if numbers["operand_batching_dims"]:
        attrs["operand_batching_dims"] = numbers["operand_batching_dims"]
        attrs["start_indices_batching_dims"] = numbers["start_indices_batching_dims"]
    if op.get("indices_are_sorted"):
        attrs["indices_are_sorted"] = True
    return op.emit_result("gather", *op.operands[:2], **attrs)


def _scatter(op: MlirOp) -> Sequence[Instruction]:
    numbers = op.get("scatter_dimension_numbers")
    attrs: dict[str, Any] = {
        "update_window_dims": numbers["update_window_dims"],
        "inserted_window_dims": numbers["inserted_window_dims"],
        "scatter_dims_to_operand_dims": numbers["scattered_dims_to_operand_dims"],
        "index_vector_dim": numbers["index_vector_dim"],
    }
    if numbers["input_batching_dims"]:
        attrs["input_batching_dims"] = numbers["input_batching_dims"]
        attrs["scatter_indices_batching_dims"] = numbers["scatter_indices_batching_dims"]
    for flag in ("indices_are_sorted", "unique_indices"):
        if op.get(flag):
            attrs[flag] = True
    return op.emit_results("scatter", *op.operands, **attrs, to_apply=op.convert_region(0))


def _dynamic_slice(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("dynamic-slice", *op.operands, dynamic_slice_sizes=op.ints("slice_sizes"))


def _dynamic_update_slice(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("dynamic-update-slice", *op.operands)


HANDLERS: Mapping[str, Handler] = {
    "stablehlo.gather": _gather,
    "stablehlo.scatter": _scatter,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
}
