"""Matrix products in tiles against the evaluator: sizes around the borders of tiles, orders of dimensions, types."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DTYPES, array_shape
from shardc.native.llvm.target import CPUS, named_target
from shardc.native.threads.pool import pool, pool_object
from tests.compiler.kernel_runner import check, compile_and_run, instruction, kernel_object

Sizes = tuple[int, int, int, int]

#: Batches, rows, columns, depth.
SIZES: list[Sizes] = [
    (1, 9, 10, 11), (1, 130, 70, 600), (1, 1030, 65, 40), (1, 257, 129, 300), (1, 512, 64, 256), (3, 100, 100, 120),
    (2, 300, 40, 257), (1, 1, 200, 300), (1, 200, 1, 300), (1, 64, 1000, 64), (1, 33, 513, 300), (5, 8, 32, 32),
    (1, 5, 7, 3), (3, 1, 40, 9), (2, 6, 1, 5), (1, 1, 1, 1), (1, 1, 1, 500),
]  # fmt: skip


def dot(dtype: str, sizes: Sizes, order: tuple[str, str], result: str | None = None) -> Instruction:
    """``order``: the dimensions of each side as letters b, m, k and b, k, n."""
    size = dict(zip("bmnk", sizes, strict=True))
    shapes = [array_shape(DTYPES[dtype], *(size[d] for d in o)) for o in order]
    batch = sizes[0] > 1 or "b" in order[0]
    fields = {
        "lhs_batch_dims": (order[0].index("b"),) if batch else (),
        "rhs_batch_dims": (order[1].index("b"),) if batch else (),
        "lhs_contracting_dims": (order[0].index("k"),),
        "rhs_contracting_dims": (order[1].index("k"),),
    }
    kept = ([sizes[0]] if batch else []) + [sizes[1], sizes[2]]
    return instruction("dot", *shapes, shape=array_shape(DTYPES[result or dtype], *kept), **fields)


def numbers(i: Instruction, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    out = []
    for o in i.operands:
        values = rng.standard_normal(o.shape.dims)
        if o.shape.dtype.is_complex:
            values = values + 1j * rng.standard_normal(o.shape.dims)
        out.append(values.astype(o.shape.dtype.numpy))
    return out


ORDERS = [("bmk", "bkn"), ("bkm", "bkn"), ("bmk", "bnk"), ("bkm", "bnk"), ("mbk", "kbn"), ("mkb", "nkb")]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("order", ORDERS)
def test_sizes_and_orders(sizes: Sizes, order: tuple[str, str]) -> None:
    i = dot("f32", sizes, order)
    check(i, numbers(i), ulp=64)


@pytest.mark.parametrize("dtype", ["f64", "bf16", "f16", "c64"])
def test_types_of_tiny_products(dtype: str) -> None:
    i = dot(dtype, (2, 7, 13, 9), ("bmk", "bkn"))
    check(i, numbers(i), ulp=64)


@pytest.mark.parametrize("dtype", ["f64", "c64", "c128", "bf16", "f16", "s32", "s8"])
@pytest.mark.parametrize("order", ORDERS[:4])
def test_types(dtype: str, order: tuple[str, str]) -> None:
    i = dot(dtype, (2, 70, 130, 90), order)
    check(i, numbers(i), ulp=64)


def test_what_is_not_a_number_stays_in_its_row_and_column() -> None:
    i = dot("f32", (1, 300, 130, 520), ("mk", "kn"))
    left, right = numbers(i)
    left[7, 300], left[290, 3], right[519, 129], right[0, 64] = np.nan, np.inf, -np.inf, np.nan
    check(i, [left, right], ulp=64)


@pytest.mark.parametrize("sizes", [(1, 600, 700, 520), (6, 200, 130, 300), (1, 3000, 8, 700)])
@pytest.mark.parametrize("dtype", ["f32", "c64"])
def test_equal_bits_on_any_number_of_threads(sizes: Sizes, dtype: str) -> None:
    i = dot(dtype, sizes, ("bmk", "bnk"))
    arguments = numbers(i)
    threads = pool(pool_object())
    found = []
    try:
        for workers in (0, 1, 3):
            threads.configure(workers)
            found.append(compile_and_run(i, arguments)[0].tobytes())
    finally:
        threads.configure(0)
    assert found[0] == found[1] == found[2]


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 700), st.sampled_from(ORDERS), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_any_size(m: int, n: int, k: int, order: tuple[str, str], batch: int) -> None:
    i = dot("f32", (batch, m, n, k), order)
    check(i, numbers(i), ulp=64)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    ("dtype", "sizes"), [("f32", (1, 300, 200, 520)), ("bf16", (2, 7, 9, 5)), ("s8", (2, 70, 90, 30))]
)
def test_every_cpu(cpu: str, dtype: str, sizes: Sizes) -> None:
    assert kernel_object(dot(dtype, sizes, ("bmk", "bkn")), named_target(cpu, "linux"))
