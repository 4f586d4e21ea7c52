"""What elementwise operations cost: one operation per element, of a class of the vector unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.costs.ops.op_cost import (
    MOVES,
    HostRates,
    OpCost,
    VectorKind,
    array_sizes,
    body_steps,
    no_seconds,
    per_flop,
)
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import DType

__all__ = ["COSTS"]

_Vector = Callable[[Instruction, int], Mapping[str, float]]


def _size(op: Instruction) -> int:
    return op.shape.size


def _of_class(kind: str) -> _Vector:
    return lambda op, flops: {kind: float(flops)} if flops and op.shape.is_array else {}


def _retype(op: Instruction, flops: int) -> Mapping[str, float]:
    """One simple operation per element, though reports count none."""
    return {"simple": float(op.shape.size)} if op.shape.is_array and op.shape.size else {}


def _divide(op: Instruction, flops: int) -> Mapping[str, float]:
    """By a broadcast value: one reciprocal for many elements."""
    if not op.shape.is_array:
        return {}
    if op.operands[1].opcode == "broadcast":
        return {"simple": float(flops), "special": float(op.operands[1].operands[0].shape.size)}
    return {"special": float(flops)} if flops else {}


def _map(op: Instruction) -> int:
    return op.shape.size * body_steps(op)


def _compare(op: Instruction, host: HostRates) -> float:
    """The operands' type counts."""
    return max(array_sizes(op), default=0) * host.of(op.opcode, op.operands[0].shape.dtype)


def _convert(op: Instruction, host: HostRates) -> float:
    return op.shape.size * _conversion(op.operands[0].shape.dtype, op.shape.dtype, host)


def _conversion(a: DType, b: DType, host: HostRates) -> float:
    known = host.rates.operations
    for key in (f"convert {a.name} {b.name}", f"convert {b.name} {a.name}"):
        if key in known:
            return known[key]
    return known.get("convert f32 s32", 0.0)


#: Classes of the vector unit (`kernel_model`); what stands in neither is simple.
_SPECIAL = frozenset(
    ("divide", "remainder", "sqrt", "rsqrt", "cbrt", "exponential", "log", "logistic", "exponential-minus-one",
     "log-plus-one", "tanh")
)  # fmt: skip
_LONG = frozenset(
    ("power", "atan2", "erf", "sine", "cosine", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh",
     "atanh")
)  # fmt: skip

#: Simple operations that an element takes on a processor, roughly; the others take one.
_WEIGHTS: Mapping[str, int] = {
    **dict.fromkeys(("divide", "sqrt", "rsqrt", "remainder"), 4),
    **dict.fromkeys(("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh"), 16),
    **dict.fromkeys(("sine", "cosine", "erf", "cbrt"), 24),
    **dict.fromkeys(("power", "tan", "atan2"), 40),
}

#: Whose measured rate counts where an operation was not measured itself, and how many of it.
_LIKE: Mapping[str, tuple[str, float]] = {
    "minimum": ("maximum", 1.0),
    "clamp": ("maximum", 2.0),
    "compare": ("select", 1.0),
    "cbrt": ("log", 2.0),
    "tan": ("sine", 2.0),
    "atan2": ("power", 1.0),
    "remainder": ("divide", 3.0),
    **dict.fromkeys(("asin", "acos", "atan", "asinh", "acosh", "atanh", "sinh", "cosh"), ("power", 1.0)),
    **dict.fromkeys(("and", "or", "not"), ("xor", 1.0)),
    **dict.fromkeys(("shift-left", "shift-right-arithmetic"), ("shift-right-logical", 1.0)),
}


def _row(opcode: str) -> OpCost:
    kind: VectorKind = "special" if opcode in _SPECIAL else "long" if opcode in _LONG else "simple"
    return OpCost(_size, _of_class(kind), kind, weight=_WEIGHTS.get(opcode, 1), like=_LIKE.get(opcode))


COSTS: Mapping[str, OpCost] = {
    **{op.opcode: _row(op.opcode) for op in OPS.values() if op.family == "elementwise"},
    **dict.fromkeys(MOVES, OpCost(vector=_retype)),
    "copy": OpCost(vector=lambda op, flops: {}, host=no_seconds),
    "convert": OpCost(vector=_retype, host=_convert),
    "divide": OpCost(_size, _divide, "special", weight=_WEIGHTS["divide"]),
    "compare": OpCost(_size, _of_class("simple"), host=_compare, like=_LIKE["compare"]),
    "map": OpCost(_map, _of_class("simple"), host=per_flop),
}
