"""Elementwise rules for complex numbers, (real, imaginary) pairs of f32 or f64 lanes.

Sums and products stay in the parts' own type; everything else is computed in f64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from llvmlite import ir

from shardc.compiler.elements.arithmetic import complex_functions as functions
from shardc.compiler.elements.arithmetic.complex_power import power
from shardc.compiler.elements.arithmetic.floats import COMPARISON
from shardc.compiler.elements.arithmetic.lanes import Lane
from shardc.compiler.elements.arithmetic.registers import ElementOp
from shardc.native.math.vector import F32, F64, scalar_of, with_scalar

__all__ = ["COMPLEX"]

Values = tuple[ir.Value, ir.Value]


def _values(result: Any) -> Any:
    """LLVM values of one lane or a pair."""
    return tuple(p.value for p in result) if isinstance(result, tuple) else result.value


def _own(f: Callable[..., Any], rough: bool = False) -> Callable[..., Any]:
    """A function of pairs of lanes, in the type that they have."""

    def rule(b: ir.IRBuilder, op: ElementOp, *operands: Values) -> Any:
        return _values(f(*((Lane(b, x[0], rough), Lane(b, x[1], rough)) for x in operands)))

    return rule


def _double(f: Callable[..., Any], rough: bool = True) -> Callable[..., Any]:
    """A function of pairs of lanes, in f64; results are rounded to the operands' type.

    ``rough``: what it computes on the way to f32 may be as rough as `Lane` says.
    """

    def rule(b: ir.IRBuilder, op: ElementOp, *operands: Values) -> Any:
        t = operands[0][0].type
        if scalar_of(t) != F32:
            return _own(f)(b, op, *operands)
        wide = with_scalar(t, F64)
        result = _own(f, rough)(b, op, *(tuple(b.fpext(p, wide) for p in x) for x in operands))
        return tuple(b.fptrunc(p, t) for p in result) if isinstance(result, tuple) else b.fptrunc(result, t)

    return rule


def _add(x: functions.Pair, y: functions.Pair) -> functions.Pair:
    return x[0] + y[0], x[1] + y[1]


def _subtract(x: functions.Pair, y: functions.Pair) -> functions.Pair:
    return x[0] - y[0], x[1] - y[1]


def _negate(x: functions.Pair) -> functions.Pair:
    return -x[0], -x[1]


def _compare(b: ir.IRBuilder, op: ElementOp, x: Values, y: Values) -> ir.Value:
    """Real parts first, then imaginary ones."""
    direction = COMPARISON[op.attrs["direction"]]
    equal = b.fcmp_ordered("==", x[0], y[0])
    if direction in ("==", "!="):
        same = b.and_(equal, b.fcmp_ordered("==", x[1], y[1]))
        return same if direction == "==" else b.not_(same)
    first = b.and_(b.fcmp_ordered(direction[0], x[0], y[0]), b.fcmp_ordered("ord", x[1], y[1]))
    return b.or_(first, b.and_(equal, b.fcmp_ordered(direction, x[1], y[1])))


def _extreme(direction: str) -> Callable[..., Values]:
    """Maximum or minimum in that order; a number with a NaN part wins."""

    def rule(b: ir.IRBuilder, op: ElementOp, x: Values, y: Values) -> Values:
        first = b.fcmp_ordered(direction[0], x[0], y[0])
        tied = b.and_(b.fcmp_ordered("==", x[0], y[0]), b.fcmp_ordered(direction, x[1], y[1]))
        better = b.and_(b.or_(first, tied), b.fcmp_ordered("ord", *y))
        chosen = b.or_(better, b.fcmp_unordered("uno", *x))
        return b.select(chosen, x[0], y[0]), b.select(chosen, x[1], y[1])

    return rule


COMPLEX: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add": _own(_add),
        "subtract": _own(_subtract),
        "multiply": _own(functions.product),
        "negate": _own(_negate),
        "exponential": _double(functions.exponential),
        "compare": _compare,
        "maximum": _extreme(">="),
        "minimum": _extreme("<="),
        "divide": _double(functions.divide),
        "abs": _double(functions.size),
        "sign": _double(functions.sign),
        "exponential-minus-one": _double(functions.expm1),
        "log": _double(functions.log),
        "log-plus-one": _double(functions.log1p),
        "logistic": _double(functions.logistic),
        "sqrt": _double(functions.sqrt),
        "rsqrt": _double(functions.rsqrt),
        "cbrt": _double(functions.cbrt),
        "power": _double(power, rough=False),  # large exponents take the logarithm's last bits
        "sine": _double(functions.sine),
        "cosine": _double(functions.cosine),
        "tan": _double(functions.tan),
        "sinh": _double(functions.sinh),
        "cosh": _double(functions.cosh),
        "tanh": _double(functions.tanh),
        "asin": _double(functions.asin),
        "acos": _double(functions.acos),
        "asinh": _double(functions.asinh),
        "acosh": _double(functions.acosh),
        "atanh": _double(functions.atanh),
        "atan2": _double(functions.atan2),
    }
)
