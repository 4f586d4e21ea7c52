"""Elementwise rules for real floats (f32 and f64 lanes; narrower types arrive as f32)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from llvmlite import ir

from shardc.compiler.elements.arithmetic.registers import ElementOp
from shardc.hlo.ir.types import DTYPES
from shardc.native.math import vector_math
from shardc.native.math.small_floats import decode_float, encode_float
from shardc.native.math.vector import F32, constant, intrinsic, scalar_of, with_scalar

__all__ = ["COMPARISON", "FLOAT", "INVERSE_ROOT_CUBED"]

#: What a product and a sum need to become a fused multiply-add. Nothing else may be rearranged.
CONTRACT = ("contract",)


def _fusing(op: ElementOp) -> tuple[str, ...]:
    """Only what a reduction adds up is fused with the product before it: that is computed in one kernel.

    Kernels that each compute ``x * y + z`` for themselves would else differ in its last bit, as ``x * y`` is read by
    others there or not.
    """
    return CONTRACT if op.wide else ()


COMPARISON = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}


def _add(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.fadd(x, y, flags=_fusing(op))


def _subtract(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.fsub(x, y, flags=_fusing(op))


def _multiply(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.fmul(x, y, flags=CONTRACT)


def _divide(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.fdiv(x, y)


def _extreme(name: str) -> Callable[..., ir.Value]:
    """IEEE 754's maximum or minimum: NaN if either operand is NaN, and -0 below +0.

    Inside reductions, where it costs processors more than the memory's time, either zero will do; GPUs have it at once.
    """
    sign = ">" if name == "llvm.maximum" else "<"

    def rule(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
        if not op.wide or not getattr(b.module, "has_libm", True):
            return intrinsic(b, name, x.type, [x, y])
        best = b.select(b.fcmp_ordered(sign, x, y), x, y)
        return b.select(b.fcmp_unordered("uno", x, x), x, best)

    return rule


def _negate(b: ir.IRBuilder, op: ElementOp, x: ir.Value) -> ir.Value:
    return b.fneg(x)


def _intrinsic(name: str) -> Callable[..., ir.Value]:
    def rule(b: ir.IRBuilder, op: ElementOp, x: ir.Value) -> ir.Value:
        return intrinsic(b, name, x.type, [x])

    return rule


def _math(name: str) -> Callable[..., ir.Value]:
    def rule(b: ir.IRBuilder, op: ElementOp, *operands: ir.Value) -> ir.Value:
        return vector_math.call(b, name, *operands)

    return rule


def _sign(b: ir.IRBuilder, op: ElementOp, x: ir.Value) -> ir.Value:
    one = intrinsic(b, "llvm.copysign", x.type, [constant(x.type, 1.0), x])
    return b.select(b.fcmp_ordered("!=", x, constant(x.type, 0.0)), one, x)


def _round_away(b: ir.IRBuilder, op: ElementOp, x: ir.Value) -> ir.Value:
    """trunc(x + the largest value below a half, with x's sign)."""
    below_half = 0.49999997 if scalar_of(x.type) == F32 else 0.49999999999999994
    half = intrinsic(b, "llvm.copysign", x.type, [constant(x.type, below_half), x])
    return intrinsic(b, "llvm.trunc", x.type, [b.fadd(x, half)])


def _is_finite(b: ir.IRBuilder, op: ElementOp, x: ir.Value) -> ir.Value:
    size = intrinsic(b, "llvm.fabs", x.type, [x])
    return b.fcmp_ordered("<", size, constant(x.type, float("inf")))


def _compare(b: ir.IRBuilder, op: ElementOp, x: ir.Value, y: ir.Value) -> ir.Value:
    direction = COMPARISON[op.attrs["direction"]]
    if op.attrs.get("type") == "TOTALORDER":
        return b.icmp_signed(direction, _total_order(b, x), _total_order(b, y))
    if direction == "!=":
        return b.fcmp_unordered("!=", x, y)
    return b.fcmp_ordered(direction, x, y)


def _total_order(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Integers in IEEE total order: -NaN < -inf < ... < -0 < 0 < ... < inf < NaN."""
    width = 32 if scalar_of(x.type) == F32 else 64
    t = with_scalar(x.type, ir.IntType(width))
    bits = b.bitcast(x, t)
    flip = b.lshr(b.ashr(bits, constant(t, width - 1)), constant(t, 1))
    return b.xor(bits, flip)


def _reduce_precision(b: ir.IRBuilder, op: ElementOp, x: ir.Value) -> ir.Value:
    """As in XLA, f16 and what is smaller take their exponent's range from f16; the others from f32 or f64."""
    dtype = op.operands[0]
    if dtype.bits > 16 or dtype.name in ("bf16", "f8e8m0fnu"):
        wide = scalar_of(x.type) != F32
        bits = b.bitcast(x, with_scalar(x.type, ir.IntType(64 if wide else 32)))
        result = b.bitcast(_reduced_bits(b, op, bits, *((11, 52) if wide else (8, 23))), x.type)
    else:
        result = decode_float(b, _reduced_bits(b, op, encode_float(b, x, DTYPES["f16"]), 5, 10), DTYPES["f16"])
    return b.select(b.fcmp_unordered("uno", x, x), x, result)


def _reduced_bits(b: ir.IRBuilder, op: ElementOp, bits: ir.Value, own_exponent: int, own_mantissa: int) -> ir.Value:
    """Round the mantissa to nearest even; exponents outside the range become infinity or zero."""
    exponent, mantissa = int(op.attrs["exponent_bits"]), int(op.attrs["mantissa_bits"])
    width = 1 + own_exponent + own_mantissa
    c = partial(constant, bits.type)
    sign = b.and_(bits, c(1 << (width - 1)))
    if mantissa < own_mantissa:
        drop = own_mantissa - mantissa
        odd = b.and_(b.lshr(bits, c(drop)), c(1))
        bits = b.and_(b.add(bits, b.add(odd, c((1 << (drop - 1)) - 1))), c(~((1 << drop) - 1) & ((1 << width) - 1)))
    if exponent < own_exponent:
        bias, reduced = (1 << (own_exponent - 1)) - 1, (1 << (exponent - 1)) - 1
        infinity = c(((1 << own_exponent) - 1) << own_mantissa)
        field = b.and_(bits, infinity)
        over = b.icmp_unsigned(">", field, c((bias + reduced) << own_mantissa))
        under = b.icmp_unsigned("<=", field, c((bias - reduced) << own_mantissa))
        bits = b.select(over, b.or_(sign, infinity), bits)
        bits = b.select(under, sign, bits)
    return bits


FLOAT: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add": _add,
        "subtract": _subtract,
        "multiply": _multiply,
        "divide": _divide,
        "maximum": _extreme("llvm.maximum"),
        "minimum": _extreme("llvm.minimum"),
        "negate": _negate,
        "abs": _intrinsic("llvm.fabs"),
        "sqrt": _intrinsic("llvm.sqrt"),
        "rsqrt": _math("rsqrt"),
        "floor": _intrinsic("llvm.floor"),
        "ceil": _intrinsic("llvm.ceil"),
        "round-nearest-even": _intrinsic("llvm.rint"),
        "round-nearest-afz": _round_away,
        "sign": _sign,
        "is-finite": _is_finite,
        "compare": _compare,
        "reduce-precision": _reduce_precision,
        "exponential": _math("exp"),
        "exponential-minus-one": _math("expm1"),
        "log": _math("log"),
        "log-plus-one": _math("log1p"),
        "logistic": _math("logistic"),
        "tanh": _math("tanh"),
        "sine": _math("sin"),
        "cosine": _math("cos"),
        "tan": _math("tan"),
        "sinh": _math("sinh"),
        "cosh": _math("cosh"),
        "asin": _math("asin"),
        "acos": _math("acos"),
        "asinh": _math("asinh"),
        "acosh": _math("acosh"),
        "atanh": _math("atanh"),
        "atan2": _math("atan2"),
        "erf": _math("erf"),
        "cbrt": _math("cbrt"),
        "power": _math("pow"),
        "remainder": _math("fmod"),
    }
)


def _inverse_root_cubed(name: str) -> Callable[..., ir.Value]:
    def rule(b: ir.IRBuilder, op: ElementOp, x: ir.Value, exponent: ir.Value) -> ir.Value:
        return vector_math.call(b, name, x)

    return rule


#: x ** -1.5, by whether x is known to be at least +0.
INVERSE_ROOT_CUBED: Mapping[bool, Callable[..., ir.Value]] = MappingProxyType(
    {
        False: _inverse_root_cubed("inverse_root_cubed"),
        True: _inverse_root_cubed("inverse_root_cubed_of_positive"),
    }
)
