"""Elementwise rules for complex numbers, (real, imaginary) pairs of f32 or f64 lanes, composed of real functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from shardc.native import vector_math
from shardc.native.vector import constant, intrinsic

if TYPE_CHECKING:
    from shardc.compiler.kernels.elementwise import Op

__all__ = ["COMPLEX"]

Pair = tuple[ir.Value, ir.Value]


def _add(b: ir.IRBuilder, op: Op, x: Pair, y: Pair) -> Pair:
    return b.fadd(x[0], y[0]), b.fadd(x[1], y[1])


def _subtract(b: ir.IRBuilder, op: Op, x: Pair, y: Pair) -> Pair:
    return b.fsub(x[0], y[0]), b.fsub(x[1], y[1])


def _multiply(b: ir.IRBuilder, op: Op, x: Pair, y: Pair) -> Pair:
    return _product(b, x, y)


def _negate(b: ir.IRBuilder, op: Op, x: Pair) -> Pair:
    return b.fneg(x[0]), b.fneg(x[1])


def _compare(b: ir.IRBuilder, op: Op, x: Pair, y: Pair) -> ir.Value:
    equal = b.and_(b.fcmp_ordered("==", x[0], y[0]), b.fcmp_ordered("==", x[1], y[1]))
    return equal if op.attrs["direction"] == "EQ" else b.not_(equal)


def _abs(b: ir.IRBuilder, op: Op, x: Pair) -> ir.Value:
    """Scaled by the larger part, so that squares neither overflow nor vanish."""
    t = x[0].type
    u, v = (intrinsic(b, "llvm.fabs", t, [p]) for p in x)
    more = b.fcmp_ordered(">", u, v)
    large, small = b.select(more, u, v), b.select(more, v, u)
    ratio = b.fdiv(small, large)
    size = b.fmul(large, intrinsic(b, "llvm.sqrt", t, [b.fadd(constant(t, 1.0), b.fmul(ratio, ratio))]))
    size = b.select(b.fcmp_ordered("==", large, constant(t, 0.0)), large, size)
    infinity = constant(t, float("inf"))
    infinite = b.or_(b.fcmp_ordered("==", u, infinity), b.fcmp_ordered("==", v, infinity))
    nan = b.fcmp_unordered("uno", u, v)
    size = b.select(nan, b.fadd(u, v), size)
    return b.select(infinite, infinity, size)


def _call(b: ir.IRBuilder, name: str, *operands: ir.Value) -> ir.Value:
    return vector_math.call(b, name, *operands)


def _product(b: ir.IRBuilder, x: Pair, y: Pair) -> Pair:
    return b.fsub(b.fmul(x[0], y[0]), b.fmul(x[1], y[1])), b.fadd(b.fmul(x[0], y[1]), b.fmul(x[1], y[0]))


def _quotient(b: ir.IRBuilder, x: Pair, y: Pair) -> Pair:
    """Smith's way: divide by the larger part first, so that nothing overflows early."""
    t = x[0].type
    u, v = (intrinsic(b, "llvm.fabs", t, [p]) for p in y)
    real_first = b.fcmp_ordered(">=", u, v)
    large, small = b.select(real_first, y[0], y[1]), b.select(real_first, y[1], y[0])
    ratio = b.fdiv(small, large)
    zero = b.fcmp_ordered("==", large, constant(t, 0.0))
    ratio = b.select(zero, constant(t, 0.0), ratio)
    bottom = b.fadd(large, b.fmul(small, ratio))
    first, second = b.select(real_first, x[0], x[1]), b.select(real_first, x[1], x[0])
    real = b.fdiv(b.fadd(first, b.fmul(second, ratio)), bottom)
    turned = b.select(real_first, b.fsub(x[1], b.fmul(x[0], ratio)), b.fsub(b.fmul(x[1], ratio), x[0]))
    return real, b.fdiv(turned, bottom)


def _divide(b: ir.IRBuilder, op: Op, x: Pair, y: Pair) -> Pair:
    return _quotient(b, x, y)


def _polar(b: ir.IRBuilder, size: ir.Value, angle: ir.Value) -> Pair:
    """size (cos angle + i sin angle); a zero angle stays on the real axis whatever the size."""
    real = b.fmul(size, _call(b, "cos", angle))
    imaginary = b.fmul(size, _call(b, "sin", angle))
    return real, b.select(b.fcmp_ordered("==", angle, constant(angle.type, 0.0)), angle, imaginary)


def _exponential(b: ir.IRBuilder, op: Op, x: Pair) -> Pair:
    return _polar(b, _call(b, "exp", x[0]), x[1])


def _exponential_minus_one(b: ir.IRBuilder, op: Op, x: Pair) -> Pair:
    """The real part as expm1(a) cos b - 2 sin(b/2)**2, which does not cancel near zero."""
    t = x[0].type
    half = _call(b, "sin", b.fmul(x[1], constant(t, 0.5)))
    lost = b.fmul(constant(t, 2.0), b.fmul(half, half))
    real = b.fsub(b.fmul(_call(b, "expm1", x[0]), _call(b, "cos", x[1])), lost)
    return real, _polar(b, _call(b, "exp", x[0]), x[1])[1]


def _log(b: ir.IRBuilder, op: Op, x: Pair) -> Pair:
    return _call(b, "log", _abs(b, op, x)), _call(b, "atan2", x[1], x[0])


