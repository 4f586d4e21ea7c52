"""The quicksort of integers beside NumPy's: lengths at every edge, rows that mislead pivots, equals, extremes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

from shardc.compiler.cpu.reductions.quicksort import Finish, Quicksort
from shardc.native.llvm import jit
from shardc.native.llvm.target import host_target
from shardc.native.math.lane_order import can_order
from shardc.native.math.vector import I64, PTR

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(not can_order(host_target()), reason="this processor has no AVX2")


@cache
def _code(bits: int) -> tuple[Any, dict[str, Callable[..., int]]]:
    """The functions, and what keeps them."""
    module = jit.new_module("m")
    code = Quicksort(module, bits)
    inverted = Quicksort(module, bits, Finish("inverted", lambda b, x: b.not_(x)))
    ways: list[tuple[str, Quicksort, dict[str, Any]]] = [
        ("stay", code, {}),
        ("go", code, {"to_there": True}),
        ("middles", code, {"medians": 0}),
        ("finish", inverted, {}),
    ]
    for name, made, how in ways:
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I64]), name)
        b = ir.IRBuilder(function.append_basic_block())
        made.sort(b, *function.args, **how)
        b.ret_void()
    function = ir.Function(module, ir.FunctionType(I64, [PTR, PTR, I64]), "split")
    b = ir.IRBuilder(function.append_basic_block())
    b.ret(code.split(b, *function.args))
    names = [*(name for name, *_ in ways), "split"]
    loaded = jit.load_object(jit.compile_ir(module), names, {})
    kinds = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    return loaded, {n: ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(loaded.address(n)) for n in names}


def _run(name: str, x: Array) -> tuple[int, Array, Array]:
    """What a function answers and leaves in both arrays; it writes nothing around them."""
    arrays = [np.full(x.size + 16, 77, x.dtype) for _ in range(2)]
    arrays[0][8:-8] = x
    answer = _code(8 * x.itemsize)[1][name](*(a[8:].ctypes.data for a in arrays), x.size)
    for a in arrays:
        assert (a[:8] == 77).all() and (a[-8:] == 77).all()
    return answer, arrays[0][8:-8], arrays[1][8:-8]


def _rows(dtype: str) -> Iterator[Array]:
    rng = np.random.default_rng(0)
    ends = np.iinfo(dtype)
    for n in (*range(70), 127, 128, 129, 255, 256, 257, 300, 1000, 5000):
        yield rng.integers(ends.min, ends.max, n, dtype, endpoint=True)
        yield rng.integers(0, 3, n).astype(dtype)
    n = 3000
    rising = np.arange(n).astype(dtype)
    yield from (rising, rising[::-1].copy(), np.concatenate([rising, rising[::-1]]), rising % 7, rising // 1000)
    yield from (np.full(n, value, dtype) for value in (ends.min, 0, ends.max))
    yield rng.choice(np.array([ends.min, ends.min + 1, 0, ends.max - 1, ends.max], dtype), n)
    yield np.where(rng.random(n) < 0.9, ends.max, rising).astype(dtype)
    # One element of each size: the middle between the least and the greatest takes off one at a time.
    yield rng.permutation(np.concatenate([[1 << k for k in range(ends.bits - 1)], rng.integers(0, 2, n)])).astype(dtype)


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_rows(dtype: str) -> None:
    for x in _rows(dtype):
        wanted = np.sort(x)
        np.testing.assert_array_equal(_run("stay", x)[1], wanted)
        np.testing.assert_array_equal(_run("go", x)[2], wanted)
        np.testing.assert_array_equal(_run("middles", x)[1], wanted)
        np.testing.assert_array_equal(_run("finish", x)[1], ~wanted)


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_split(dtype: str) -> None:
    for x in _rows(dtype):
        left, _, there = _run("split", x)
        np.testing.assert_array_equal(np.sort(there), np.sort(x))
        assert 0 <= left <= x.size
        if 0 < left < x.size:
            assert there[:left].max() <= there[left:].min()


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_long_rows_are_split_in_the_middle(dtype: str) -> None:
    """Medians of 27 elements are off by little."""
    rng = np.random.default_rng(1)
    ends = np.iinfo(dtype)
    for _ in range(20):
        x = rng.integers(ends.min, ends.max, 10_000, dtype)
        assert 0.15 < _run("split", x)[0] / x.size < 0.85
