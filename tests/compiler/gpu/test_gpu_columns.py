"""Reductions of columns on GPUs: memory lies along the results."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.gpu.launches import KernelLaunch
from shardc.compiler.gpu.reductions import column_reduction
from shardc.compiler.gpu.reductions.column_reduction import column_shape
from shardc.native.gpu.target import gpu_target
from tests.compiler.gpu.gpu_runner import assemble_kernel, assert_light, check_gpu, emulated, kernel_ptx
from tests.compiler.gpu.reduction_texts import REDUCERS, arguments, emitter_name, reduced


@pytest.mark.parametrize("dims", [(1, 40), (3, 1000), (64, 96), (257, 7), (100, 1), (40, 129), (600, 36)])
def test_sums_of_columns(dims: tuple[int, int]) -> None:
    text = reduced(dims, [0])
    assert emitter_name(text) == ("column reduction" if dims[1] > 1 else "row reduction")
    check_gpu(text, arguments(text), ulp=32)


def test_long_columns_take_two_launches() -> None:
    text = reduced((9000, 40), [0])
    _, launches = emulated(text)
    assert len(launches.steps) == 2
    check_gpu(text, arguments(text), ulp=64)


@pytest.mark.parametrize(
    ("dtype", "opcode", "init"),
    [
        ("bf16", "add", "0"), ("f16", "minimum", "inf"), ("f64", "maximum", "-inf"), ("s16", "add", "3"),
        ("u4", "maximum", "0"), ("pred", "and", "true"), ("c128", "add", "(1,2)"),
    ],
)  # fmt: skip
def test_every_kind_of_accumulator(dtype: str, opcode: str, init: str) -> None:
    text = reduced((50, 24), [0], dtype, opcode, init)
    check_gpu(text, arguments(text), ulp=64)


@pytest.mark.parametrize(
    ("dims", "over"), [((4, 6, 8, 16), (0, 1)), ((4, 6, 8), (1,)), ((3, 5, 2, 40), (0, 2)), ((2, 30, 3, 8), (1,))]
)
def test_several_dimensions(dims: tuple[int, ...], over: tuple[int, ...]) -> None:
    text = reduced(dims, over)
    assert emitter_name(text) == "column reduction"
    check_gpu(text, arguments(text), ulp=32)


def test_results_in_another_order_than_memory() -> None:
    text = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[6,8,16] parameter(0)
  z = f32[] constant(0)
  t = f32[6,16,8] transpose(x), dimensions={0,2,1}
  ROOT s = f32[16,8] reduce(t, z), dimensions={0}, to_apply=add
}
"""
    assert emitter_name(text) == "column reduction"
    check_gpu(text, arguments(text), ulp=32)


def test_two_accumulators_whose_order_matters() -> None:
    text = f"""HloModule m
{REDUCERS}
ENTRY main {{
  x = f32[70,24] parameter(0)
  i = s32[70,24] iota(), iota_dimension=0
  z = f32[] constant(-inf)
  k = s32[] constant(0)
  ROOT r = (f32[24], s32[24]) reduce(x, i, z, k), dimensions={{0}}, to_apply=first
}}
"""
    x = np.random.default_rng(3).integers(0, 5, (70, 24)).astype(np.float32)
    x[[9, 60], 3] = np.nan
    check_gpu(text, [x])


def test_sums_side_by_side_read_memory_once() -> None:
    """A bias's and a gain's gradient; the epilogue of one is written over what it reads."""
    text = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[300,64] parameter(0)
  y = f32[300,64] parameter(1)
  old = f32[64] parameter(2)
  p = f32[300,64] multiply(x, y)
  z = f32[] constant(0)
  s = f32[64] reduce(x, z), dimensions={0}, to_apply=add
  t = f32[64] reduce(p, z), dimensions={0}, to_apply=add
  u = f32[64] add(s, old)
  ROOT out = (f32[64], f32[64]) tuple(u, t)
}
"""
    assert emitter_name(text) == "column reduction"
    check_gpu(text, arguments(text), ulp=64)
    check_gpu(text, arguments(text), ulp=64, in_place={2: 0})


def test_columns_are_cut_by_size_and_number() -> None:
    target = gpu_target("cuda:sm_90")
    usual = column_shape(target, 512, 1, 1 << 14, 8192)
    assert usual.width == 32 and usual.threads == 256
    assert usual.grid[0] * usual.grid[1] >= 4 * 132
    assert column_shape(target, 1 << 20, 1, 8, 1 << 24).height == 1  # columns enough for everybody
    assert column_shape(target, 2, 1, 1 << 20, 32).width == 2
    assert column_shape(target, 5, 3, 40, 240).splits == 1


def test_whole_lines_are_read() -> None:
    assert b"ld.global.nc.v4" in kernel_ptx(reduced((16384, 1024), [0]))


@pytest.mark.parametrize("dims", [(16384, 1024), (1 << 20, 8), (64, 1 << 20), (65536, 7)])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_registers_leave_multiprocessors_full(dims: tuple[int, int], dtype: str) -> None:
    assert_light(assemble_kernel(reduced(dims, [0], dtype)), 64)


def test_columns_enough_for_everybody_need_no_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread for each unit of columns, and no shared memory."""
    monkeypatch.setattr(column_reduction, "_BUSY", 0)
    text = reduced((5, 1200), [0])
    (step,) = emulated(text)[1].steps
    assert isinstance(step, KernelLaunch)
    assert step.shape.shared_bytes == 0
    check_gpu(text, arguments(text), ulp=32)
