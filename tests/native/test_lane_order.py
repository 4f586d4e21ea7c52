"""Lanes put in order by masks: every mask, and code for processors that this machine need not be."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from llvmlite import ir

from shardc.native.llvm import jit
from shardc.native.llvm.target import host_target, named_target
from shardc.native.math.lane_order import ORDERED_BITS, can_order, false_first
from shardc.native.math.vector import I64, PTR, constant, with_lanes


def _module(bits: int, module: ir.Module) -> ir.Module:
    """``k(vector, limits, moved)``: how many lanes are greater than the limits; those come last."""
    function = ir.Function(module, ir.FunctionType(I64, [PTR] * 3), "k")
    b = ir.IRBuilder(function.append_basic_block())
    kind = with_lanes(ir.IntType(bits), ORDERED_BITS // bits)
    x, limits = (b.load(p, typ=kind, align=8) for p in function.args[:2])
    moved, count = false_first(b, x, b.icmp_signed(">", x, limits))
    b.store(moved, function.args[2], align=8)
    b.ret(b.add(count, constant(I64, 0)))
    return module


@pytest.mark.skipif(not can_order(host_target()), reason="this processor has no AVX2")
@pytest.mark.parametrize("bits", [32, 64])
def test_every_mask(bits: int) -> None:
    loaded = jit.load_object(jit.compile_ir(_module(bits, jit.new_module("m"))), ["k"], {})
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3)(loaded.address("k"))
    lanes = ORDERED_BITS // bits
    x = np.arange(10, 10 + lanes, dtype=f"i{bits // 8}")
    for mask in range(1 << lanes):
        last = (mask >> np.arange(lanes) & 1).astype(bool)
        limits, moved = np.where(last, x - 1, x), np.empty_like(x)
        assert call(x.ctypes.data, limits.ctypes.data, moved.ctypes.data) == last.sum()
        np.testing.assert_array_equal(moved, np.concatenate([x[~last], x[last]]))


def test_targets() -> None:
    assert not can_order(named_target("x86-64"))
    assert not can_order(named_target("aarch64"))
    for cpu in ("x86-64-v3", "x86-64-v4"):
        target = named_target(cpu)
        assert can_order(target)
        assert jit.compile_ir(_module(32, jit.new_module("m", target)), target) != b""
