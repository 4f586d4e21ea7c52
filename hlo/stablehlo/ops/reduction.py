"""Reductions, sorting and top-k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.stablehlo.converter import Handler, MlirOp

__all__ = ["HANDLERS"]


def _reduce(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_results("reduce", *op.operands, dimensions=op.ints("dimensions"), to_apply=op.convert_region(0))


def _sort(op: MlirOp) -> Sequence[Instruction]:
    rank = op.operands[0].shape.rank
    dimension = int(op.get("dimension", -1))
    attrs = {"is_stable": True} if op.get("is_stable") else {}
    return op.emit_results(
        "sort",
        *op.operands,
        dimensions=(dimension % rank if rank else 0,),
        **attrs,
        to_apply=op.convert_region(0, "compare"),
    )


def _top_k(op: MlirOp) -> Sequence[Instruction]:
    attrs = {"k": int(op.get("k")), "largest": bool(op.get("largest", True))}
    whole = op.emit("topk", tuple_shape(*op.shapes), *op.operands, **attrs)
    return op.emit_elements(whole)


def _scan(op: MlirOp) -> Sequence[Instruction]:
    """Arrays first, then the carries, in operands, the body's arguments, its results and the op's."""
    _, carries = op.ints("operandSegmentSizes")
    attrs: dict[str, Any] = {"dimensions": (int(op.get("dimension")),), "num_carries": carries}
    if op.get("is_reverse"):
        attrs["is_reverse"] = True
    whole = op.emit("scan", tuple_shape(*op.shapes), *op.operands, **attrs, to_apply=op.convert_region(0, "scan"))
    return op.emit_elements(whole)


HANDLERS: Mapping[str, Handler] = {
    "stablehlo.reduce": _reduce,
    "stablehlo.sort": _sort,
    "chlo.top_k": _top_k,
    "chlo.scan": _scan,
}
