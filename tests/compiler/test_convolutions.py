"""Convolutions by blocks against the evaluator: any order of dimensions, windows, groups, types, ways to cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.compiler.cpu.convolutions import blocks, convolution
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.ir.types import array_shape as f
from tests.compiler.kernel_runner import check, compile_and_run, expected, instruction, random
from tests.compiler.property_support import small


@st.composite
def window_dims(draw: st.DrawFn, size: int) -> WindowDim:
    """A window that fits ``size`` positions."""
    taps, stride = draw(st.integers(1, min(4, size))), draw(st.integers(1, 3))
    dilations = draw(st.sampled_from([*[(1, 1)] * 3, (2, 1), (1, 2), (3, 2)]))
    low, high = draw(st.integers(-1, 3)), draw(st.integers(-1, 3))
    if (size - 1) * dilations[0] + 1 + low + high < (taps - 1) * dilations[1] + 1:
        low, high = taps * 2, taps * 2
    return WindowDim(taps, stride, low, high, *dilations, draw(st.booleans()))


@st.composite
def convolutions(draw: st.DrawFn, dtype: str) -> Instruction:
    """A random convolution, of any rank, order of dimensions and grouping."""
    space = draw(st.lists(st.integers(2, 9), max_size=3))
    window = tuple(draw(window_dims(n)) for n in space)
    feature_groups, batch_groups = draw(
        st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (19, 1), (1, 18)])
    )
    channels, batch = draw(st.integers(1, 4)), draw(st.integers(1, 5)) * batch_groups
    features = draw(st.integers(1, 6)) * feature_groups * batch_groups
    if feature_groups * batch_groups > 3:  # depthwise, or nearly
        channels, features = draw(st.sampled_from([(1, features), (channels, feature_groups * batch_groups)]))
        features = draw(st.sampled_from([features, feature_groups * batch_groups]))
    left, right = [batch, channels * feature_groups, *space], [channels, features, *(w.size for w in window)]
    roles = [draw(st.permutations(range(len(space) + 2))) for _ in range(3)]
    labels = ConvDims(*(part for r in roles for part in (r[0], r[1], tuple(r[2:]))))
    sizes = [[n for _, n in sorted(zip(r, s, strict=True))] for r, s in zip(roles, (left, right), strict=False)]
    return instruction(
        "convolution", *(f(dtype, *s) for s in sizes), window=Window(window), dim_labels=labels,
        feature_group_count=feature_groups, batch_group_count=batch_groups,
    )  # fmt: skip


@pytest.fixture
def cut_small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Products of any size go by blocks."""
    monkeypatch.setattr(convolution, "_SMALL", 1)
    return monkeypatch


def agrees(i: Instruction, seed: int = 0, tuning: Tuning = DEFAULT) -> None:
    """Whole numbers, so that sums in any order are exact."""
    arguments = [small(o.shape, seed + n) for n, o in enumerate(i.operands)]
    (got,), (wanted,) = compile_and_run(i, arguments, tuning=tuning), expected(i, arguments)
    assert got.dtype == wanted.dtype
    assert (got == wanted).all(), f"{[str(o.shape) for o in i.operands]} {dict(i.attrs)}"


FULL = pytest.mark.full


@pytest.mark.parametrize("dtype", ["f32", "bf16", pytest.param("f64", marks=FULL), pytest.param("c64", marks=FULL)])
@pytest.mark.parametrize("patches", [1000, pytest.param(64, marks=FULL), pytest.param(1 << 18, marks=FULL)])
def test_random_convolutions(dtype: str, patches: int, cut_small: pytest.MonkeyPatch) -> None:
    """Blocks of few patches, so that every loop is cut, with a smaller last piece where that comes up."""
    cut_small.setattr(blocks, "_SHARED_SLAB", patches)

    @settings(max_examples=10, deadline=None)
    @given(convolutions(dtype), st.integers(0, 99))
    def run(i: Instruction, seed: int) -> None:
        agrees(i, seed, Tuning(patches=patches))

    run()


