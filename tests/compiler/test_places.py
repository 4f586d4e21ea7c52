"""A few places of sorted rows, without a sort: bits as of a sort, for every type and order, and misled samples."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.lower.fuse.place_plan import plan_places
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sort_keys import KEY_TYPES
from shardc.hlo.ir.types import DTYPES, array_shape
from tests.compiler.kernel_runner import Array, fusion
from tests.compiler.test_key_sorting import before, elements, same_bits

Reads = list[tuple[int, int, int]]


def places(
    dtype: str, dims: tuple[int, ...], reads: Reads, dim: int = 0, direction: str = "LT", equal: bool = True
) -> Instruction:
    b = Builder("places")
    comparator = before(dtype, direction=direction, equal=equal)
    made = b.add("sort", b.parameter(array_shape(dtype, *dims)), dimensions=(dim,), is_stable=True, to_apply=comparator)
    cuts = [tuple(r if d == dim else (0, n, 1) for d, n in enumerate(dims)) for r in reads]
    parts = [b.add("slice", made, slice=c) for c in cuts]
    i = fusion(b.build(b.add("tuple", *parts) if len(parts) > 1 else parts[0]))
    assert plan_places(i.attrs["calls"]) is not None
    return i


@pytest.mark.parametrize("dtype", sorted(KEY_TYPES))
@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_types(dtype: str, direction: str) -> None:
    """Half of the elements are zeros of both signs, infinities and NaNs."""
    n = 1 << 14
    given = elements(dtype, n, np.random.default_rng(0))
    for equal in (True, False) if DTYPES[dtype].is_float else (True,):
        reads = [(0, 1, 1), (n // 5, n // 5 + 2, 1), (n // 2, n // 2 + 2, 1), (n - 1, n, 1)]
        same_bits(places(dtype, (n,), reads, direction=direction, equal=equal), [given])


@pytest.mark.parametrize(("dtype", "n"), [("f64", 4096), ("f32", 5003), ("s32", 1 << 17), ("f64", 100_003)])
def test_lengths(dtype: str, n: int) -> None:
    given = (np.random.default_rng(n).standard_normal(n) * 1e6).astype(DTYPES[dtype].numpy)
    for reads in ([(0, 2, 1), (n - 2, n, 1)], [(n // 3, n // 3 + 1, 1)]):
        same_bits(places(dtype, (n,), reads), [given])


def _misleading(n: int, sampled: int) -> Array:
    """What the sample sees is more than all else."""
    given = np.random.default_rng(1).standard_normal(n)
    given[:: n // sampled] = 1e6
    return given


def test_orders_and_misled_samples() -> None:
    n = 40_000
    number = np.arange(n, dtype=np.float64)
    reads = [(5, 6, 1), (n // 4, n // 4 + 2, 1), (n // 2, n // 2 + 1, 1), (n - 300, n - 299, 1)]
    some = np.where(number % 40 == 0, np.nan, number)
    alike = [np.zeros(n), np.full(n, np.nan), np.where(number % 3, np.nan, -np.inf), np.where(number % 7, 0.0, -0.0)]
    given = [*alike, number, -number, number % 5, some, *(_misleading(n, 1 << k) for k in (9, 10, 11))]
    rows = np.stack(given)
    for equal in (True, False):
        same_bits(places("f64", rows.shape, reads, 1, equal=equal), [rows])


@pytest.mark.parametrize(("dim", "others"), [(0, 1), (0, 5), (1, 5), (2, 2), (2, 5)])
def test_rows(dim: int, others: int) -> None:
    """Along any dimension; a few rows by all threads, many on a thread each; slices with a step."""
    dims = tuple(9001 if d == dim else others for d in range(3))
    given = np.random.default_rng(dim).standard_normal(dims).astype(np.float32)
    same_bits(places("f32", dims, [(4500, 4502, 1), (100, 6000, 5000), (4501, 4502, 1)], dim), [given])
