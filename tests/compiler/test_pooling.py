"""Pooling and its gradients against the evaluator: windows that overlap, reach into padding or tile the image."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.opset import Window, WindowDim
from shardc.hlo.ir.types import array_shape as f
from tests.compiler.kernel_runner import check, instruction, random
from tests.compiler.property_support import small


def comparison(dtype: str, direction: str) -> Computation:
    b = Builder("select")
    x, y = b.parameter(f(dtype)), b.parameter(f(dtype))
    return b.build(b.add("compare", x, y, direction=direction))


@st.composite
def pooled(draw: st.DrawFn) -> tuple[list[int], list[WindowDim]]:
    """Sizes and windows, with single-element windows before and behind as images and channels have."""
    dims, window = [], []
    for size in draw(st.lists(st.integers(1, 9), max_size=2)):
        dims.append(size), window.append(WindowDim(1))
    for size in draw(st.lists(st.integers(1, 9), min_size=1, max_size=2)):
        taps, dilation = draw(st.integers(1, 4)), draw(st.sampled_from([1, 1, 2]))
        reach = (taps - 1) * dilation + 1
        low, high = draw(st.integers(0, taps)), draw(st.integers(0, taps))
        high += max(0, reach - size - low - high)
        dims.append(size), window.append(WindowDim(taps, draw(st.integers(1, 3)), low, high, 1, dilation))
    for size in draw(st.lists(st.sampled_from([1, 3, 16, 35, 130]), max_size=1)):
        dims.append(size), window.append(WindowDim(1))
    return dims, window


def outputs(dims: list[int], window: list[WindowDim]) -> list[int]:
    sizes = zip(dims, window, strict=True)
    return [(n + w.pad_low + w.pad_high - (w.size - 1) * w.rhs_dilate - 1) // w.stride + 1 for n, w in sizes]


@settings(max_examples=25, deadline=None)
@given(
    pooled(), st.sampled_from(["f32", "f64", "bf16", "s32"]), st.sampled_from(["GE", "LT", "GT"]), st.integers(0, 99)
)
def test_select_and_scatter(windows: tuple[list[int], list[WindowDim]], dtype: str, direction: str, seed: int) -> None:
    dims, window = windows
    shapes = f(dtype, *dims), f(dtype, *outputs(dims, window)), f(dtype)
    i = instruction(
        "select-and-scatter", *shapes, window=Window(tuple(window)), select=comparison(dtype, direction),
        scatter=binary_computation("add", dtype),
    )  # fmt: skip
    check(i, [small(s, seed + n) for n, s in enumerate(shapes)])


@settings(max_examples=25, deadline=None)
@given(
    pooled(),
    st.sampled_from(["f32", "bf16", "s32"]),
    st.sampled_from(["maximum", "add", "multiply"]),
    st.integers(0, 99),
)
def test_reduce_window(windows: tuple[list[int], list[WindowDim]], dtype: str, reducer: str, seed: int) -> None:
    dims, window = windows
    i = instruction(
        "reduce-window", f(dtype, *dims), f(dtype), window=Window(tuple(window)),
        to_apply=binary_computation(reducer, dtype),
    )  # fmt: skip
    check(i, [small(f(dtype, *dims), seed), np.asarray(1, i.shape.dtype.numpy)])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0])
def test_gradient_of_awkward_values(value: float) -> None:
    """Elements that compare with nothing, or are equal: the choice is the evaluator's."""
    window = Window((WindowDim(1), WindowDim(2, 2), WindowDim(3, 1, 1, 1), WindowDim(1)))
    shapes = f("f32", 2, 6, 5, 17), f("f32", 2, 3, 5, 17), f("f32")
    i = instruction(
        "select-and-scatter", *shapes, window=window, select=comparison("f32", "GE"),
        scatter=binary_computation("add", "f32"),
    )  # fmt: skip
    operand = random(shapes[0])
    operand[np.random.default_rng(0).random(operand.shape) < 0.4] = value
    check(i, [operand, small(shapes[1], 1), np.zeros((), np.float32)])
