"""Collectives that a program spells out itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardc.hlo.ir.groups import AxisGroups, ListGroups, ListPairs
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import array_shape
from shardc.hlo.stablehlo.converter import Handler, MlirOp

__all__ = ["HANDLERS"]


def _channel(op: MlirOp) -> dict[str, Any]:
    handle = op.get("channel_handle") or op.get("channel_id")
    number = handle["handle"] if isinstance(handle, dict) else handle
    return {"channel_id": int(number)} if number else {}


def _groups(op: MlirOp) -> dict[str, Any]:
    groups = op.get("replica_groups")
    if isinstance(groups, Literal):
        # Groups of unequal size are padded with -1.
        rows = tuple(tuple(int(d) for d in row if d >= 0) for row in groups.array)
        groups = ListGroups(tuple(r for r in rows if r))
    elif not isinstance(groups, AxisGroups):
        raise op.unsupported(f"replica groups written as {groups}")
    out: dict[str, Any] = {"replica_groups": groups, **_channel(op)}
    if op.get("use_global_device_ids"):
        out["use_global_device_ids"] = True
    return out


def _all_reduce(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_results("all-reduce", *op.operands, **_groups(op), to_apply=op.convert_region(0))


def _all_gather(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_results("all-gather", *op.operands, **_groups(op), dimensions=(int(op.get("all_gather_dim")),))


def _reduce_scatter(op: MlirOp) -> Sequence[Instruction]:
    dimensions = (int(op.get("scatter_dimension")),)
    return op.emit_results(
        "reduce-scatter", *op.operands, **_groups(op), dimensions=dimensions, to_apply=op.convert_region(0)
    )


def _all_to_all(op: MlirOp) -> Sequence[Instruction]:
    """HLO's all-to-all takes one array and splits and joins the same dimension; joining another one is a reshape, a
    transpose and a reshape after it."""
    split, join = int(op.get("split_dimension")), int(op.get("concat_dimension"))
    groups = _groups(op)
    if split == join and len(op.operands) == 1:
        return op.emit_result("all-to-all", *op.operands, **groups, dimensions=(split,))
    swapped = [op.emit("all-to-all", o.shape, o, **groups, dimensions=(split,)) for o in op.operands]
    return swapped if split == join else [_join(op, value, i) for i, value in enumerate(swapped)]


def _join(op: MlirOp, value: Instruction, index: int) -> Instruction:
    split, join, count = (int(op.get(k)) for k in ("split_dimension", "concat_dimension", "split_count"))
    dims, dtype = value.shape.dims, value.shape.dtype
    cut = (*dims[:split], count, dims[split] // count, *dims[split + 1 :])
    parts = op.emit("reshape", array_shape(dtype, *cut), value)
    rest = [d for d in range(len(cut)) if d != split]
    at = rest.index(join if join < split else join + 1)
    order = (*rest[:at], split, *rest[at:])
    moved = op.emit("transpose", array_shape(dtype, *(cut[d] for d in order)), parts, dimensions=order)
    return op.scope.emit("reshape", op.shapes[index], (moved,), metadata=op.metadata, sharding=op.shardings[index])


def _collective_permute(op: MlirOp) -> Sequence[Instruction]:
    flat = op.ints("source_target_pairs")
    pairs = ListPairs(tuple(zip(flat[::2], flat[1::2], strict=True)))
    return op.emit_result("collective-permute", *op.operands, source_target_pairs=pairs, **_channel(op))


def _collective_broadcast(op: MlirOp) -> Sequence[Instruction]:
    rooted = {"has_dynamic_root": True} if op.get("has_dynamic_root") else {}
    return op.emit_results("collective-broadcast", *op.operands, **_groups(op), **rooted)


def _id(opcode: str) -> Handler:
    def handler(op: MlirOp) -> Sequence[Instruction]:
        return op.emit_result(opcode)

    return handler


HANDLERS: Mapping[str, Handler] = {
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.all_gather": _all_gather,
    "stablehlo.reduce_scatter": _reduce_scatter,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_permute": _collective_permute,
    "stablehlo.collective_broadcast": _collective_broadcast,
    "stablehlo.partition_id": _id("partition-id"),
    "stablehlo.replica_id": _id("replica-id"),
}
