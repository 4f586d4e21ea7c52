"""Element-wise ops: mostly the same op under HLO's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import array_shape
from shardc.hlo.stablehlo.converter import Handler, MlirOp

__all__ = ["HANDLERS"]

_SAME = (
    "abs add and atan2 cbrt ceil complex convert cosine count_leading_zeros divide exponential "
    "exponential_minus_one floor imag is_finite log log_plus_one logistic maximum minimum multiply negate not or "
    "popcnt power real remainder round_nearest_afz round_nearest_even rsqrt shift_left shift_right_arithmetic "
    "shift_right_logical sign sine sqrt subtract tan tanh xor"
)


def _same(opcode: str) -> Handler:
    def handler(op: MlirOp) -> Sequence[Instruction]:
        return op.emit_result(opcode, *op.operands)

    return handler


def _compare(op: MlirOp) -> Sequence[Instruction]:
    attrs = {"direction": op.get("comparison_direction")}
    if op.get("compare_type") == "TOTALORDER":
        attrs["type"] = "TOTALORDER"
    return op.emit_result("compare", *op.operands, **attrs)


def _select(op: MlirOp) -> Sequence[Instruction]:
    predicate, on_true, on_false = op.operands
    return op.emit_result("select", op.broadcast_scalar(predicate, op.shapes[0].dims), on_true, on_false)


def _clamp(op: MlirOp) -> Sequence[Instruction]:
    low, value, high = op.operands
    dims = value.shape.dims
    return op.emit_result("clamp", op.broadcast_scalar(low, dims), value, op.broadcast_scalar(high, dims))


def _reduce_precision(op: MlirOp) -> Sequence[Instruction]:
    bits = {name: int(op.get(name)) for name in ("exponent_bits", "mantissa_bits")}
    return op.emit_result("reduce-precision", *op.operands, **bits)


def _map(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("map", *op.operands, dimensions=op.ints("dimensions"), to_apply=op.convert_region(0, "map"))


def _square(op: MlirOp) -> Sequence[Instruction]:
    (x,) = op.operands
    return op.emit_result("multiply", x, x)


def _bitcast_convert(op: MlirOp) -> Sequence[Instruction]:
    """HLO's pred fills a byte, StableHLO's i1 is a bit: eight of them make an i8, the first one the lowest bit."""
    (x,), (out,) = op.operands, op.shapes
    if (x.shape.dtype.kind == "pred") == (out.dtype.kind == "pred"):
        return op.emit_result("bitcast-convert", x)
    wide = x.shape if out.dtype.kind == "pred" else out
    integer = "u8" if wide.dtype.bits < 8 else f"u{wide.dtype.bits}"
    dims = (*wide.dims, wide.dtype.bits)
    places = op.emit("iota", array_shape(integer, *dims), iota_dimension=len(dims) - 1)
    if wide is x.shape:
        bits = op.emit("bitcast-convert", array_shape(f"u{wide.dtype.bits}", *wide.dims), x)
        spread = op.emit("broadcast", places.shape, _convert(op, bits, integer), dimensions=tuple(range(wide.rank)))
        one = op.emit("constant", array_shape(integer), literal=Literal.full(array_shape(integer), 1))
        shifted = op.emit("shift-right-logical", places.shape, spread, places)
        lowest = op.emit("and", places.shape, shifted, op.broadcast_scalar(one, dims))
        return op.emit_result("convert", _reshape(op, lowest, out.dims))
    set_bits = op.emit("shift-left", places.shape, _convert(op, _reshape(op, x, dims), integer), places)
    zero = op.emit("constant", array_shape(integer), literal=Literal.full(array_shape(integer), 0))
    either = binary_computation("or", integer, op.scope.converter.unique_name("any_bit"))
    whole = op.emit("reduce", array_shape(integer, *out.dims), set_bits, zero, dimensions=(out.rank,), to_apply=either)
    return op.emit_result("bitcast-convert", _convert(op, whole, f"u{wide.dtype.bits}"))


def _convert(op: MlirOp, x: Instruction, dtype: str) -> Instruction:
    return x if x.shape.dtype.name == dtype else op.emit("convert", x.shape.plain.with_dtype(dtype), x)


def _reshape(op: MlirOp, x: Instruction, dims: tuple[int, ...]) -> Instruction:
    return x if x.shape.dims == dims else op.emit("reshape", x.shape.plain.with_dims(dims), x)


HANDLERS: Mapping[str, Handler] = {
    **{f"stablehlo.{name}": _same(name.replace("_", "-")) for name in _SAME.split()},
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.compare": _compare,
    "stablehlo.select": _select,
    "stablehlo.clamp": _clamp,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.map": _map,
    "chlo.erf": _same("erf"),
    "chlo.tan": _same("tan"),
    "chlo.square": _square,
}
