"""Reductions of rows on GPUs: every width of a row, every kind of accumulator, in two launches where rows are few."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.gpu.kernel import emit_gpu_kernel
from shardc.compiler.gpu.launches import KernelLaunch
from shardc.compiler.gpu.reductions.row_reduction import row_shape
from shardc.native.gpu.amdgpu import emit_amdgpu, new_amdgpu_module
from shardc.native.gpu.target import gpu_target
from tests.compiler.gpu.gpu_runner import (
    ORDERS,
    as_instruction,
    assemble_kernel,
    assert_light,
    check_gpu,
    emulated,
    run_gpu_kernel,
)
from tests.compiler.gpu.reduction_texts import REDUCERS, arguments, emitter_name, reduced


@pytest.mark.parametrize(
    "dims", [(257, 1), (257, 3), (64, 8), (130, 32), (40, 128), (6, 777), (3, 5000), (1, 4099), (2, 20000)]
)
def test_sums_of_rows(dims: tuple[int, int]) -> None:
    text = reduced(dims, [1])
    assert emitter_name(text) == ("row reduction" if dims[1] > 1 else "column reduction")
    check_gpu(text, arguments(text), ulp=32)


@pytest.mark.parametrize(
    ("dtype", "opcode", "init"),
    [
        ("bf16", "add", "0"), ("f16", "maximum", "-inf"), ("f64", "multiply", "1"), ("s8", "add", "3"),
        ("s4", "minimum", "7"), ("u64", "xor", "9"), ("pred", "or", "false"), ("c64", "add", "(1,2)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dims", [(5, 16), (3, 1100)])
def test_every_kind_of_accumulator(dtype: str, opcode: str, init: str, dims: tuple[int, int]) -> None:
    text = reduced(dims, [1], dtype, opcode, init)
    check_gpu(text, arguments(text), ulp=64)


@pytest.mark.parametrize(
    ("dims", "over"), [((4, 6, 8, 8), (0, 2, 3)), ((4, 6, 5, 7), (1, 3)), ((3, 2, 40), (0, 2)), ((6, 50, 1), (1, 2))]
)
def test_several_dimensions(dims: tuple[int, ...], over: tuple[int, ...]) -> None:
    text = reduced(dims, over)
    check_gpu(text, arguments(text), ulp=32)


def test_a_sum_of_everything_takes_two_launches() -> None:
    text = reduced((300, 1000), (0, 1))
    _, launches = emulated(text)
    assert len(launches.steps) == 2
    assert launches.scratch_bytes > 0
    check_gpu(text, arguments(text), ulp=32)


@pytest.mark.parametrize("dims", [(4, 37), (3, 512), (1, 70000)])
def test_the_first_greatest_and_its_position(dims: tuple[int, int]) -> None:
    """Two accumulators, no neutral value, and an order that matters."""
    rows, columns = dims
    text = f"""HloModule m
{REDUCERS}
ENTRY main {{
  x = f32[{rows},{columns}] parameter(0)
  i = s32[{rows},{columns}] iota(), iota_dimension=1
  z = f32[] constant(-inf)
  k = s32[] constant(0)
  ROOT r = (f32[{rows}], s32[{rows}]) reduce(x, i, z, k), dimensions={{1}}, to_apply=first
}}
"""
    x = np.random.default_rng(2).integers(0, 9, dims).astype(np.float32)
    x[0, [columns // 3, columns // 2]] = np.nan
    check_gpu(text, [x])


@pytest.mark.parametrize("dims", [(5, 40), (5, 37), (2, 3000)])
def test_the_last_number_wins(dims: tuple[int, int]) -> None:
    rows, columns = dims
    x = np.random.default_rng(1).standard_normal(dims).astype(np.float32)
    x[:, -9:] = np.nan
    check_gpu(
        f"HloModule m\n{REDUCERS}\nENTRY main {{\nx = f32[{rows},{columns}] parameter(0)\nz = f32[] constant(0)\n"
        f"ROOT r = f32[{rows}] reduce(x, z), dimensions={{1}}, to_apply=last\n}}\n",
        [x],
    )


def test_arithmetic_before_and_after_is_part_of_the_kernel() -> None:
    text = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = bf16[6,200] parameter(0)
  w = f32[200] parameter(1)
  y = f32[6] parameter(2)
  c = f32[6,200] convert(x)
  wb = f32[6,200] broadcast(w), dimensions={1}
  p = f32[6,200] multiply(c, wb)
  e = f32[6,200] tanh(p)
  q = f32[6,200] multiply(e, e)
  z = f32[] constant(1)
  s = f32[6] reduce(e, z), dimensions={1}, to_apply=add
  t = f32[6] reduce(q, z), dimensions={1}, to_apply=add
  m = f32[6] multiply(s, y)
  r = f32[6,1] reshape(t)
  ROOT out = (f32[6], f32[6,1]) tuple(m, r)
}
"""
    assert emitter_name(text) == "row reduction"
    check_gpu(text, arguments(text), ulp=32)
    check_gpu(text, arguments(text), ulp=32, in_place={2: 0})


