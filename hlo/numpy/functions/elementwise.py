"""NumPy's ufuncs whose meaning is one HLO operation, or a few: rows by name.

A row gets its operands converted to the types of NumPy's loop and broadcast to one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardc.hlo.numpy.functions import arithmetic as a
from shardc.hlo.numpy.functions.special import SPECIAL_UFUNCS
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import convert, emit, full, splat_of

__all__ = ["UFUNCS", "compare", "select"]

Row = Callable[..., Any]


def select(mask: Tracer, x: Tracer, y: Tracer) -> Tracer:
    """``np.where`` on operands of one shape (the mask may be a scalar) and type."""
    return emit("select", mask, x, y)


def compare(direction: str, x: Tracer, y: Tracer) -> Tracer:
    """Complex numbers are ordered by their real, then their imaginary part, as NumPy orders them."""
    if x.aval.dtype.is_complex and direction not in ("EQ", "NE"):
        xr, yr, xi, yi = emit("real", x), emit("real", y), emit("imag", x), emit("imag", y)
        strict = "LT" if direction in ("LT", "LE") else "GT"
        first = emit("compare", xr, yr, direction=strict)
        same = emit("compare", xr, yr, direction="EQ")
        return emit("or", first, emit("and", same, emit("compare", xi, yi, direction=direction)))
    if x.aval.dtype is y.aval.dtype:
        return emit("compare", x, y, direction=direction)
    if x.aval.dtype.kind == "unsigned":
        return _signed_with_unsigned(_MIRRORED[direction], y, x)
    return _signed_with_unsigned(direction, x, y)


_MIRRORED = {"EQ": "EQ", "NE": "NE", "LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


def _signed_with_unsigned(direction: str, x: Tracer, y: Tracer) -> Tracer:
    """NumPy compares int64 with uint64 exactly: a negative number is less than all."""
    negative = emit("compare", x, full(x, x.shape, 0, x.dtype), direction="LT")
    others = emit("compare", convert(x, y.dtype), y, direction=direction)
    if direction in ("LT", "LE", "NE"):
        return emit("or", negative, others)
    return emit("and", emit("not", negative), others)


def _unary(opcode: str) -> Row:
    return lambda x: emit(opcode, x)


def _binary(opcode: str, on_bool: str = "") -> Row:
    def row(x: Tracer, y: Tracer) -> Tracer:
        return emit(on_bool if on_bool and x.aval.dtype.kind == "pred" else opcode, x, y)

    return row


def _comparison(direction: str) -> Row:
    return lambda x, y: compare(direction, x, y)


def _unless_integer(opcode: str) -> Row:
    """Rounding of integers and bools is the identity."""
    return lambda x: emit(opcode, x) if x.aval.dtype.is_float else x


def _absolute(x: Tracer) -> Tracer:
    return x if x.aval.dtype.kind in ("pred", "unsigned") else emit("abs", x)


def _extreme(opcode: str, direction: str, ignore_nan: bool) -> Row:
    """maximum and fmax, minimum and fmin: the first give NaN where one is NaN, the others where both are."""

    def row(x: Tracer, y: Tracer) -> Tracer:
        kind = x.aval.dtype.kind
        if kind == "pred":
            return emit("or" if opcode == "maximum" else "and", x, y)
        if kind == "complex":
            first = select(compare(direction, x, y), x, y)
            nan = y if ignore_nan else x
            return select(a.is_nan(x), nan, select(a.is_nan(y), x if ignore_nan else y, first))
        both = emit(opcode, x, y)
        if ignore_nan and kind == "float":
            return select(a.is_nan(x), y, select(a.is_nan(y), x, both))
        return both

    return row


def _logical(opcode: str) -> Row:
    return lambda x, y: emit(opcode, convert(x, np.bool), convert(y, np.bool))


def _power(x: Tracer, y: Tracer) -> Tracer:
    exponent = splat_of(y)
    if x.aval.dtype.is_integer and exponent is not None and exponent < 0:
        raise ValueError("Integers to negative integer powers are not allowed.")
    if exponent is not None and exponent == 2:
        return emit("multiply", x, x)
    return emit("power", x, y)


def _shift(opcode: str) -> Row:
    return lambda x, y: emit(opcode, x, y)


def _shift_right(x: Tracer, y: Tracer) -> Tracer:
    signed = x.aval.dtype.kind == "signed"
    return emit("shift-right-arithmetic" if signed else "shift-right-logical", x, y)


def _conjugate(x: Tracer) -> Tracer:
    if not x.aval.dtype.is_complex:
        return x
    return emit("complex", emit("real", x), emit("negate", emit("imag", x)))


def _is_finite(x: Tracer) -> Tracer:
    kind = x.aval.dtype.kind
    if kind == "complex":
        return emit("and", emit("is-finite", emit("real", x)), emit("is-finite", emit("imag", x)))
    return emit("is-finite", x) if kind == "float" else full(x, x.shape, True)


def _scale(factor: float) -> Row:
    return lambda x: emit("multiply", x, full(x, x.shape, factor, x.dtype))


def _clip(x: Tracer, low: Tracer, high: Tracer) -> Tracer:
    made: Tracer = NP.minimum(NP.maximum(x, low), high)
    return made


_ONE_OP = {
    "positive": "copy",
    "negative": "negate",
    "exp": "exponential",
    "expm1": "exponential-minus-one",
    "log": "log",
    "log1p": "log-plus-one",
    "sqrt": "sqrt",
    "cbrt": "cbrt",
    "sin": "sine",
    "cos": "cosine",
    "tan": "tan",
    "arcsin": "asin",
    "arccos": "acos",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "invert": "not",
}

UFUNCS: Mapping[str, Row] = {
    **{name: _unary(opcode) for name, opcode in _ONE_OP.items()},
    "positive": lambda x: x,
    "absolute": _absolute,
    "fabs": _absolute,
    "rint": a.rint,
    "floor": _unless_integer("floor"),
    "ceil": _unless_integer("ceil"),
    "trunc": lambda x: a.truncate(x) if x.aval.dtype.is_float else x,
    "sign": a.sign,
    "square": lambda x: emit("multiply", x, x),
    "reciprocal": a.reciprocal,
    "conjugate": _conjugate,
    "deg2rad": _scale(np.pi / 180),
    "radians": _scale(np.pi / 180),
    "rad2deg": _scale(180 / np.pi),
    "degrees": _scale(180 / np.pi),
    "exp2": lambda x: emit("power", full(x, x.shape, 2, x.dtype), x),
    "log2": a.log2,
    "log10": lambda x: a.log_to_base(x, 10),
    "add": _binary("add", "or"),
    "subtract": _binary("subtract"),
    "multiply": _binary("multiply", "and"),
    "divide": _binary("divide"),
    "floor_divide": lambda x, y: a.divmod_(x, y)[0],
    "remainder": lambda x, y: a.divmod_(x, y)[1],
    "divmod": a.divmod_,
    "fmod": a.fmod,
    "power": _power,
    "float_power": _power,
    "arctan": a.arctan,
    "arctan2": _binary("atan2"),
    "hypot": a.hypot,
    "logaddexp": a.logaddexp,
    "logaddexp2": a.logaddexp2,
    "maximum": _extreme("maximum", "GT", False),
    "minimum": _extreme("minimum", "LT", False),
    "fmax": _extreme("maximum", "GT", True),
    "fmin": _extreme("minimum", "LT", True),
    "equal": _comparison("EQ"),
    "not_equal": _comparison("NE"),
    "less": _comparison("LT"),
    "less_equal": _comparison("LE"),
    "greater": _comparison("GT"),
    "greater_equal": _comparison("GE"),
    "logical_and": _logical("and"),
    "logical_or": _logical("or"),
    "logical_xor": _logical("xor"),
    "logical_not": lambda x: emit("not", convert(x, np.bool)),
    "bitwise_and": _binary("and"),
    "bitwise_or": _binary("or"),
    "bitwise_xor": _binary("xor"),
    "left_shift": _shift("shift-left"),
    "right_shift": _shift_right,
    "bitwise_count": lambda x: convert(emit("popcnt", _absolute(x)), np.uint8),
    "isfinite": _is_finite,
    "isnan": a.is_nan,
    "isinf": a.is_inf,
    "signbit": a.signbit,
    "copysign": a.copysign,
    "nextafter": a.nextafter,
    "spacing": a.spacing,
    "modf": a.modf,
    "frexp": a.frexp,
    "ldexp": a.ldexp,
    "heaviside": a.heaviside,
    "gcd": a.gcd,
    "lcm": a.lcm,
    "clip": _clip,
    **SPECIAL_UFUNCS,
}
