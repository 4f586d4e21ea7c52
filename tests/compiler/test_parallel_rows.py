"""Sorts and running totals cut into rows and columns for several threads, against NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.opset import Window, WindowDim
from shardc.hlo.ir.types import array_shape
from shardc.native.threads.pool import pool, pool_object
from tests.compiler.kernel_runner import compile_and_run, instruction
from tests.compiler.test_kernels_updates import comparator


@pytest.fixture(autouse=True)
def helpers() -> Iterator[None]:
    """Two threads help, so that chunks are done one by one."""
    pool(pool_object()).configure(2)
    yield
    pool(pool_object()).configure(0)


@pytest.mark.parametrize("dims", [(3, 5000, 7), (2, 40, 3001), (700, 333), (1, 200, 1029)])
@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("backwards", [False, True])
def test_totals_of_many_rows_and_columns(dims: tuple[int, ...], dimension: int, backwards: bool) -> None:
    n = dims[dimension]
    low, high = (0, n - 1) if backwards else (n - 1, 0)
    moving = WindowDim(n, pad_low=low, pad_high=high)
    window = Window(tuple(moving if d == dimension else WindowDim(1) for d in range(len(dims))))
    x = np.random.default_rng(0).integers(-9, 9, dims).astype(np.int32)
    shapes = (array_shape("s32", *dims), array_shape("s32"))
    i = instruction("reduce-window", *shapes, window=window, to_apply=binary_computation("add", "s32"))
    (got,) = compile_and_run(i, [x, np.zeros((), np.int32)])
    turned = np.flip(x, dimension) if backwards else x
    wanted = np.cumsum(turned, dimension, dtype=np.int32)
    np.testing.assert_array_equal(got, np.flip(wanted, dimension) if backwards else wanted)


@pytest.mark.parametrize("dims", [(301, 50), (5, 1000), (1, 4000), (40, 3, 70)])
@pytest.mark.parametrize("dimension", [0, 1])
def test_sorts_of_many_rows(dims: tuple[int, ...], dimension: int) -> None:
    x = np.random.default_rng(1).integers(0, 50, dims).astype(np.int32)
    order = np.broadcast_to(
        np.arange(dims[dimension], dtype=np.int32).reshape(-1, *[1] * (len(dims) - dimension - 1)), dims
    )
    shapes = (array_shape("s32", *dims),) * 2
    less = comparator("s32", "LT", ("s32",))
    i = instruction("sort", *shapes, dimensions=(dimension,), is_stable=True, to_apply=less)
    values, places = compile_and_run(i, [x, np.ascontiguousarray(order)])
    wanted = np.argsort(x, dimension, kind="stable")
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, dimension))
