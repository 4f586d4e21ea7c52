"""Maps that read along another direction than they write."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from shardc.compiler.gpu.kernel import emit_gpu_kernel
from shardc.hlo.ir.types import array_shape as f
from shardc.native.gpu.nvptx import new_nvptx_module
from shardc.native.gpu.target import gpu_target
from tests.compiler.gpu.gpu_runner import as_instruction, assemble_kernel, assert_light, check_gpu, kernel_ptx
from tests.compiler.gpu.test_gpu_loop import check_text, entry
from tests.compiler.kernel_runner import instruction, random


def transposition(dtype: str, dims: tuple[int, ...], order: tuple[int, ...]) -> str:
    out = ",".join(str(dims[d]) for d in order)
    return entry(f"""
        x = {dtype}[{",".join(map(str, dims))}] parameter(0)
        ROOT t = {dtype}[{out}] transpose(x), dimensions={{{",".join(map(str, order))}}}""")


def shared_bytes(text: str) -> int:
    target = gpu_target("cuda:sm_90")
    launches = emit_gpu_kernel(new_nvptx_module("m", target), as_instruction(text), "k", target)
    return max(s.shape.shared_bytes for s in launches.steps)


@pytest.mark.parametrize("dtype", ["pred", "s8", "bf16", "f32", "f64", "c64", "c128"])
@pytest.mark.parametrize("dims", [(64, 128), (70, 50), (3, 200), (200, 3), (130, 9)])
def test_matrices(dtype: str, dims: tuple[int, int]) -> None:
    check_text(transposition(dtype, dims, (1, 0)))


@pytest.mark.parametrize("order", [*itertools.permutations(range(3)), (3, 1, 2, 0), (2, 0, 3, 1), (0, 3, 1, 2)])
def test_every_permutation(order: tuple[int, ...]) -> None:
    check_text(transposition("f32", (11, 18, 35, 10)[: len(order)], order))


def test_work_on_both_sides_and_two_arrays() -> None:
    text = entry("""
        x = f32[3,70,33] parameter(0)
        y = f32[3,33,70] parameter(1)
        z = bf16[3,70,33] parameter(2)
        b = f32[70] parameter(3)
        e = f32[3,70,33] exponential(x)
        t = f32[3,33,70] transpose(e), dimensions={0,2,1}
        c = f32[3,70,33] convert(z)
        u = f32[3,33,70] transpose(c), dimensions={0,2,1}
        s = f32[3,33,70] add(t, y)
        m = f32[3,33,70] multiply(s, u)
        w = f32[3,33,70] broadcast(b), dimensions={2}
        o = f32[3,33,70] add(m, w)
        n = bf16[3,33,70] convert(o)
        ROOT r = (f32[3,33,70], bf16[3,33,70]) tuple(o, n)""")
    assert shared_bytes(text) > 0
    check_text(text, ulp=4)


def test_a_part_of_an_array() -> None:
    text = entry("""
        x = f32[80,90] parameter(0)
        p = f32[64,70] slice(x), slice={[3:67],[20:90]}
        t = f32[70,64] transpose(p), dimensions={1,0}
        z = f32[] constant(7)
        ROOT r = f32[75,68] pad(t, z), padding=1_4x2_2""")
    check_text(text)


def test_only_reads_along_other_directions_take_tiles() -> None:
    assert shared_bytes(transposition("f32", (64, 64), (1, 0))) == 64 * 65 * 4, "rows a bank apart"
    assert shared_bytes(transposition("f32", (8, 16, 64), (1, 0, 2))) == 0


def test_reads_and_writes_are_side_by_side() -> None:
    """Every access to global memory moves one step with the thread: 16 reads, then (in four rounds) 16 writes."""
    ptx = kernel_ptx(transposition("f32", (4096, 4096), (1, 0))).decode()
    order = [m.group(1) for m in re.finditer(r"\b((?:ld|st)\.global|bar\.sync|barrier)", ptx)]
    first = order.index("st.global")
    assert order[:16] == ["ld.global"] * 16
    assert "ld.global" not in order[16:first]
    assert any(name.startswith("bar") for name in order[16:first])


@pytest.mark.parametrize("dtype", ["s8", "bf16", "f32", "f64"])
def test_registers(dtype: str) -> None:
    usage = assemble_kernel(transposition(dtype, (4096, 4096), (1, 0)))
    assert_light(usage, 64)
    assert all(u.barriers == 1 for kernels in usage.values() for u in kernels.values())


def test_nothing_is_shared_where_rows_are_short() -> None:
    """Two columns: neighbours read and write within the same lines anyway."""
    i = instruction("transpose", f("f32", 2, 500), dimensions=(1, 0))
    check_gpu(i, [random(f("f32", 2, 500))])
    assert np.prod(i.shape.dims) == 1000
