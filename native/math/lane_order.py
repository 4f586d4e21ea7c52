"""Lanes of a vector in an order that a mask gives while the program runs: those that are false first."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from shardc.native.llvm.target import Target
from shardc.native.math.vector import I8, I32, I64, intrinsic, lanes_of

__all__ = ["ORDERED_BITS", "can_order", "false_first"]

#: Bits of the vectors that are put in order: one instruction moves eight lanes of 32 bits anywhere.
ORDERED_BITS = 256
_PERMUTE, _FEATURE = "llvm.x86.avx2.permd", "+avx2"
_WORDS = ORDERED_BITS // 32
_WORD_LANES = ir.VectorType(I32, _WORDS)


def can_order(target: Target) -> bool:
    """Whether the processor has the instruction that `false_first` needs."""
    return _FEATURE in target.features.split(",")


def false_first(b: ir.IRBuilder, vector: ir.Value, mask: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The lanes of ``vector`` (8 of 32 bits, or 4 of 64) where ``mask`` is false, then those where it is true, each in
    their order; and how many are true, an i64.

    The order is a row of a table with one row for each mask.
    """
    lanes = lanes_of(vector.type)
    bits = b.bitcast(mask, ir.IntType(lanes))
    row = b.gep(_orders(b.module, lanes), [b.zext(bits, I64)], source_etype=ir.ArrayType(I8, _WORDS))
    order = b.zext(b.load(row, typ=ir.VectorType(I8, _WORDS), align=_WORDS), _WORD_LANES)
    function = b.module.globals.get(_PERMUTE)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(_WORD_LANES, [_WORD_LANES] * 2), _PERMUTE)
    moved = b.bitcast(b.call(function, [b.bitcast(vector, _WORD_LANES), order]), vector.type)
    return moved, b.zext(intrinsic(b, "llvm.ctpop", I32, [b.zext(bits, I32)]), I64)


def _orders(module: ir.Module, lanes: int) -> ir.Value:
    """The table for vectors of so many lanes: of each mask, the words of the lanes in their new order, as bytes."""
    name = f"shardc.orders.{lanes}"
    place = module.globals.get(name)
    if place is None:
        masks = np.arange(1 << lanes)[:, None] >> np.arange(lanes) & 1
        order = np.argsort(masks, axis=1, kind="stable")
        words = _WORDS // lanes
        data = (order[:, :, None] * words + np.arange(words)).astype(np.uint8).tobytes()
        t = ir.ArrayType(I8, len(data))
        place = ir.GlobalVariable(module, t, name)
        place.initializer = ir.Constant(t, bytearray(data))
        place.linkage, place.global_constant, place.align = "internal", True, 64
    return place