def _log_plus_one(b: ir.IRBuilder, op: Op, x: Pair) -> Pair:
    t = x[0].type
    shifted = (b.fadd(x[0], constant(t, 1.0)), x[1])
    square = b.fadd(b.fmul(x[0], b.fadd(x[0], constant(t, 2.0))), b.fmul(x[1], x[1]))
    near = b.fmul(constant(t, 0.5), _call(b, "log1p", square))
    small = b.fcmp_ordered("<", _abs(b, op, x), constant(t, 0.5))
    real = b.select(small, near, _call(b, "log", _abs(b, op, shifted)))
    return real, _call(b, "atan2", shifted[1], shifted[0])


def _sqrt(b: ir.IRBuilder, op: Op, x: Pair) -> Pair:
    """Halve |x| + |real| under the root, the other part by division: no cancellation in any quadrant."""
    t = x[0].type
    zero, half = constant(t, 0.0), constant(t, 0.5)
    size = b.fadd(b.fmul(_abs(b, op, x), half), b.fmul(intrinsic(b, "llvm.fabs", t, [x[0]]), half))
    root = intrinsic(b, "llvm.sqrt", t, [size])
    other = b.fdiv(b.fmul(x[1], half), root)
    right = b.fcmp_ordered(">=", x[0], zero)
    real = b.select(right, root, intrinsic(b, "llvm.fabs", t, [other]))
    imaginary = b.select(right, other, intrinsic(b, "llvm.copysign", t, [root, x[1]]))
    none = b.fcmp_ordered("==", root, zero)
    return b.select(none, zero, real), b.select(none, x[1], imaginary)


def _rsqrt(b: ir.IRBuilder, op: Op, x: Pair) -> Pair:
    t = x[0].type
    return _quotient(b, (constant(t, 1.0), constant(t, 0.0)), _sqrt(b, op, x))


def _sine(b: ir.IRBuilder, op: Op, x: Pair) -> Pair:
    real = b.fmul(_call(b, "sin", x[0]), _call(b, "cosh", x[1]))
    return real, b.fmul(_call(b, "cos", x[0]), _call(b, "sinh", x[1]))


def _cosine(b: ir.IRBuilder, op: Op, x: Pair) -> Pair:
    real = b.fmul(_call(b, "cos", x[0]), _call(b, "cosh", x[1]))
    return real, b.fneg(b.fmul(_call(b, "sin", x[0]), _call(b, "sinh", x[1])))


def _turned(f: Callable[..., Pair], back: bool) -> Callable[..., Pair]:
    """f(i x), times -i where ``back``: hyperbolic functions from circular ones, and tan from tanh."""

    def rule(b: ir.IRBuilder, op: Op, x: Pair) -> Pair:
        real, imaginary = f(b, op, (b.fneg(x[1]), x[0]))
        return (imaginary, b.fneg(real)) if back else (real, imaginary)

    return rule


def _tanh(b: ir.IRBuilder, op: Op, x: Pair) -> Pair:
    """(tanh a + i tan b) / (1 + i tanh a tan b)."""
    t, u = _call(b, "tanh", x[0]), _call(b, "tan", x[1])
    return _quotient(b, (t, u), (constant(t.type, 1.0), b.fmul(t, u)))


def _logistic(b: ir.IRBuilder, op: Op, x: Pair) -> Pair:
    t = x[0].type
    one = constant(t, 1.0)
    e = _exponential(b, op, _negate(b, op, x))
    return _quotient(b, (one, constant(t, 0.0)), (b.fadd(e[0], one), e[1]))


def _power(b: ir.IRBuilder, op: Op, x: Pair, y: Pair) -> Pair:
    """exp(y log x); zero to a power is zero, or one for the power zero."""
    t = x[0].type
    zero, one = constant(t, 0.0), constant(t, 1.0)
    value = _exponential(b, op, _product(b, y, _log(b, op, x)))
    base = b.and_(b.fcmp_ordered("==", x[0], zero), b.fcmp_ordered("==", x[1], zero))
    exponent = b.and_(b.fcmp_ordered("==", y[0], zero), b.fcmp_ordered("==", y[1], zero))
    real = b.select(exponent, one, b.select(base, zero, value[0]))
    return real, b.select(b.or_(base, exponent), zero, value[1])


def _sign(b: ir.IRBuilder, op: Op, x: Pair) -> Pair:
    size = _abs(b, op, x)
    none = b.fcmp_ordered("==", size, constant(size.type, 0.0))
    real, imaginary = (b.select(none, p, b.fdiv(p, size)) for p in x)
    return real, imaginary


COMPLEX: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add": _add,
        "subtract": _subtract,
        "multiply": _multiply,
        "divide": _divide,
        "negate": _negate,
        "compare": _compare,
        "abs": _abs,
        "exponential": _exponential,
        "exponential-minus-one": _exponential_minus_one,
        "log": _log,
        "log-plus-one": _log_plus_one,
        "sqrt": _sqrt,
        "rsqrt": _rsqrt,
        "sine": _sine,
        "cosine": _cosine,
        "tan": _turned(_tanh, True),
        "sinh": _turned(_sine, True),
        "cosh": _turned(_cosine, False),
        "tanh": _tanh,
        "logistic": _logistic,
        "power": _power,
        "sign": _sign,
    }
)
