"""Sorts by one byte against the evaluator's: classes, masks, all bytes, uneven pieces, rows along any dimension."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.ir.types import array_shape
from tests.compiler.kernel_runner import instruction
from tests.compiler.test_key_sorting import before, elements, same_bits

KEYS = {
    "one": lambda rng, n: np.full(n, 7),
    "two in no order": lambda rng, n: rng.integers(0, 2, n) * 2,
    "two in runs": lambda rng, n: np.repeat(rng.integers(0, 2, n), 40)[:n] + 3,
    "three, one of them rare": lambda rng, n: np.where(rng.random(n) < 1e-3, 1, rng.integers(0, 2, n) * 2),
    "seven": lambda rng, n: rng.integers(0, 7, n),
    "all": lambda rng, n: rng.integers(0, 256, n),
    "the last": lambda rng, n: rng.integers(250, 256, n),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize(("dtype", "direction", "n"), [("u8", "LT", 1051), ("s8", "GT", 100_001)])
def test_keys(name: str, dtype: str, direction: str, n: int) -> None:
    rng = np.random.default_rng(0)
    key = KEYS[name](rng, n).astype(np.uint8).view({"u8": np.uint8, "s8": np.int8}[dtype])
    others = [rng.standard_normal(n), rng.integers(0, 2, n).astype(np.bool_)]
    comparator = before(dtype, "f64", "pred", direction=direction)
    shapes = [array_shape(t, n) for t in (dtype, "f64", "pred")]
    same_bits(instruction("sort", *shapes, dimensions=(0,), is_stable=True, to_apply=comparator), [key, *others])


@pytest.mark.parametrize(("dtype", "direction"), [("u8", "LT"), ("s8", "LT"), ("s8", "GT"), ("pred", "GT")])
def test_alone(dtype: str, direction: str) -> None:
    given = elements(dtype, 3000, np.random.default_rng(1))
    comparator = before(dtype, direction=direction)
    i = instruction("sort", array_shape(dtype, 3000), dimensions=(0,), is_stable=True, to_apply=comparator)
    same_bits(i, [given])


@pytest.mark.parametrize(("dim", "others"), [(0, 3), (1, 5), (2, 3), (2, 5)])
def test_rows(dim: int, others: int) -> None:
    """Masks bring what is chosen to the front; a few rows, and many."""
    rng = np.random.default_rng(dim)
    dims = tuple(2500 if d == dim else others for d in range(3))
    given = [rng.random(dims) < 0.3, (rng.standard_normal(dims) + 1j).astype(np.complex64)]
    shapes = [array_shape("pred", *dims), array_shape("c64", *dims)]
    comparator = before("pred", "c64", direction="GT")
    same_bits(instruction("sort", *shapes, dimensions=(dim,), is_stable=True, to_apply=comparator), given)


def test_a_key_behind_others() -> None:
    n = 5000
    rng = np.random.default_rng(3)
    given = [rng.standard_normal(n).astype(np.float32), rng.integers(0, 3, n).astype(np.uint8)]
    shapes = [array_shape("f32", n), array_shape("u8", n)]
    comparator = before("f32", "u8", keys=(1,))
    same_bits(instruction("sort", *shapes, dimensions=(0,), is_stable=True, to_apply=comparator), given)
