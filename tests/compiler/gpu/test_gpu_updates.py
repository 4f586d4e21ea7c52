"""Parts of arrays written in place, and select-and-scatter."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.gpu.kernel import emit_gpu_kernel
from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.opset import Window, WindowDim
from shardc.hlo.ir.types import array_shape as f
from shardc.native.gpu.nvptx import new_nvptx_module
from shardc.native.gpu.target import gpu_target
from tests.compiler.gpu.gpu_runner import as_instruction, assemble_kernel, assert_light, check_gpu
from tests.compiler.gpu.test_gpu_loop import entry
from tests.compiler.kernel_runner import instruction, random
from tests.compiler.test_pooling import comparison

UPDATE = entry("""
        x = bf16[40,96] parameter(0)
        y = f32[7,64] parameter(1)
        s = s32[] parameter(2)
        t = s32[] parameter(3)
        o = bf16[7,64] slice(x), slice={[0:7],[0:64]}
        c = bf16[7,64] convert(y)
        e = bf16[7,64] multiply(c, c)
        ROOT r = bf16[40,96] dynamic-update-slice(x, e, s, t)""")


@pytest.mark.parametrize("in_place", [{}, {0: 0}])
@pytest.mark.parametrize("start", [(-3, 0), (5, 8), (100, 31), (2, 100)])
def test_dynamic_update_slice(in_place: dict[int, int], start: tuple[int, int]) -> None:
    i = as_instruction(UPDATE)
    given = [random(i.operands[0].shape), random(i.operands[1].shape, 1), *(np.int32(x) for x in start)]
    check_gpu(i, given, in_place=in_place)


def test_in_place_only_the_part_is_written() -> None:
    target = gpu_target("cuda:sm_90")
    i = instruction("dynamic-update-slice", f("f32", 4096, 4096), f("f32", 1, 4096), f("s32"), f("s32"))
    (whole,) = emit_gpu_kernel(new_nvptx_module("m", target), i, "k", target).steps
    (part,) = emit_gpu_kernel(new_nvptx_module("m", target), i, "k", target, frozenset([0])).steps
    assert part.shape.grid[0] * part.shape.threads <= 4096 < whole.shape.grid[0] * whole.shape.threads


def test_the_part_may_depend_on_what_it_replaces() -> None:
    text = entry("""
        x = f32[30,20] parameter(0)
        y = f32[4,20] parameter(1)
        s = s32[] parameter(2)
        z = s32[] constant(0)
        o = f32[4,20] dynamic-slice(x, s, z), dynamic_slice_sizes={4,20}
        n = f32[4,20] add(o, y)
        ROOT r = f32[30,20] dynamic-update-slice(x, n, s, z)""")
    check_gpu(text, [random(f("f32", 30, 20)), random(f("f32", 4, 20), 1), np.int32(11)], in_place={0: 0})


@pytest.mark.parametrize("d", [0, 1, 2])
def test_many_arrays_joined(d: int) -> None:
    """A launch for each, none for empty ones."""
    sizes = (3, 1, 4, 0, 5, 9)
    shapes = [f("s16", *(n if k == d else (6, 10, 4)[k] for k in range(3))) for n in sizes]
    i = instruction("concatenate", *shapes, dimensions=(d,))
    check_gpu(i, [random(s, n) for n, s in enumerate(shapes)])
    target = gpu_target("cuda:sm_90")
    assert len(emit_gpu_kernel(new_nvptx_module("m", target), i, "k", target).steps) == 5


WINDOWS = {
    "tiles": ((1, 2, 2, 1), (1, 2, 2, 1), (0, 0, 0, 0), (1, 1, 1, 1)),
    "overlap": ((1, 3, 3, 1), (1, 2, 2, 1), (0, 1, 1, 0), (1, 1, 1, 1)),
    "gaps": ((1, 2, 1, 1), (1, 3, 2, 1), (0, 0, 0, 0), (1, 1, 1, 1)),
    "dilated": ((1, 3, 2, 1), (1, 1, 2, 1), (0, 2, 1, 0), (1, 2, 3, 1)),
    "everywhere": ((2, 2, 2, 3), (1, 1, 1, 1), (1, 1, 1, 2), (1, 1, 1, 1)),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "s32"])
def test_select_and_scatter(name: str, dtype: str) -> None:
    dims = (2, 9, 8, 5)
    window = Window(
        tuple(WindowDim(n, s, p, p, rhs_dilate=d) for n, s, p, d in zip(*WINDOWS[name], strict=True))
    )  # fmt: skip
    out = [
        (n + 2 * w.pad_low - (w.size - 1) * w.rhs_dilate - 1) // w.stride + 1
        for n, w in zip(dims, window.dims, strict=True)
    ]
    shapes = f(dtype, *dims), f(dtype, *out), f(dtype)
    i = instruction(
        "select-and-scatter", *shapes, window=window, select=comparison(dtype, "GE"),
        scatter=binary_computation("add", dtype),
    )  # fmt: skip
    given = [np.round(random(s, n).astype(np.float64)).astype(s.dtype.numpy) for n, s in enumerate(shapes)]
    check_gpu(i, given)


def test_windows_that_select_what_compares_with_nothing() -> None:
    window = Window((WindowDim(2, 1), WindowDim(2, 1)))
    i = instruction(
        "select-and-scatter", f("f32", 9, 9), f("f32", 8, 8), f("f32"), window=window, select=comparison("f32", "GE"),
        scatter=binary_computation("add", "f32"),
    )  # fmt: skip
    x = np.where(np.arange(81).reshape(9, 9) % 3 == 0, np.nan, random(f("f32", 9, 9)))
    check_gpu(i, [x, np.arange(64.0).reshape(8, 8), 0])


def test_registers() -> None:
    assert_light(assemble_kernel(UPDATE, in_place={0: 0}), 40)
    window = Window((WindowDim(1), WindowDim(3, 2, 1, 1), WindowDim(3, 2, 1, 1), WindowDim(1)))
    i = instruction(
        "select-and-scatter", f("f32", 32, 112, 112, 64), f("f32", 32, 56, 56, 64), f("f32"), window=window,
        select=comparison("f32", "GE"), scatter=binary_computation("add", "f32"),
    )  # fmt: skip
    assert_light(assemble_kernel(i), 64)
