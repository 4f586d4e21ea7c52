"""Products: dot_general and its kin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.stablehlo.converter import Handler, MlirOp

__all__ = ["HANDLERS", "operand_precision"]


def operand_precision(op: MlirOp) -> dict[str, Any]:
    """``operand_precision`` where it is not the default for all operands."""
    config = op.get("precision_config") or ()
    names = tuple(str(p).lower() for p in config)
    return {"operand_precision": names} if any(n != "default" for n in names) else {}


def _algorithm(op: MlirOp) -> dict[str, Any]:
    """HLO's name of a dot algorithm: its element types, and how many products it takes."""
    record = op.get("algorithm")
    if not record:
        return {}
    lhs, rhs, accumulation = (
        _type_name(record[f"{side}_type"]) for side in ("lhs_precision", "rhs_precision", "accumulation")
    )
    if lhs.startswith("f8"):
        fast = "_fast_accum" if record["allow_imprecise_accumulation"] else ""
        return {"algorithm": f"dot_any_f8_any_f8_f32{fast}"}
    count = int(record["num_primitive_operations"])
    return {"algorithm": f"dot_{lhs}_{rhs}_{accumulation}" + (f"_x{count}" if count > 1 else "")}


def _type_name(text: str) -> str:
    return text.lower()


def _dimensions(numbers: dict[str, Any]) -> dict[str, Any]:
    attrs: dict[str, Any] = {
        "lhs_contracting_dims": numbers["lhs_contracting_dimensions"],
        "rhs_contracting_dims": numbers["rhs_contracting_dimensions"],
    }
    if numbers["lhs_batching_dimensions"]:
        attrs["lhs_batch_dims"] = numbers["lhs_batching_dimensions"]
        attrs["rhs_batch_dims"] = numbers["rhs_batching_dimensions"]
    return attrs


def _dot_general(op: MlirOp) -> Sequence[Instruction]:
    attrs = _dimensions(op.get("dot_dimension_numbers"))
    return op.emit_result("dot", *op.operands, **attrs, **operand_precision(op), **_algorithm(op))


def _ragged_dot(op: MlirOp) -> Sequence[Instruction]:
    numbers = op.get("ragged_dot_dimension_numbers")
    attrs = {**_dimensions(numbers), "lhs_ragged_dims": numbers["lhs_ragged_dimensions"]}
    if numbers["rhs_group_dimensions"]:
        attrs["rhs_group_dims"] = numbers["rhs_group_dimensions"]
    return op.emit_result("ragged-dot", *op.operands, **attrs, **operand_precision(op))


HANDLERS: Mapping[str, Handler] = {"stablehlo.dot_general": _dot_general, "chlo.ragged_dot": _ragged_dot}
