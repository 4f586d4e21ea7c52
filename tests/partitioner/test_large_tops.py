"""Top-k that keeps much of a split line: as a sort, with the order and the ties of a top-k."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from partition_support import check, collectives, layout, with_shardings

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.partitioner.report import build_report

MESH = Mesh({"x": 8})
N = 1 << 14


def top(dtype: str, n: int, k: int, *, largest: bool, split: bool) -> Module:
    b = Builder("main")
    x = b.parameter(array_shape(dtype, n))
    shape = tuple_shape(array_shape(dtype, k), array_shape("s32", k))
    root = b.build(b.add("topk", x, shape=shape, k=k, largest=largest))
    lies = layout(MESH, "x")
    results = lies if split else layout(MESH, None)
    return with_shardings(root, MESH, lambda i: lies if i.shape.dims == (n,) != (k,) else results)


def numbers(dtype: str, n: int) -> Any:
    """With equal ones, and of floats both zeros, infinities and NaNs of several kinds."""
    made = np.random.default_rng(0).integers(-500, 500, n).astype(dtype)
    if made.dtype.kind == "f":
        made[5::97] = np.nan
        made[6::97] = -np.nan
        made[7::97] = np.array(0x7FFFFFFF, np.uint32).view(np.float32)
        made[8::97] = -0.0
        made[9::97] = -np.inf
    return made


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("k", "split"), [(N // 2, True), (N // 16, False), (N - 3, True)])
def test_equal_to_a_top_k(k: int, split: bool, largest: bool, dtype: str) -> None:
    x = numbers(dtype, N)
    local = check(top("f32" if dtype == "float32" else "s32", N, k, largest=largest, split=split), [x])
    assert "all-to-all" in collectives(local)
    assert max(i.shape.size for i in local.instructions() if i.shape.is_array) <= max(N // 2, 0 if split else k)


def test_a_large_top_k_sends_less_than_a_gather() -> None:
    """An element and its place once, and the kept ones to where they belong."""
    n = 1 << 17
    local = check(top("f32", n, n // 2, largest=True, split=True), [numbers("float32", n)])
    assert build_report(local)["wire_bytes"] < 4 * n * 7 / 8 * 0.7


def test_a_few_of_the_best_are_those_of_the_shards() -> None:
    local = check(top("f32", N, 64, largest=True, split=False), [numbers("float32", N)])
    assert collectives(local) == ["all-gather", "all-gather"]