NHWC = ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
#: A weight gradient as JAX writes it: images are features, features images.
WEIGHTS = ConvDims(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "c128"])
@pytest.mark.parametrize("patches", [4000, 1 << 18])
def test_sums_over_depth(dtype: str, patches: int) -> None:
    """A small result over a long depth: partial sums, added up by a tree."""
    window = Window((WindowDim(13, 1, 1, 1), WindowDim(16, 1, 1, 1)))
    operands = (f(dtype, 37, 13, 16, 5), f(dtype, 37, 13, 16, 6))
    i = instruction("convolution", *operands, window=window, dim_labels=WEIGHTS)
    agrees(i, tuning=Tuning(patches=patches))


def test_gaps_too_wide_to_be_parted() -> None:
    """A learned upsampling by 8 x 6."""
    window = Window((WindowDim(16, 1, 12, 12, 8), WindowDim(12, 1, 9, 9, 6)))
    agrees(instruction("convolution", f("f32", 2, 5, 4, 7), f("f32", 16, 12, 7, 3), window=window, dim_labels=NHWC))


def test_rows_too_long_for_tiles() -> None:
    window = Window((WindowDim(3, 1, 1, 1), WindowDim(3, 1, 1, 1)))
    agrees(instruction("convolution", f("f32", 1, 5, 2100, 16), f("f32", 3, 3, 16, 16), window=window, dim_labels=NHWC))


@pytest.mark.parametrize("stride", [1, 2])
def test_patches_that_lie_in_the_input(stride: int) -> None:
    """1x1 windows need no patches."""
    window = Window((WindowDim(1, stride), WindowDim(1, stride)))
    agrees(instruction("convolution", f("f32", 3, 14, 14, 40), f("f32", 1, 1, 40, 24), window=window, dim_labels=NHWC))


def test_images_that_do_not_fit_a_block() -> None:
    window = Window((WindowDim(5, 2, 2, 2), WindowDim(5, 2, 2, 2)))
    agrees(instruction("convolution", f("f32", 2, 101, 57, 3), f("f32", 5, 5, 3, 19), window=window, dim_labels=NHWC))


NCHW = ConvDims(0, 1, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3))
#: The gradient of the input: the kernel's features exchanged.
INPUTS = ConvDims(0, 3, (1, 2), 3, 2, (0, 1), 0, 3, (1, 2))
#: Weight gradients of channels-first images.
WEIGHTS_FIRST = ConvDims(1, 0, (2, 3), 0, 1, (2, 3), 1, 0, (2, 3))
BY_TILES = {
    "even": (NHWC, (4, 16, 16, 32), (3, 3, 32, 64), 1, False),
    "turned": (INPUTS, (4, 16, 16, 32), (3, 3, 64, 32), 1, True),
    "turned as it lies": (NHWC, (4, 16, 16, 32), (3, 3, 32, 64), 1, True),
    "odd": (NHWC, (3, 15, 17, 33), (3, 3, 33, 50), 0, False),
    "wide borders": (NHWC, (9, 5, 6, 17), (3, 3, 17, 19), 2, False),
    "rows": (NHWC, (2, 61, 70, 40), (3, 3, 40, 24), 1, False),
    "channels first": (NCHW, (5, 32, 40, 13), (20, 32, 3, 3), 1, False),
    "many channels": (NHWC, (1, 14, 14, 300), (3, 3, 300, 260), 1, False),
    "weights": (WEIGHTS, (6, 16, 16, 32), (6, 16, 16, 64), 1, False),
    "odd weights": (WEIGHTS, (7, 12, 13, 33), (7, 14, 15, 18), 2, False),
    "many images": (WEIGHTS, (50, 6, 6, 33), (50, 6, 6, 18), 1, False),
    "weights, channels first": (WEIGHTS_FIRST, (8, 32, 16, 16), (8, 20, 16, 16), 1, False),
}


def by_tiles(name: str, dtype: str, **attrs: Any) -> Instruction:
    labels, left, right, pad, reversal = BY_TILES[name]
    window = tuple(WindowDim(right[d], 1, pad, pad, reversal=reversal) for d in labels.rhs_spatial)
    return instruction(
        "convolution", f(dtype, *left), f(dtype, *right), window=Window(window), dim_labels=labels, **attrs
    )


@pytest.mark.parametrize("dtype", ["f32", pytest.param("bf16", marks=FULL), pytest.param("f64", marks=FULL)])
@pytest.mark.parametrize("name", BY_TILES)
def test_by_tiles(name: str, dtype: str) -> None:
    agrees(by_tiles(name, dtype))


