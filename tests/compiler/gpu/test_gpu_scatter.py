"""scatter on a grid: each way of combining, places that meet, windows that reach outside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shardc.compiler.gpu.kernel import emit_gpu_kernel
from shardc.compiler.tuning import DEFAULT
from shardc.native.gpu.nvptx import new_nvptx_module
from shardc.native.gpu.target import gpu_target
from tests.compiler.gpu.gpu_runner import (
    ORDERS,
    as_instruction,
    assemble_kernel,
    assert_light,
    check_gpu,
    kernel_ptx,
    run_gpu_kernel,
)
from tests.compiler.kernel_runner import Array, assert_close, expected, random

FREE = replace(DEFAULT, deterministic=False)


def table(dtype: str, step: str, rows: int, width: int, updates: int, more: str = "") -> str:
    """Rows of an array, each combined with some of the updates."""
    return f"""HloModule m
    step {{
      a = {dtype}[] parameter(0)
      b = {dtype}[] parameter(1)
      ROOT c = {dtype}[] {step}
    }}
    ENTRY main {{
      x = {dtype}[{rows},{width}] parameter(0)
      i = s32[{updates},1] parameter(1)
      u = {dtype}[{updates},{width}] parameter(2)
      ROOT r = {dtype}[{rows},{width}] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
        scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=step{more}
    }}"""


def places(rows: int, updates: int, seed: int = 0) -> Array:
    """Some of them outside, and many the same."""
    return np.random.default_rng(seed).integers(-2, rows + 2, (updates, 1)).astype(np.int32)


def given_for(text: str, indices: Array) -> list[Array]:
    i = as_instruction(text)
    return [random(o.shape, n) if n != 1 else indices for n, o in enumerate(i.operands)]


@pytest.mark.parametrize(
    ("dtype", "step"),
    [
        ("f32", "add(a, b)"),
        ("f64", "multiply(a, b)"),
        ("c64", "add(a, b)"),
        ("f32", "copy(b)"),
        ("f32", "subtract(a, b)"),
        ("s32", "subtract(b, a)"),
        ("s32", "add(a, b)"),
        ("u32", "maximum(a, b)"),
        ("s64", "minimum(a, b)"),
        ("s8", "multiply(a, b)"),
        ("u16", "xor(a, b)"),
        ("pred", "or(a, b)"),
        ("f32", "maximum(a, b)"),
        ("bf16", "minimum(a, b)"),
        ("f64", "maximum(a, b)"),
    ],
)
@pytest.mark.parametrize(("rows", "width", "updates"), [(20, 33, 50), (50, 1, 300), (5, 300, 9)])
def test_the_order_of_updates_is_kept(dtype: str, step: str, rows: int, width: int, updates: int) -> None:
    """As if they were applied one after the other, in every order of threads."""
    text = table(dtype, step, rows, width, updates)
    check_gpu(text, given_for(text, places(rows, updates)), in_place={0: 0} if updates == 50 else None)


def test_small_floats_are_rounded_at_each_step() -> None:
    text = table("bf16", "add(a, b)", 9, 20, 40)
    given = given_for(text, places(9, 40))
    got = run_gpu_kernel(text, given)[0].astype(np.float32)
    wanted = given[0].copy()
    for row, update in zip(given[1][:, 0], given[2], strict=True):
        if 0 <= row < 9:
            wanted[row] = wanted[row] + update
    np.testing.assert_array_equal(got, wanted.astype(np.float32))


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_sums_in_any_order_where_that_is_allowed(dtype: str) -> None:
    text = table(dtype, "add(a, b)", 7, 40, 60)
    given = given_for(text, places(7, 60))
    got = run_gpu_kernel(text, given, tuning=FREE, exact=False)
    assert_close(got[0], expected(as_instruction(text), given)[0], as_instruction(text).shape, 64)


def test_ways() -> None:
    """One launch where no two updates meet or order does not matter, three where it does (operand, rows, updates)."""
    target = gpu_target("cuda:sm_90")

    def launches(text: str, tuning: object = DEFAULT) -> int:
        steps = emit_gpu_kernel(
            new_nvptx_module("m", target), as_instruction(text), "k", target, frozenset([0]), tuning
        ).steps  # fmt: skip
        return len(steps)

    floats, integers = table("f32", "add(a, b)", 99, 64, 50), table("s32", "add(a, b)", 99, 64, 50)
    assert launches(floats) == 2
    assert launches(floats, FREE) == launches(integers) == launches(table("f32", "add(a, b)", 99, 64, 1)) == 1
    assert launches(table("f32", "add(a, b)", 99, 64, 50, ", unique_indices=true")) == 1
    assert b"atom" in kernel_ptx(integers) or b"red" in kernel_ptx(integers)
    assert b"atom.add" not in kernel_ptx(floats)


def test_unique_places_in_vectors() -> None:
    text = table("f32", "add(a, b)", 40, 64, 30, ", unique_indices=true")
    order = np.random.default_rng(1).permutation(44)[:30, None].astype(np.int32) - 2
    check_gpu(text, given_for(text, order), in_place={0: 0})
    big = table("f32", "add(a, b)", 40000, 1024, 8192, ", unique_indices=true")
    assert b"st.global.v4" in kernel_ptx(big, in_place={0: 0})


def test_windows_that_start_anywhere_and_overlap() -> None:
    text = """HloModule m
    step {
      a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b)
    }
    ENTRY main {
      x = f32[12,5,20] parameter(0)
      i = s32[2,7] parameter(1)
      u = f32[7,4,3,20] parameter(2)
      n = f32[7,4,3,20] negate(u)
      ROOT r = f32[12,5,20] scatter(x, i, n), update_window_dims={1,2,3}, inserted_window_dims={},
        scatter_dims_to_operand_dims={0,1}, index_vector_dim=0, to_apply=step
    }"""
    rng = np.random.default_rng(0)
    indices = np.stack([rng.integers(-1, 10, 7), rng.integers(-1, 4, 7)]).astype(np.int32)
    check_gpu(text, given_for(text, indices))
    check_gpu(text, given_for(text, indices), in_place={0: 0})
    apart = text.replace("to_apply=step\n    }", "to_apply=step, unique_indices=true\n    }")
    starts = np.stack([np.arange(7), np.zeros(7)]).astype(np.int32)
    check_gpu(apart, given_for(apart, starts))


def test_batches_of_operand_and_indices() -> None:
    text = """HloModule m
    step {
      a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b)
    }
    ENTRY main {
      x = f32[3,10,4] parameter(0)
      i = s32[6,3,1] parameter(1)
      u = f32[6,3,4] parameter(2)
      ROOT r = f32[3,10,4] scatter(x, i, u), update_window_dims={2}, inserted_window_dims={1},
        input_batching_dims={0}, scatter_indices_batching_dims={1},
        scatter_dims_to_operand_dims={1}, index_vector_dim=2, to_apply=step
    }"""
    indices = np.random.default_rng(0).integers(-1, 11, (6, 3, 1)).astype(np.int32)
    check_gpu(text, given_for(text, indices))


def test_several_arrays_at_once() -> None:
    text = """HloModule m
    step {
      a = f32[] parameter(0)
      b = s32[] parameter(1)
      c = f32[] parameter(2)
      d = s32[] parameter(3)
      g = pred[] compare(c, a), direction=GT
      m = f32[] select(g, c, a)
      n = s32[] select(g, d, b)
      ROOT r = (f32[], s32[]) tuple(m, n)
    }
    ENTRY main {
      x = f32[9,6] parameter(0)
      i = s32[40,1] parameter(1)
      y = s32[9,6] parameter(2)
      u = f32[40,6] parameter(3)
      v = s32[40,6] parameter(4)
      ROOT r = (f32[9,6], s32[9,6]) scatter(x, y, i, u, v), update_window_dims={1}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=step
    }"""
    check_gpu(text, given_for(text, places(9, 40)))


@pytest.mark.parametrize("dtype", ["s8", "u32", "s64", "u64"])
def test_indices_of_every_type(dtype: str) -> None:
    text = table("f32", "add(a, b)", 9, 4, 30).replace("i = s32", f"i = {dtype}")
    indices = places(9, 30).astype(as_instruction(text).operands[1].shape.dtype.numpy)
    check_gpu(text, given_for(text, indices))


def test_many_updates_of_few_elements() -> None:
    """More than one chunk of row numbers."""
    text = table("f32", "add(a, b)", 40, 1, 5000)
    check_gpu(text, given_for(text, places(40, 5000)), orders=ORDERS[1:3])


@pytest.mark.parametrize("dtype", ["s8", "u16", "bf16", "s32", "f32", "u64", "f64"])
@pytest.mark.parametrize("step", ["add", "maximum", "multiply"])
def test_atomics_of_every_width_assemble(dtype: str, step: str) -> None:
    text = table(dtype, f"{step}(a, b)", 5000, 64, 8192)
    assert_light(assemble_kernel(text, ["sm_80"], {0: 0}, FREE), 64)


def test_registers() -> None:
    for text in (
        table("f32", "add(a, b)", 50000, 1024, 8192),
        table("bf16", "add(a, b)", 50000, 1, 8192),
        table("s8", "maximum(a, b)", 50000, 64, 8192),
        table("f32", "add(a, b)", 50000, 1024, 8192, ", unique_indices=true"),
    ):
        assert_light(assemble_kernel(text), 64)
