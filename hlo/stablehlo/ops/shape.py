"""Ops that move, repeat or make data without computing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import array_shape
from shardc.hlo.stablehlo.converter import Handler, MlirOp

__all__ = ["HANDLERS", "broadcast_in_dim"]


def broadcast_in_dim(op: MlirOp, value: Instruction, dims: tuple[int, ...]) -> Sequence[Instruction]:
    """HLO's broadcast keeps sizes and wants increasing dimensions, so sizes 1 that grow are reshaped away first,
    and the rest is transposed into order."""
    out = op.shapes[0]
    sizes = value.shape.dims
    kept = [(d, n) for d, n in zip(dims, sizes, strict=True) if n == out.dims[d]]
    if len(kept) < len(sizes):
        value = op.emit("reshape", array_shape(value.shape.dtype, *(n for _, n in kept)), value)
    order = sorted(range(len(kept)), key=lambda i: kept[i][0])
    if order != list(range(len(kept))):
        shape = array_shape(value.shape.dtype, *(kept[i][1] for i in order))
        value = op.emit("transpose", shape, value, dimensions=tuple(order))
    return op.emit_result("broadcast", value, dimensions=tuple(sorted(d for d, _ in kept)))


def _broadcast_in_dim(op: MlirOp) -> Sequence[Instruction]:
    return broadcast_in_dim(op, op.operands[0], op.ints("broadcast_dimensions"))


def _transpose(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("transpose", *op.operands, dimensions=op.ints("permutation"))


def _reshape(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("reshape", op.operands[0])


def _concatenate(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("concatenate", *op.operands, dimensions=(int(op.get("dimension")),))


def _slice(op: MlirOp) -> Sequence[Instruction]:
    ranges = zip(op.ints("start_indices"), op.ints("limit_indices"), op.ints("strides"), strict=True)
    return op.emit_result("slice", *op.operands, slice=tuple(ranges))


def _pad(op: MlirOp) -> Sequence[Instruction]:
    low, high, interior = (op.ints(f"{k}_padding") for k in ("edge_low", "edge_high", "interior"))
    if low or not high:
        low, high = op.ints("edge_padding_low"), op.ints("edge_padding_high")
    if not low:  # HLO text has no padding of a scalar
        return op.emit_result("copy", op.operands[0])
    return op.emit_result("pad", *op.operands, padding=tuple(zip(low, high, interior, strict=True)))


def _reverse(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("reverse", *op.operands, dimensions=op.ints("dimensions"))


def _iota(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("iota", iota_dimension=int(op.get("iota_dimension")))


def _constant(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("constant", literal=op.get("value"))


def _get_dimension_size(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("get-dimension-size", *op.operands, dimensions=(int(op.get("dimension")),))


def _dynamic_broadcast(op: MlirOp) -> Sequence[Instruction]:
    return broadcast_in_dim(op, op.operands[0], op.ints("broadcast_dimensions"))


HANDLERS: Mapping[str, Handler] = {
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.transpose": _transpose,
    "stablehlo.reshape": _reshape,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.slice": _slice,
    "stablehlo.pad": _pad,
    "stablehlo.reverse": _reverse,
    "stablehlo.iota": _iota,
    "stablehlo.constant": _constant,
    "stablehlo.get_dimension_size": _get_dimension_size,
    # Dynamic forms whose result shape is static all the same.
    "stablehlo.dynamic_broadcast_in_dim": _dynamic_broadcast,
    "stablehlo.dynamic_reshape": _reshape,
    "stablehlo.dynamic_iota": _iota,
}
