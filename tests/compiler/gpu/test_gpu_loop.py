"""Maps on a grid: vectors, ragged ends, several results, in place, movement; how memory is walked."""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest

from shardc.compiler.gpu.kernel import emit_gpu_kernel
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.types import array_shape as f
from shardc.hlo.ir.types import tuple_shape
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
from tests.compiler.kernel_runner import fusion, instruction, random


def entry(body: str) -> str:
    return f"HloModule m\nENTRY main {{\n{body}\n}}\n"


def check_text(text: str, ulp: float = 0, in_place: dict[int, int] | None = None) -> None:
    i = as_instruction(text)
    check_gpu(i, [random(o.shape, n) for n, o in enumerate(i.operands)], ulp=ulp, in_place=in_place)


def accesses(ptx: bytes, width: str) -> int:
    return len(re.findall(rf"\b(?:ld|st)\.global[.\w]*\.{width}\b", ptx.decode()))


@pytest.mark.parametrize("dtype", ["pred", "s8", "bf16", "f32", "f64", "c64", "c128", "u4"])
@pytest.mark.parametrize("dims", [(1,), (7,), (1003,), (40, 96), (9, 33), (3, 1, 70, 2)])
def test_every_width_and_ragged_ends(dtype: str, dims: tuple[int, ...]) -> None:
    b = Builder("c")
    x, y = (b.parameter(f(dtype, *dims)) for _ in range(2))
    root = b.add("select", b.parameter(f("pred", *dims)), x, y)
    i = fusion(b.build(root))
    check_gpu(i, [random(o.shape, n) for n, o in enumerate(i.operands)])


def test_large_enough_for_all_that_a_thread_may_do() -> None:
    """Several vectors of a thread, a block that is not full, and elements that fill no vector."""
    n = 4 * 4 * 256 * 108 * 2 + 4 * 100 + 3
    i = instruction("negate", f("f32", n))
    x = random(f("f32", n))
    got = run_gpu_kernel(i, [x], orders=ORDERS[:2])
    np.testing.assert_array_equal(got[0], -x)


@pytest.mark.parametrize("rows", [8, 5])
def test_rows_that_repeat_and_columns_that_do(rows: int) -> None:
    check_text(
        entry(f"""
        x = f32[{rows},64] parameter(0)
        b = f32[64] parameter(1)
        c = bf16[{rows}] parameter(2)
        w = f32[{rows},64] broadcast(b), dimensions={{1}}
        d = f32[{rows}] convert(c)
        v = f32[{rows},64] broadcast(d), dimensions={{0}}
        s = f32[{rows},64] add(x, w)
        ROOT r = f32[{rows},64] multiply(s, v)""")
    )


def test_several_results_some_of_other_dimensions() -> None:
    check_text(
        entry("""
        x = f32[6,50] parameter(0)
        y = s8[6,50] parameter(1)
        e = f32[6,50] negate(x)
        z = f32[6,50] convert(y)
        s = f32[6,50] add(e, z)
        l = f32[300] reshape(s)
        g = pred[6,50] compare(s, x), direction=GT
        ROOT r = (f32[6,50], f32[300], pred[6,50]) tuple(s, l, g)""")
    )


def test_results_in_the_memory_of_operands() -> None:
    text = entry("""
        x = f32[1001] parameter(0)
        y = f32[1001] parameter(1)
        s = f32[1001] add(x, y)
        d = f32[1001] subtract(x, y)
        ROOT r = (f32[1001], f32[1001]) tuple(s, d)""")
    check_text(text, in_place={0: 0, 1: 1})
    check_text(text, in_place={0: 1})


@pytest.mark.parametrize(
    "root",
    [
        "f32[12,40] pad(x, z), padding=2_2x4_4",
        "f32[8,95] pad(x, z), padding=0_0x1_0_2",
        "f32[7,30] slice(x), slice={[1:8],[2:32]}",
        "f32[4,32] slice(x), slice={[0:8:2],[0:32]}",
        "f32[8,32] reverse(x), dimensions={1}",
        "f32[8,68] concatenate(x, y, x), dimensions={1}",
        "f32[20,32] concatenate(x, x, w), dimensions={0}",
        "f32[3,32] dynamic-slice(x, s, s), dynamic_slice_sizes={3,32}",
        "f32[3,9] dynamic-slice(x, s, s), dynamic_slice_sizes={3,9}",
        "f32[8,32] dynamic-update-slice(x, w, s, s)",
        "f32[6,32] gather(x, g), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, \
index_vector_dim=1, slice_sizes={1,32}",
        "f32[4,2,32] reshape(x)",
        "f32[16,16] reshape(x)",
    ],
)
def test_movement(root: str) -> None:
    text = entry(f"""
        x = f32[8,32] parameter(0)
        y = f32[8,4] parameter(1)
        w = f32[4,32] parameter(2)
        z = f32[] parameter(3)
        s = s32[] parameter(4)
        g = s32[6] parameter(5)
        ROOT r = {root}""")
    i = as_instruction(text)
    given = [random(o.shape, n) for n, o in enumerate(i.operands)]
    for start in (-1, 2, 90):
        given[4], given[5] = np.int32(start), np.asarray([0, 7, start, 3, 3, -5], np.int32)
        check_gpu(i, given)


