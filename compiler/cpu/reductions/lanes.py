"""Walks over rows in vector lanes."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from shardc.compiler.elements.control_flow import for_range
from shardc.native.math.vector import I1, I64, constant, intrinsic, lanes_of, scalar_of

__all__ = ["least_lane", "ones", "over_lanes"]


def over_lanes(
    b: ir.IRBuilder, first: ir.Value, past: ir.Value, lanes: int, take: Callable[[ir.Value, int], None]
) -> None:
    """``take(place, lanes)`` from the first place up to the second, so many at once, and one by one what is left."""
    whole = first
    if lanes > 1:
        whole = b.add(first, b.and_(b.sub(past, first), constant(I64, -lanes)))
        with for_range(b, first, whole, lanes) as k:
            take(k, lanes)
    with for_range(b, whole, past) as k:
        take(k, 1)


def ones(b: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """How many lanes are true, as an i64."""
    if mask.type == I1:
        return b.zext(mask, I64)
    bits = b.bitcast(mask, ir.IntType(mask.type.count))
    return b.zext(intrinsic(b, "llvm.ctpop", bits.type, [bits]), I64)


def least_lane(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The least unsigned integer of a vector."""
    kind = scalar_of(value.type)
    found = b.extract_element(value, constant(I64, 0))
    for lane in range(1, lanes_of(value.type)):
        found = intrinsic(b, "llvm.umin", kind, [found, b.extract_element(value, constant(I64, lane))])
    return found
