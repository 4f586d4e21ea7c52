"""Scatter, dynamic-update-slice, sort, top-k against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.types import array_shape as f
from tests.compiler.kernel_runner import check, instruction, random


def assign(dtype: str) -> Computation:
    b = Builder("assign")
    b.parameter(f(dtype))
    return b.build(b.parameter(f(dtype)))


@pytest.mark.parametrize("in_place", [None, 0])
@pytest.mark.parametrize("start", [(0, 0), (3, 5), (100, -7)])
def test_dynamic_update_slice(start: tuple[int, int], in_place: int | None) -> None:
    for dtype in ("f32", "pred", "c64", "bf16"):
        i = instruction("dynamic-update-slice", f(dtype, 10, 37), f(dtype, 4, 21), f("s32"), f("s32"))
        args = [random(f(dtype, 10, 37)), random(f(dtype, 4, 21), 1), *(np.int32(s) for s in start)]
        check(i, args, in_place=in_place)


@pytest.mark.parametrize("dtype", ["f32", "s32", "bf16", "c64", "pred"])
@pytest.mark.parametrize("opcode", ["add", "assign", "maximum"])
def test_scatter_rows(dtype: str, opcode: str) -> None:
    if (dtype, opcode) == ("c64", "maximum"):
        pytest.skip("complex numbers have no order")
    body = assign(dtype) if opcode == "assign" else binary_computation(opcode, dtype)
    indices = np.array([[3], [0], [3], [-1], [7], [6], [3]], np.int32)
    for width in (1, 5, 16, 37):
        i = instruction(
            "scatter", f(dtype, 7, width), f("s32", 7, 1), f(dtype, 7, width), update_window_dims=(1,),
            inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1, to_apply=body,
        )  # fmt: skip
        args = [random(f(dtype, 7, width)), indices, random(f(dtype, 7, width), 1)]
        check(i, args, ulp=2)
        check(i, args, ulp=2, in_place=0)


def test_scatter_windows_that_stick_out_are_dropped() -> None:
    i = instruction(
        "scatter", f("f32", 10, 8), f("s32", 2, 5), f("f32", 5, 3, 2), update_window_dims=(1, 2),
        inserted_window_dims=(), scatter_dims_to_operand_dims=(0, 1), index_vector_dim=0,
        to_apply=binary_computation("add", "f32"),
    )  # fmt: skip
    indices = np.array([[0, 7, 8, -1, 3], [6, 6, 0, 0, 7]], np.int32)
    check(i, [random(f("f32", 10, 8)), indices, random(f("f32", 5, 3, 2), 1)], ulp=1)


def test_scatter_batching_dims() -> None:
    i = instruction(
        "scatter", f("f32", 3, 6), f("u8", 3, 4, 1), f("f32", 3, 4), update_window_dims=(), inserted_window_dims=(1,),
        scatter_dims_to_operand_dims=(1,), input_batching_dims=(0,), scatter_indices_batching_dims=(0,),
        index_vector_dim=2, to_apply=binary_computation("add", "f32"),
    )  # fmt: skip
    indices = random(f("u8", 3, 4, 1), low=0, high=7)
    check(i, [random(f("f32", 3, 6)), indices, random(f("f32", 3, 4), 1)], ulp=1)


def comparator(dtype: str, direction: str = "LT", others: tuple[str, ...] = ()) -> Computation:
    b = Builder("compare")
    x, y = b.parameter(f(dtype)), b.parameter(f(dtype))
    for other in others:
        b.parameter(f(other))
        b.parameter(f(other))
    return b.build(b.add("compare", x, y, direction=direction))


@pytest.mark.parametrize("dims", [(1,), (2,), (17,), (300,), (5, 33), (33, 5), (3, 8, 2), (0, 4)])
def test_sort(dims: tuple[int, ...]) -> None:
    for dim in range(len(dims)):
        for direction in ("LT", "GT"):
            i = instruction("sort", f("s32", *dims), dimensions=(dim,), to_apply=comparator("s32", direction))
            check(i, [random(f("s32", *dims))])


def test_sort_is_stable_and_moves_all_operands() -> None:
    shapes = [f("s32", 4, 50), f("f32", 4, 50), f("c64", 4, 50)]
    i = instruction("sort", *shapes, dimensions=(1,), is_stable=True, to_apply=comparator("s32", "GT", ("f32", "c64")))
    check(i, [random(s, low=0, high=5) for s in shapes])


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64", "s32", "u8", "pred"])
@pytest.mark.parametrize(("k", "n"), [(4, 20), (1, 9), (20, 20), (70, 150), (70, 80)])
def test_topk(k: int, n: int, dtype: str) -> None:
    """Short lists and long ones; equal values in order of position, floats in total order."""
    from shardc.hlo.ir.types import tuple_shape

    shape = tuple_shape(f(dtype, 3, k), f("s32", 3, k))
    x = random(f(dtype, 3, n), low=0, high=9)
    if f(dtype).dtype.is_float:
        x[:, ::2] = np.round(x[:, ::2].astype(np.float32)).astype(x.dtype)
        x[1, :6] = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, -np.nan]).astype(x.dtype)
    for largest in (True, False):
        check(instruction("topk", f(dtype, 3, n), shape=shape, k=k, largest=largest), [x])
