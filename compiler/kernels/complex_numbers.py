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
    real = b.fsub(b.fmul(x[0], y[0]), b.fmul(x[1], y[1]))
    return real, b.fadd(b.fmul(x[0], y[1]), b.fmul(x[1], y[0]))


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


COMPLEX: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add": _add,
        "subtract": _subtract,
        "multiply": _multiply,
        "negate": _negate,
        "compare": _compare,
        "abs": _abs,
    }
)
del vector_math
