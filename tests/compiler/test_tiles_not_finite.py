"""3x3 convolutions by tiles whose inputs hold infinities and NaNs, or are so large that a tile's sums overflow.

What is not finite goes where the products as they are written bring it, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from shardc.compiler.tuning import Tuning
from shardc.hlo.ir.ir import Instruction
from shardc.native.threads.pool import pool, pool_object
from tests.compiler.kernel_runner import Array, compile_and_run, expected, kernel_object
from tests.compiler.property_support import small
from tests.compiler.test_convolutions import BY_TILES, by_tiles

FULL = pytest.mark.full
#: Fits any sum of one of these and whole numbers; two of these overflow.
LARGE = 3e38
#: In every run; the others with ``--run-full``.
ALWAYS = ("even", "turned", "turned as it lies", "odd", "rows", "weights", "odd weights", "many images")
NAMES = [n if n in ALWAYS else pytest.param(n, marks=FULL) for n in BY_TILES]


@pytest.fixture(params=[0, 3])
def workers(request: pytest.FixtureRequest) -> Iterator[int]:
    threads = pool(pool_object())
    threads.configure(request.param)
    try:
        yield request.param
    finally:
        threads.configure(0)


def agrees(i: Instruction, operands: list[Array], *, reached: bool = True) -> None:
    """Equal, NaN where NaN is; some but not all of the result is ``reached`` by what is not finite, or nothing is."""
    with np.errstate(all="ignore"):
        (got,), (wanted,) = compile_and_run(i, operands), expected(i, operands)
    finite = np.isfinite(np.asarray(wanted).astype(np.float64))
    assert finite.any()
    assert finite.all() != reached
    np.testing.assert_array_equal(got.astype(np.float64), np.asarray(wanted).astype(np.float64))


def draw(i: Instruction) -> list[Array]:
    """Whole numbers: sums of products of them are exact in every order."""
    return [small(o.shape, n) for n, o in enumerate(i.operands)]


@pytest.mark.parametrize("dtype", ["f32", pytest.param("bf16", marks=FULL), pytest.param("f64", marks=FULL)])
@pytest.mark.parametrize("value", [np.inf, pytest.param(-np.inf, marks=FULL), np.nan])
@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_one_element(name: str, operand: int, value: float, dtype: str) -> None:
    """Of the input, of the kernel, or of the result's gradient."""
    i = by_tiles(name, dtype)
    operands = draw(i)
    at = tuple(n * 2 // 3 for n in operands[operand].shape)
    operands[operand][at] = value
    agrees(i, operands)


@pytest.mark.parametrize("name", ["even", "odd", "weights", "odd weights"])
def test_several_elements_on_threads(name: str, workers: int) -> None:
    """Of several images and channels, some at the border."""
    i = by_tiles(name, "f32")
    operands = draw(i)
    rng = np.random.default_rng(7)
    for value in (np.inf, -np.inf, np.nan):
        operands[0][tuple(rng.integers(n) for n in operands[0].shape)] = value
    operands[0][tuple(n - 1 for n in operands[0].shape)] = np.inf
    agrees(i, operands)


def channel(i: Instruction, operand: int) -> list[Array]:
    """Operands of which one channel is all zeros, with views of that channel, channels first: (batch or features, 2D).

    The other operand's channel has a single one per batch or feature. So every result has one product with each.
    """
    labels = i.attrs["dim_labels"]
    operands = draw(i)
    sides = [(labels.lhs_batch, labels.lhs_feature), (labels.rhs_output_feature, labels.rhs_input_feature)]
    spaces = (labels.lhs_spatial, labels.rhs_spatial)
    views = [
        a.transpose(*side, *space)[:, 1] for a, side, space in zip(operands, sides, spaces, strict=True)
    ]  # fmt: skip
    for view in views:
        view[...] = 0
    other = views[1 - operand]
    other[:, other.shape[1] // 2, other.shape[2] // 2] = 1
    return [*operands, views[operand]]


@pytest.mark.parametrize("dtype", ["f32", pytest.param("bf16", marks=FULL)])
@pytest.mark.parametrize("name", NAMES)
def test_large_inputs(name: str, dtype: str) -> None:
    """Each meets a one in one product of every result, but differences within a tile overflow."""
    i = by_tiles(name, dtype)
    left, right, view = channel(i, 0)
    signs = np.where(np.arange(max(view.shape)) % 4 < 2, 1.0, -1.0)
    view[1:] = (LARGE * signs[: view.shape[1], None] * signs[: view.shape[2]]).astype(view.dtype)
    agrees(i, [left, right], reached=False)


@pytest.mark.parametrize("dtype", ["f32", pytest.param("bf16", marks=FULL)])
@pytest.mark.parametrize("name", NAMES)
def test_large_taps(name: str, dtype: str) -> None:
    """The sums of taps overflow."""
    i = by_tiles(name, dtype)
    left, right, view = channel(i, 1)
    view[1:] = LARGE
    agrees(i, [left, right], reached=False)


def test_without_tiles() -> None:
    """The choice that tuning has."""
    i = by_tiles("even", "f32")
    assert kernel_object(i, tuning=Tuning(winograd=False)) != kernel_object(i)
