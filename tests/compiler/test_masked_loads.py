"""Masked loads: lanes without a mask are zero, and where no lane is read the place is the array's beginning."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.hlo.ir.types import DTYPES
from shardc.native.llvm import jit

LANES = 16
I64, POINTER = ir.IntType(64), ir.PointerType()


def loading(dtype: str) -> ir.Module:
    """``load(base, offset, mask, out)``: one masked vector, written out whole."""
    module = jit.new_module("test")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, I64, I64, POINTER]), "load")
    b = ir.IRBuilder(function.append_basic_block())
    base, offset, bits, out = function.args
    mask = b.bitcast(b.trunc(bits, ir.IntType(LANES)), ir.VectorType(ir.IntType(1), LANES))
    (value,) = memory.load(b, base, offset, DTYPES[dtype], LANES, mask)
    b.store(value, out, align=1)
    b.ret_void()
    return module


@pytest.mark.parametrize("dtype", ["f32", "f64", "s8", "s32"])
@pytest.mark.parametrize(("offset", "mask"), [(3, 0b1010_0000_0000_0001), (1 << 40, 0), (-(1 << 40), 0)])
def test_lanes_without_a_mask_are_zero(dtype: str, offset: int, mask: int) -> None:
    loaded = jit.load_object(jit.compile_ir(loading(dtype)), ["load"], {})
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    call = kind(loaded.address("load"))
    given = np.arange(1, 41).astype(DTYPES[dtype].numpy)
    out = np.full(LANES, 77, given.dtype)
    call(given.ctypes.data, offset, mask, out.ctypes.data)
    want = [given[offset + k] if mask >> k & 1 else 0 for k in range(LANES)]
    np.testing.assert_array_equal(out, want)


def test_where_no_lane_is_read_the_place_is_the_base() -> None:
    """A place outside of all memory would cost a suppressed fault."""
    text = str(loading("f32"))
    (pointer,) = re.findall(r"call .*llvm\.masked\.load.*\(ptr (%\S+),", text)
    assert re.search(rf"{re.escape(pointer)} = select .*ptr {re.escape(loading_base(text))}$", text, re.M), text


def loading_base(text: str) -> str:
    """The name of the function's first argument."""
    found = re.search(r"define void @.*load.*?\(ptr (%[^,]+),", text)
    assert found is not None
    return found[1]
