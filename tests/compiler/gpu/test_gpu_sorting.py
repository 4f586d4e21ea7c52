"""Sort on a GPU under emulation: every order of threads gives the evaluator's result, to the bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import array_shape as f
from tests.compiler.gpu.gpu_runner import ORDERS, assemble_kernel, assert_light, check_gpu
from tests.compiler.kernel_runner import Array, instruction

FEW = ORDERS[1:3]


def lexicographic(dtypes: Sequence[str], keys: int, direction: str = "LT") -> Computation:
    """The comparator of the first ``keys`` of some arrays, one after the other."""
    b = Builder("before")
    p = [b.parameter(f(d)) for d in dtypes for _ in range(2)]
    result = b.constant(False, "pred")
    for k in reversed(range(keys)):
        order = {"type": "TOTALORDER"} if f(dtypes[k]).dtype.is_float else {}
        less = b.add("compare", p[2 * k], p[2 * k + 1], direction=direction, **order)
        same = b.add("compare", p[2 * k], p[2 * k + 1], direction="EQ", **order)
        result = b.add("or", less, b.add("and", same, result))
    return b.build(result)


def sort(dims: Sequence[int], dim: int, dtypes: Sequence[str], keys: int = 1, direction: str = "LT") -> Instruction:
    comparator = lexicographic(dtypes, keys, direction)
    shapes = [f(d, *dims) for d in dtypes]
    return instruction("sort", *shapes, dimensions=(dim,), is_stable=True, to_apply=comparator)


def few_values(i: Instruction, seed: int = 0) -> list[Array]:
    """Many equal elements, so that stability shows; NaNs, infinities and both zeros where there are any."""
    rng = np.random.default_rng(seed)
    found: list[Array] = []
    for o in i.operands:
        d = o.shape.dtype
        x = rng.integers(0, 2 if d.bits < 4 else 7, o.shape.dims)
        if d.is_complex:
            found.append((x + 1j * rng.integers(0, 3, x.shape)).astype(d.numpy))
        elif d.is_float:
            table = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -2.0])
            found.append(table[x].astype(d.numpy))
        else:
            found.append(x.astype(d.numpy))
    return found


@pytest.mark.parametrize(
    ("dims", "dim", "dtypes"),
    [
        ((1,), 0, ["f32"]),
        ((2, 2), 1, ["s32", "f32"]),
        ((3, 5), 0, ["bf16", "f64", "u8"]),
        ((40, 7), 1, ["s32", "f32"]),
        ((9, 33), 1, ["bf16", "f64", "u8"]),
        ((100, 9), 0, ["f32"]),
        ((2, 60, 3), 1, ["bf16", "f64", "u8"]),
        ((2, 700), 1, ["f32"]),
    ],
)
def test_rows_that_a_block_holds(dims: tuple[int, ...], dim: int, dtypes: list[str]) -> None:
    i = sort(dims, dim, dtypes)
    check_gpu(i, few_values(i), orders=FEW)


@pytest.mark.parametrize(
    ("dims", "dim", "dtypes", "keys"),
    [
        ((2, 9000), 1, ["f32"], 1),
        ((9000,), 0, ["s32", "f32", "f64"], 1),
        ((5000, 3), 0, ["u8", "c64"], 1),
        ((4100,), 0, ["f64", "s64", "u8", "f64", "c128"], 3),
    ],
)
def test_rows_of_several_tiles(dims: tuple[int, ...], dim: int, dtypes: list[str], keys: int) -> None:
    i = sort(dims, dim, dtypes, keys)
    check_gpu(i, few_values(i), orders=FEW)


@pytest.mark.parametrize("dtype", ["pred", "s4", "u64", "f8e4m3fn"])
def test_keys_of_every_kind_downwards(dtype: str) -> None:
    i = sort((3, 70), 1, [dtype, "s32"], direction="GT")
    check_gpu(i, few_values(i), orders=FEW)


def test_distinct_values_of_a_long_row() -> None:
    i = sort((12011,), 0, ["f32", "s32"])
    rng = np.random.default_rng(5)
    check_gpu(i, [rng.standard_normal(12011).astype(np.float32), np.arange(12011, dtype=np.int32)], orders=FEW[:1])


def test_a_comparator_that_looks_at_nothing_keeps_the_order() -> None:
    i = sort((50,), 0, ["f32", "f64"], keys=0)
    check_gpu(i, few_values(i), orders=FEW)


def test_code_is_light() -> None:
    assert_light(assemble_kernel(sort((5, 1 << 16), 1, ["f64", "s64", "u8", "f64"], 3)), registers=64)
