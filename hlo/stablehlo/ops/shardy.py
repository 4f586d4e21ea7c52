"""Shardy's ops: markers on values, constants, computations written in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardc.hlo.ir.custom_calls import (
    DATA_FLOW_EDGE,
    FUNCTION_EDGE,
    GLOBAL_TO_LOCAL,
    LOCAL_TO_GLOBAL,
    MANUAL_AXES,
    PROPAGATION_BARRIER,
    RESHARD,
    SHARDING_GROUP,
)
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sharding import AnySharding
from shardc.hlo.ir.types import Shape
from shardc.hlo.stablehlo.converter import Handler, MlirOp, constrain

__all__ = ["HANDLERS"]


def _marker(target: str, sharding: str = "", **frontend: str) -> Handler:
    """The value itself behind a custom call, with the sharding in attribute ``sharding``, if that has one.

    ``frontend`` maps attributes of the op to the names under which they are kept as frontend attributes.
    """

    def handler(op: MlirOp) -> Sequence[Instruction]:
        attrs: dict[str, Any] = {"custom_call_target": target}
        if target == SHARDING_GROUP:
            attrs["custom_call_has_side_effect"] = True
        kept = tuple((f"xla.sdy.{name}", _text(given, op.get(given))) for given, name in frontend.items())
        if kept:
            attrs["frontend_attributes"] = kept
        own = op.get(sharding) if sharding else None
        own = own[0] if isinstance(own, tuple) and own else own
        shape = op.shapes[0] if op.shapes else op.operands[0].shape
        out = op.scope.emit("custom-call", shape, op.operands[:1], attrs, metadata=op.metadata, sharding=own)
        return (out,) if op.shapes else ()

    return handler


_DIRECTIONS = ("NONE", "FORWARD", "BACKWARD", "BOTH")


def _text(name: str, value: Any) -> str:
    return _DIRECTIONS[value] if name == "allowed_direction" and isinstance(value, int) else str(value)


def _constant(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("constant", literal=op.get("value"))


def _named_computation(op: MlirOp) -> Sequence[Instruction]:
    """A function written in place: its shardings are constraints on its operands and results."""
    inputs, outputs = op.get("in_shardings"), op.get("out_shardings")
    (block,) = op.regions[0]
    for position, (number, value) in enumerate(zip(block[0], op.operands, strict=True)):
        sharding = inputs[position] if inputs else None
        op.scope.values[number] = constrain(op.scope, value, sharding, op.metadata)
    values = op.scope.converter.convert_block(op.scope, block[3])
    given = outputs or (None,) * len(values)
    return [constrain(op.scope, v, s, op.metadata) for v, s in zip(values, given, strict=True)]


def _manual_computation(op: MlirOp) -> Sequence[Instruction]:
    """The body in place: values cross its border through calls that know both their sharding and the manual axes.

    What goes in is constrained to its sharding, then cut by ``GlobalToLocalShape``; ``LocalToGlobalShape`` has the
    sharding of the whole value that comes out. Between them shapes are those of one position along the manual axes.
    """
    scope = op.scope
    axes = ((MANUAL_AXES, ",".join(map(str, op.get("manual_axes") or ()))),)

    def cross(target: str, shape: Shape, value: Instruction, sharding: AnySharding) -> Instruction:
        attrs = {"custom_call_target": target, "frontend_attributes": axes}
        return scope.emit("custom-call", shape, (value,), attrs, metadata=op.metadata, sharding=sharding)

    (block,) = op.regions[0]
    for number, type_, value, sharding in zip(*block[:2], op.operands, op.get("in_shardings"), strict=True):
        whole = constrain(scope, value, sharding, op.metadata)
        scope.values[number] = cross(GLOBAL_TO_LOCAL, op.tables.shape(type_), whole, None)
        if scope.converter.op_names is not None:
            scope.converter.op_names[number] = (whole.name,)
    values = scope.converter.convert_block(scope, block[3])
    outputs = zip(op.shapes, values, op.get("out_shardings"), strict=True)
    return [cross(LOCAL_TO_GLOBAL, shape, value, sharding) for shape, value, sharding in outputs]


_RESHARDS = (
    "all_gather all_slice all_to_all collective_permute reduce_scatter all_reduce sharded_to_unreduced "
    "replicated_to_unreduced"
)

HANDLERS: Mapping[str, Handler] = {
    "sdy.sharding_constraint": _marker("Sharding", "sharding"),
    "sdy.reshard": _marker(RESHARD, "sharding"),
    **{f"sdy.{name}": _marker(RESHARD, "out_sharding") for name in _RESHARDS.split()},
    "sdy.data_flow_edge": _marker(DATA_FLOW_EDGE, "sharding"),
    "sdy.func_data_flow_edge": _marker(FUNCTION_EDGE, "sdy.sharding"),
    "sdy.propagation_barrier": _marker(PROPAGATION_BARRIER, "sdy.sharding", allowed_direction="allowed_direction"),
    "sdy.sharding_group": _marker(SHARDING_GROUP, group_id="sharding_group_id"),
    "sdy.constant": _constant,
    "sdy.named_computation": _named_computation,
    "sdy.manual_computation": _manual_computation,
}
