"""Blocks of elements are transposed as NumPy does it, by native code and by what it means in plain Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from shardc.native.llvm.jit import Loaded, compile_ir, load_object
from shardc.native.lowlevel.builtins import symbol_of
from shardc.native.memory.transposing import LINE, PART, transpose_block, transpose_part, transposing_module

_P, _N = ctypes.c_void_p, ctypes.c_int64


@cache
def code() -> Loaded:
    symbols = [symbol_of(f) or "" for f in (transpose_block, transpose_part)]
    return load_object(compile_ir(transposing_module()), symbols)


def native(function: Callable[..., None]) -> Any:
    return ctypes.CFUNCTYPE(None, _P, _N, _P, _N, _N, ctypes.c_bool)(code().address(symbol_of(function) or ""))


@pytest.mark.parametrize("element", [1, 2, 4, 8])
@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize("function, nbytes", [(transpose_block, LINE), (transpose_part, PART)])
def test_a_block_is_transposed_and_nothing_beside_it_is_written(
    element: int, place: int, function: Callable[..., None], nbytes: int
) -> None:
    kind, count = f"u{element}", nbytes // element
    source = np.random.default_rng(element).integers(0, 255, (80, 128), "u1")
    for run in (function, native(function)):
        space = np.zeros(LINE + 80 * 128, "u1")
        start = -space.ctypes.data % LINE
        target = space[start : start + 80 * 128].reshape(80, 128)
        streams = () if function is transpose_part and run is function else (place == 0,)
        run(target.ctypes.data + place, 128, source.ctypes.data + 5, 128, element, *streams)
        given = np.ascontiguousarray(source[:count, 5 : 5 + nbytes]).view(kind)
        made = np.ascontiguousarray(target[:count, place : place + nbytes]).view(kind)
        np.testing.assert_array_equal(made, given.T)
        target[:count, place : place + nbytes] = 0
        assert not space.any()
