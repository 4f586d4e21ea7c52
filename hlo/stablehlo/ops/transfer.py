"""Transfers between devices and with the host, and asynchronous computations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape, array_shape, token_shape, tuple_shape
from shardc.hlo.stablehlo.converter import Handler, MlirOp
from shardc.hlo.stablehlo.tables import literal_ints

__all__ = ["HANDLERS"]

_PAIRS = "_xla_send_recv_source_target_pairs"


def _transfer(op: MlirOp) -> dict[str, Any]:
    handle = op.get("channel_handle") or {}
    attrs: dict[str, Any] = {"channel_id": int(handle.get("handle", 0))}
    if op.get("is_host_transfer"):
        attrs["is_host_transfer"] = True
    return attrs


def _pairs(op: MlirOp) -> dict[str, Any]:
    """Which device sends to which, where XLA's text keeps it."""
    pairs = op.get("source_target_pairs")
    if pairs is None:
        return {}
    flat = literal_ints(pairs)
    text = ",".join(f"{{{s},{t}}}" for s, t in zip(flat[::2], flat[1::2], strict=True))
    return {"frontend_attributes": ((_PAIRS, f"{{{text}}}"),)} if flat else {}


def _together(op: MlirOp, values: Sequence[Instruction]) -> Instruction:
    """The data of a transfer: the value, or all of them as a tuple."""
    return values[0] if len(values) == 1 else op.emit_tuple(values)


def _join_shapes(shapes: Sequence[Shape]) -> Shape:
    return shapes[0] if len(shapes) == 1 else tuple_shape(*shapes)


def _send(op: MlirOp) -> Sequence[Instruction]:
    *values, token = op.operands
    attrs, data = _transfer(op), _together(op, values)
    shape = tuple_shape(data.shape.plain, array_shape("u32"), token_shape())
    started = op.emit("send", shape, data, token, **attrs, **_pairs(op))
    return op.emit_result("send-done", started, **attrs)


def _recv(op: MlirOp) -> Sequence[Instruction]:
    attrs, data = _transfer(op), _join_shapes(op.shapes[:-1])
    shape = tuple_shape(data, array_shape("u32"), token_shape())
    started = op.emit("recv", shape, *op.operands, **attrs, **_pairs(op))
    return _emit_received(op, op.emit("recv-done", tuple_shape(data, token_shape()), started, **attrs))


def _emit_received(op: MlirOp, whole: Instruction) -> Sequence[Instruction]:
    """The results of an op from (data, token)."""
    token = op.emit("get-tuple-element", token_shape(), whole, index=1)
    data = op.emit("get-tuple-element", _join_shapes(op.shapes[:-1]), whole, index=0)
    if len(op.shapes) == 2:
        return (data, token)
    parts = [op.emit("get-tuple-element", s, data, index=k) for k, s in enumerate(op.shapes[:-1])]
    return (*parts, token)


def _infeed(op: MlirOp) -> Sequence[Instruction]:
    config = op.get("infeed_config")
    attrs = {"infeed_config": config} if config else {}
    return _emit_received(
        op, op.emit("infeed", tuple_shape(_join_shapes(op.shapes[:-1]), token_shape()), *op.operands, **attrs)
    )


def _outfeed(op: MlirOp) -> Sequence[Instruction]:
    *values, token = op.operands
    data, config = _together(op, values), op.get("outfeed_config")
    attrs = {"outfeed_config": config} if config else {}
    return op.emit_result("outfeed", data, token, outfeed_shape=data.shape.plain, **attrs)


def _async_start(op: MlirOp) -> Sequence[Instruction]:
    """The region becomes a computation; what it uses from outside becomes its operands."""
    computation, operands = op.convert_closure(0, "async")
    shape = tuple_shape(tuple_shape(*(o.shape.plain for o in operands)), computation.root.shape.plain)
    return (op.emit("async-start", shape, *operands, calls=computation),)


def _async_done(op: MlirOp) -> Sequence[Instruction]:
    (started,) = op.operands
    whole = op.emit("async-done", started.shape.elements[1].plain, started)
    return (whole,) if not whole.shape.is_tuple else op.emit_elements(whole)


HANDLERS: Mapping[str, Handler] = {
    "stablehlo.send": _send,
    "stablehlo.recv": _recv,
    "stablehlo.infeed": _infeed,
    "stablehlo.outfeed": _outfeed,
    "stablehlo.async_start": _async_start,
    "stablehlo.async_done": _async_done,
}