@pytest.mark.parametrize(("dims", "over"), [((1 << 19,), (0,)), ((1 << 16, 4), (0,)), ((2, 1 << 17), (1,))])
def test_long_sums_lose_nothing(dims: tuple[int, ...], over: tuple[int, ...]) -> None:
    """Trees, not one accumulator, which would be wrong in the fourth digit."""
    x = np.random.default_rng(4).uniform(0, 1, dims).astype(np.float32)
    (got,) = run_gpu_kernel(reduced(dims, over), [x], orders=ORDERS[:1])
    np.testing.assert_allclose(got, x.sum(over, dtype=np.float64), rtol=4e-7)


def test_rows_are_shared_by_size_and_number() -> None:
    target = gpu_target("cuda:sm_90")
    assert row_shape(target, 1 << 16, 64).width == 32  # a warp each, and no barrier
    assert row_shape(target, 1 << 14, 2048).width == 128
    assert row_shape(target, 200, 4096).width == 1024
    few = row_shape(target, 1, 1 << 22)
    assert few.splits * few.threads >= 132 * 2048
    tiny = row_shape(target, 1 << 20, 2)
    assert (tiny.width, tiny.threads) == (2, 256)
    for rows, units in ((1, 1), (3, 7), (1000, 33), (5, 1 << 20)):
        shape = row_shape(target, rows, units)
        assert shape.width * shape.splits <= units  # everybody has a first step
        assert shape.grid[0] * (shape.threads // shape.width) >= rows


@pytest.mark.parametrize("dims", [(16384, 1024), (16384, 8192), (1, 1 << 24), (65536, 7)])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_registers_leave_multiprocessors_full(dims: tuple[int, int], dtype: str) -> None:
    assert_light(assemble_kernel(reduced(dims, [1], dtype)), 40)


def test_a_padded_sum_is_no_row_reduction() -> None:
    """Its element does not exist for every result."""
    text = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[40,20] parameter(0)
  z = f32[] constant(0)
  s = f32[40] reduce(x, z), dimensions={1}, to_apply=add
  ROOT p = f32[45] pad(s, z), padding=2_3
}
"""
    assert emitter_name(text) == "loop"
    check_gpu(text, arguments(text), ulp=32)


def test_a_sum_that_is_spread_over_its_row_is_a_row_kernel() -> None:
    """Not a reduction, done again for every element of the row."""
    text = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[6,50] parameter(0)
  y = f32[6,50] parameter(1)
  z = f32[] constant(0)
  s = f32[6] reduce(x, z), dimensions={1}, to_apply=add
  sb = f32[6,50] broadcast(s), dimensions={0}
  ROOT p = f32[6,50] multiply(y, sb)
}
"""
    assert emitter_name(text) == "row kernel"
    for in_place in (None, {0: 0}, {1: 0}):
        check_gpu(text, arguments(text), ulp=32, in_place=in_place)


@pytest.mark.parametrize("dims, over", [((16384, 1024), (1,)), ((3, 100000), (1,)), ((9000, 40), (0,))])
def test_the_same_bodies_are_code_of_amd_gpus(dims: tuple[int, ...], over: tuple[int, ...]) -> None:
    """Warps of 64 threads."""
    target = gpu_target("rocm:gfx90a")
    module = new_amdgpu_module("m", target)
    launches = emit_gpu_kernel(module, as_instruction(reduced(dims, over)), "k", target)
    assert all(step.shape.threads % 64 == 0 for step in launches.steps if isinstance(step, KernelLaunch))
    assert emit_amdgpu(module, target).startswith(b"\x7fELF")
