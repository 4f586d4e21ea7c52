"""Shardy's ops: constraints, and what can be said as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.hlo.ir import Instruction
from shardc.hlo.stablehlo.scope import Handler, Op

__all__ = ["HANDLERS"]


def _constraint(name: str) -> Handler:
    """The value itself, with the sharding that attribute ``name`` gives: a constraint, or any explicit reshard."""

    def handler(op: Op) -> Sequence[Instruction]:
        out = op.scope.emit(
            "custom-call",
            op.shapes[0],
            op.operands[:1],
            {"custom_call_target": "Sharding"},
            metadata=op.metadata,
            sharding=op.get(name),
        )
        return (out,)

    return handler


def _constant(op: Op) -> Sequence[Instruction]:
    return op.result("constant", literal=op.get("value"))


def _named_computation(op: Op) -> Sequence[Instruction]:
    """A function written in place: its shardings are constraints on its operands and results."""
    from shardc.hlo.stablehlo.functions import constrain

    inputs, outputs = op.get("in_shardings"), op.get("out_shardings")
    (block,) = op.regions[0]
    for position, (number, value) in enumerate(zip(block[0], op.operands, strict=True)):
        sharding = inputs[position] if inputs else None
        op.scope.values[number] = constrain(op.scope, value, sharding, op.metadata)
    values = op.scope.converter.block(op.scope, block[3])
    given = outputs or (None,) * len(values)
    return [constrain(op.scope, v, s, op.metadata) for v, s in zip(values, given, strict=True)]


def _refuse(why: str, fix: str) -> Handler:
    def handler(op: Op) -> Sequence[Instruction]:
        raise op.unsupported(why, fix)

    return handler


_RESHARDS = "all_gather all_slice all_to_all collective_permute reduce_scatter all_reduce"

HANDLERS: Mapping[str, Handler] = {
    "sdy.sharding_constraint": _constraint("sharding"),
    "sdy.reshard": _constraint("sharding"),
    **{f"sdy.{name}": _constraint("out_sharding") for name in _RESHARDS.split()},
    "sdy.constant": _constant,
    "sdy.named_computation": _named_computation,
    "sdy.manual_computation": _refuse(
        "manual computations (shard_map) are not supported yet",
        "write this part under jit with sharding constraints",
    ),
    "sdy.sharding_group": _refuse(
        "sharding groups are not supported yet", "give each value of the group the same constraint"
    ),
    "sdy.propagation_barrier": _refuse(
        "propagation barriers are not supported yet", "constrain the values on both sides instead"
    ),
}
