"""NumPy meaning: elementwise operations.

Operands may have any shapes that broadcast: computations over scalars are evaluated on whole arrays at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardc.hlo.evaluate import arithmetic as ar
from shardc.hlo.evaluate import complex_numbers as co
from shardc.hlo.evaluate.body import apply_body
from shardc.hlo.evaluate.convert import bitcast_convert, convert, reduce_precision, stochastic_convert
from shardc.hlo.evaluate.interpreter import Interpreter, OpMeaning
from shardc.hlo.evaluate.values import COMPUTE, Array, Value, cast
from shardc.hlo.ir.ir import Instruction

__all__ = ["ROWS"]

Function = Callable[..., Array]

_UNARY: Mapping[str, Function] = {
    "abs": ar.absolute,
    "ceil": np.ceil,
    "floor": np.floor,
    "is-finite": np.isfinite,
    "negate": np.negative,
    "round-nearest-afz": ar.round_away,
    "round-nearest-even": np.rint,
    "sign": co.by_kind(ar.sign, co.sign),
    "sqrt": np.sqrt,
}
#: Rounded once: f32 and smaller floats go through f64, where NumPy's last places do not matter.
_CURVES: Mapping[str, Function] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atanh": np.arctanh,
    "cbrt": co.by_kind(np.cbrt, co.cbrt),
    "cosine": np.cos,
    "cosh": np.cosh,
    "erf": co.real_only(ar.erf),
    "exponential": np.exp,
    "exponential-minus-one": co.by_kind(np.expm1, co.expm1),
    "log": np.log,
    "log-plus-one": co.by_kind(np.log1p, co.log1p),
    "logistic": co.by_kind(ar.logistic, co.logistic),
    "rsqrt": co.by_kind(ar.rsqrt, co.rsqrt),
    "sine": np.sin,
    "sinh": np.sinh,
    "tan": np.tan,
    "tanh": np.tanh,
}
_BINARY: Mapping[str, Function] = {
    "add": np.add,
    "and": np.bitwise_and,
    "atan2": co.in_c128(np.arctan2, co.atan2),
    "divide": co.in_c128(ar.divide, co.divide),
    "maximum": ar.maximum,
    "minimum": ar.minimum,
    "multiply": ar.multiply,
    "or": np.bitwise_or,
    "power": co.in_c128(ar.power, co.power),
    "remainder": co.real_only(ar.remainder),
    "subtract": ar.subtract,
    "xor": np.bitwise_xor,
}
#: These work on the bits of an integer and need its width.
_BITS: Mapping[str, Function] = {
    "count-leading-zeros": ar.count_leading_zeros,
    "not": ar.invert,
    "popcnt": ar.popcount,
    "shift-left": ar.shift_left,
    "shift-right-arithmetic": ar.shift_right_arithmetic,
    "shift-right-logical": ar.shift_right_logical,
}
_COMPARE: Mapping[str, Function] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}


def _wide(kind: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64) if kind == np.float32 else kind


def _curve_row(function: Function) -> OpMeaning:
    """A function of the operand, in f64 (c128)."""

    def local(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
        x = operands[0]
        kind = np.dtype(np.complex128) if x.dtype.kind == "c" else _wide(COMPUTE[x.dtype])
        return cast(np.asarray(function(x.astype(kind, copy=False))), m.storage_type(i.shape.dtype))

    return OpMeaning(local)


def _operand_row(function: Function) -> OpMeaning:
    """Arithmetic in the type of the operand (c64: in c128)."""

    def local(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
        x = operands[0]
        kind = np.dtype(np.complex128) if x.dtype.kind == "c" else COMPUTE[x.dtype]
        return cast(np.asarray(function(x.astype(kind, copy=False))), m.storage_type(i.shape.dtype))

    return OpMeaning(local)


def _result_row(function: Function, *, curved: bool = False) -> OpMeaning:
    """Arithmetic in the type of the result, so that mixed precision computes in the wider; ``curved`` in f64."""

    def local(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
        kind = _wide(m.compute(i.shape.dtype)) if curved else m.compute(i.shape.dtype)
        return cast(
            np.asarray(function(*(x.astype(kind, copy=False) for x in operands))), m.storage_type(i.shape.dtype)
        )

    return OpMeaning(local)


def _bits_row(function: Function) -> OpMeaning:
    def local(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
        kind = m.compute(i.shape.dtype)
        result = function(i.shape.dtype.bits, *(x.astype(kind, copy=False) for x in operands))
        return cast(np.asarray(result), m.storage_type(i.shape.dtype))

    return OpMeaning(local)


def _compare(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    a, b = operands
    if i.attrs.get("type") == "TOTALORDER" and i.operands[0].shape.dtype.is_float:
        return np.asarray(_COMPARE[i.attrs["direction"]](ar.total_order(a), ar.total_order(b)))
    kind = np.result_type(COMPUTE[a.dtype], COMPUTE[b.dtype])
    return np.asarray(_COMPARE[i.attrs["direction"]](a.astype(kind, copy=False), b.astype(kind, copy=False)))


def _select(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    kind = m.storage_type(i.shape.dtype)
    predicate, on_true, on_false = operands
    return np.asarray(np.where(predicate, on_true.astype(kind, copy=False), on_false.astype(kind, copy=False)))


def _clamp(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    kind = m.compute(i.shape.dtype)
    low, x, high = (v.astype(kind, copy=False) for v in operands)
    return cast(ar.minimum(ar.maximum(x, low), high), m.storage_type(i.shape.dtype))


def _complex(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    re, im = np.broadcast_arrays(*operands)
    out = np.empty(re.shape, m.storage_type(i.shape.dtype))
    out.real, out.imag = re, im
    return out


def _part(function: Function) -> OpMeaning:
    """Real or imaginary parts as they are: a wider type would quiet signalling NaNs."""

    def local(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
        return cast(np.asarray(function(operands[0])), m.storage_type(i.shape.dtype))

    return OpMeaning(local)


def _copy(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    return operands[0]


def _map(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    (result,) = apply_body(m, i.attrs["to_apply"], operands)
    return np.broadcast_to(result, i.shape.dims)


ROWS: Mapping[str, OpMeaning] = {
    **{o: _operand_row(f) for o, f in _UNARY.items()},
    **{o: _curve_row(f) for o, f in _CURVES.items()},
    **{o: _result_row(f, curved=o in ("atan2", "power")) for o, f in _BINARY.items()},
    **{o: _bits_row(f) for o, f in _BITS.items()},
    "real": _part(np.real),
    "imag": _part(ar.imag),
    "compare": OpMeaning(_compare),
    "select": OpMeaning(_select),
    "clamp": OpMeaning(_clamp),
    "complex": OpMeaning(_complex),
    "copy": OpMeaning(_copy),
    "map": OpMeaning(_map),
    "convert": OpMeaning(convert),
    "bitcast-convert": OpMeaning(bitcast_convert),
    "reduce-precision": OpMeaning(reduce_precision),
    "stochastic-convert": OpMeaning(stochastic_convert),
}