def test_constants_counters_and_sums_inside() -> None:
    text = """HloModule m
    add {
      a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT s = f32[] add(a, b)
    }
    ENTRY main {
      x = f32[9,5,20] parameter(0)
      z = f32[] constant(0)
      t = f32[4] constant({1, 2, 3, 5})
      n = s32[4,20] iota(), iota_dimension=1
      k = f32[4,20] convert(n)
      c = f32[4,20] broadcast(t), dimensions={0}
      m = f32[4,20] multiply(k, c)
      p = f32[4,5,20] slice(x), slice={[5:9],[0:5],[0:20]}
      r = f32[4,20] reduce(p, z), dimensions={1}, to_apply=add
      q = f32[4,20] add(r, m)
      ROOT o = f32[4,20] negate(q)
    }"""
    check_text(text, ulp=4)


def test_random_bits() -> None:
    shape = tuple_shape(f("u64", 2), f("u32", 33))
    i = instruction("rng-bit-generator", f("u64", 2), shape=shape, algorithm="rng_three_fry")
    check_gpu(i, [np.asarray([7, 9], np.uint64)])


def test_nothing_is_launched_for_nothing() -> None:
    target = gpu_target("cuda")
    launches = emit_gpu_kernel(new_nvptx_module("m", target), instruction("negate", f("f32", 0, 5)), "k", target)
    assert launches.steps == ()


def test_what_no_way_takes_is_a_clear_error() -> None:
    target = gpu_target("cuda")
    i = instruction("fft", f("c64", 8), fft_type="FFT", fft_length=(8,))
    with pytest.raises(UnsupportedError, match="fft has no GPU code"):
        emit_gpu_kernel(new_nvptx_module("m", target), i, "k", target)


# How memory is walked.


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64"])
def test_big_arrays_move_in_vectors_of_16_bytes(dtype: str) -> None:
    i = instruction("add", f(dtype, 4096, 4096), f(dtype, 4096, 4096))
    ptx = kernel_ptx(i)
    assert b"ld.global.nc.v" in ptx
    assert b"st.global.v" in ptx
    narrow = {"bf16": "b16", "f32": "b32", "f64": "b64"}[dtype]
    assert not re.search(rf"\b(ld|st)\.global(\.nc)?\.{narrow}\b", ptx.decode())


def test_several_vectors_are_under_way() -> None:
    """All reads of a thread come before its first write."""
    ptx = kernel_ptx(instruction("negate", f("f32", 1 << 24))).decode()
    order = [m.group(1) for m in re.finditer(r"\b(ld|st)\.global", ptx)]
    assert order == ["ld"] * 4 + ["st"] * 4


def test_small_floats_are_hardwares() -> None:
    """bf16 is rounded to by conversions, f16 added as it is."""
    for dtype, wanted in (("bf16", rb"cvt\.rn\.bf16(x2)?\.f32"), ("f16", rb"add(\.rn)?\.f16")):
        assert re.search(wanted, kernel_ptx(instruction("add", f(dtype, 1 << 20), f(dtype, 1 << 20))))


def test_operands_in_a_results_memory_are_not_cached_as_constants() -> None:
    i = instruction("add", f("f32", 1 << 20), f("f32", 1 << 20))
    assert kernel_ptx(i).count(b"ld.global.nc") == 2 * kernel_ptx(i, in_place={0: 0}).count(b"ld.global.nc") > 0


def test_blocks_cover_all_vectors_and_no_more() -> None:
    target = gpu_target("cuda:sm_90")
    for n in (1 << 24, 1 << 20, 12345):
        i = instruction("negate", f("f32", n))
        (step,) = emit_gpu_kernel(new_nvptx_module("m", target), i, "k", target).steps
        threads = prod(step.shape.grid) * step.shape.threads
        assert threads * 16 >= n > (threads - step.shape.threads - 1)


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64"])
def test_registers(dtype: str) -> None:
    text = entry(f"""
        x = {dtype}[2048,4096] parameter(0)
        y = {dtype}[2048,4096] parameter(1)
        b = {dtype}[4096] parameter(2)
        e = {dtype}[2048,4096] exponential(x)
        t = {dtype}[2048,4096] tanh(y)
        w = {dtype}[2048,4096] broadcast(b), dimensions={{1}}
        s = {dtype}[2048,4096] multiply(e, w)
        ROOT r = {dtype}[2048,4096] add(s, t)""")
    assert_light(assemble_kernel(text), 64)