@pytest.mark.parametrize("name", ["even", "weights"])
def test_rounding_by_tiles(name: str) -> None:
    """Tiles add and subtract inputs first: a few units more than plain products, of the largest result."""
    check(by_tiles(name, "f32"), [random(o.shape, n) for n, o in enumerate(by_tiles(name, "f32").operands)], ulp=16)


@pytest.mark.parametrize("name", ["even", "weights"])
def test_exact_products_on_request(name: str) -> None:
    """With the highest precision an infinity touches only what reads it."""
    i = by_tiles(name, "f32", operand_precision=("highest", "highest"))
    operands = [random(o.shape, n) for n, o in enumerate(i.operands)]
    operands[0][1, 3, 4, 5] = np.inf
    (got,), (wanted,) = compile_and_run(i, operands), expected(i, operands)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted))


def depthwise(dtype: str, channels: int, stride: int, *, first: bool, gradient: bool) -> Instruction:
    """3x5 taps per channel, or their gradient; channels ``first`` or last."""
    images, high, wide = 3, 11, 13
    out = (-(-high // stride), -(-wide // stride))
    pads = [((o - 1) * stride + k - n) for o, k, n in zip(out, (3, 5), (high, wide), strict=True)]
    left = (images, channels, high, wide) if first else (images, high, wide, channels)
    if gradient:
        window = tuple(
            WindowDim(o, 1, p // 2, k - 1 - p // 2 + (o - 1) * stride + 1 - n, 1, stride)
            for o, p, k, n in zip(out, pads, (3, 5), (high, wide), strict=True)
        )
        right = (images, channels, *out) if first else (images, *out, channels)
        labels = WEIGHTS_FIRST if first else WEIGHTS
        return instruction(
            "convolution", f(dtype, *left), f(dtype, *right), window=Window(window), dim_labels=labels,
            batch_group_count=channels,
        )  # fmt: skip
    window = tuple(WindowDim(k, stride, p // 2, p - p // 2) for k, p in zip((3, 5), pads, strict=True))
    right = (channels, 1, 3, 5) if first else (3, 5, 1, channels)
    return instruction(
        "convolution", f(dtype, *left), f(dtype, *right), window=Window(window), dim_labels=NCHW if first else NHWC,
        feature_group_count=channels,
    )  # fmt: skip


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("dtype", "channels"), [("f32", 32), ("f32", 21), ("bf16", 48), ("f64", 9)])
def test_depthwise(dtype: str, channels: int, stride: int, first: bool, gradient: bool) -> None:
    agrees(depthwise(dtype, channels, stride, first=first, gradient=gradient))


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("taps", [(3,), (3, 3)])
def test_few_terms_are_added_in_order(taps: tuple[int, ...], dilation: int) -> None:
    """Small convolutions by channel: each product is fused with the sum so far, or each rounded, tap after tap."""
    space = tuple(range(2, 2 + len(taps)))
    window = Window(tuple(WindowDim(n, 1, 0, 0, 1, dilation, False) for n in taps))
    i = instruction(
        "convolution", f("f32", 2, 3, *(9 for _ in taps)), f("f32", 12, 1, *taps), window=window,
        dim_labels=ConvDims(0, 1, space, 1, 0, space, 0, 1, space), feature_group_count=3,
    )  # fmt: skip
    for seed in range(10):
        x, w = (3 * random(o.shape, seed + 100 * n) for n, o in enumerate(i.operands))
        [got] = compile_and_run(i, [x, w])
        fused, rounded = np.zeros_like(got), np.zeros_like(got)
        for tap in np.ndindex(*taps):
            at = tuple(slice(dilation * t, dilation * t + n) for t, n in zip(tap, got.shape[2:], strict=True))
            part = np.repeat(x[:, :, *at], 4, axis=1)
            factor = w[:, 0, *tap].reshape(-1, *(1 for _ in taps))
            # f64 holds the product exactly; what its sum rounds shows in f32 once in 2**28 times.
            fused = (part.astype(np.float64) * factor + fused).astype(np.float32)
            rounded = rounded + part * factor
        assert np.array_equal(got, fused) or np.array_equal(got, rounded), seed
