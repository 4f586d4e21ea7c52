"""Element-wise ops: mostly the same op under HLO's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.hlo.ir import Instruction
from shardc.hlo.stablehlo.scope import Handler, Op

__all__ = ["HANDLERS"]

_SAME = (
    "abs add and atan2 cbrt ceil complex convert cosine count_leading_zeros divide exponential "
    "exponential_minus_one floor imag is_finite log log_plus_one logistic maximum minimum multiply negate not or "
    "popcnt power real remainder round_nearest_afz round_nearest_even rsqrt shift_left shift_right_arithmetic "
    "shift_right_logical sign sine sqrt subtract tan tanh xor bitcast_convert"
)


def _same(opcode: str) -> Handler:
    def handler(op: Op) -> Sequence[Instruction]:
        return op.result(opcode, *op.operands)

    return handler


def _compare(op: Op) -> Sequence[Instruction]:
    attrs = {"direction": op.get("comparison_direction")}
    if op.get("compare_type") == "TOTALORDER":
        attrs["type"] = "TOTALORDER"
    return op.result("compare", *op.operands, **attrs)


def _select(op: Op) -> Sequence[Instruction]:
    predicate, on_true, on_false = op.operands
    return op.result("select", op.broadcast_scalar(predicate, op.shapes[0].dims), on_true, on_false)


def _clamp(op: Op) -> Sequence[Instruction]:
    low, value, high = op.operands
    dims = value.shape.dims
    return op.result("clamp", op.broadcast_scalar(low, dims), value, op.broadcast_scalar(high, dims))


def _reduce_precision(op: Op) -> Sequence[Instruction]:
    bits = {name: int(op.get(name)) for name in ("exponent_bits", "mantissa_bits")}
    return op.result("reduce-precision", *op.operands, **bits)


def _map(op: Op) -> Sequence[Instruction]:
    return op.result("map", *op.operands, dimensions=op.ints("dimensions"), to_apply=op.region(0, "map"))


def _square(op: Op) -> Sequence[Instruction]:
    (x,) = op.operands
    return op.result("multiply", x, x)


HANDLERS: Mapping[str, Handler] = {
    **{f"stablehlo.{name}": _same(name.replace("_", "-")) for name in _SAME.split()},
    "stablehlo.compare": _compare,
    "stablehlo.select": _select,
    "stablehlo.clamp": _clamp,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.map": _map,
    "chlo.erf": _same("erf"),
    "chlo.tan": _same("tan"),
    "chlo.square": _square,
}
