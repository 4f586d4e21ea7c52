"""Windows, convolutions, random bits, batch normalisation against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.ir.types import array_shape as f
from shardc.hlo.ir.types import tuple_shape
from tests.compiler.kernel_runner import check, instruction, random


@pytest.mark.parametrize("opcode", ["add", "maximum"])
@pytest.mark.parametrize(
    "dims",
    [
        (WindowDim(1), WindowDim(3, 2, 1, 1), WindowDim(3, 2, 0, 1)),
        (WindowDim(1), WindowDim(2, 1, 0, 0, 1, 2), WindowDim(1)),
        (WindowDim(1), WindowDim(1), WindowDim(13, 1, 12, 0)),
        (WindowDim(2), WindowDim(3, 1, 1, 1, 2), WindowDim(3, 1, 2, 2, 3, 2)),
    ],
)
def test_reduce_window(dims: tuple[WindowDim, ...], opcode: str) -> None:
    for dtype in ("f32", "s32"):
        i = instruction(
            "reduce-window",
            f(dtype, 3, 9, 13),
            f(dtype),
            window=Window(dims),
            to_apply=binary_computation(opcode, dtype),
        )
        check(i, [random(f(dtype, 3, 9, 13)), np.asarray(0 if opcode == "add" else -100, i.shape.dtype.numpy)], ulp=4)


NHWC = ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
NCHW = ConvDims(0, 1, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3))


@pytest.mark.parametrize("labels", [NHWC, NCHW])
@pytest.mark.parametrize(
    "window",
    [
        (WindowDim(3, 1, 1, 1), WindowDim(3, 1, 1, 1)),
        (WindowDim(3, 2, 0, 1), WindowDim(2, 1, 1, 2)),
        (WindowDim(3, 1, 2, 2, 2), WindowDim(2, 1, 0, 0, 1, 2)),
        (WindowDim(3, 1, 1, 1, reversal=True), WindowDim(3, 1, -1, 0)),
    ],
)
def test_convolution(labels: ConvDims, window: tuple[WindowDim, WindowDim]) -> None:
    sizes = tuple(w.size for w in window)
    left = (2, 9, 11, 6) if labels is NHWC else (2, 6, 9, 11)
    right = (*sizes, 6, 5) if labels is NHWC else (5, 6, *sizes)
    for dtype in ("f32", "bf16", "s32"):
        i = instruction("convolution", f(dtype, *left), f(dtype, *right), window=Window(window), dim_labels=labels)
        check(i, [random(f(dtype, *left)), random(f(dtype, *right), 1)], ulp=8)


@pytest.mark.parametrize(("feature_groups", "batch_groups"), [(2, 1), (6, 1), (1, 2)])
def test_grouped_convolution(feature_groups: int, batch_groups: int) -> None:
    outputs = 12
    left, right = f("f32", 4, 7, 8, 6), f("f32", 3, 3, 6 // feature_groups, outputs)
    i = instruction(
        "convolution", left, right, window=Window((WindowDim(3, 1, 1, 1), WindowDim(3))), dim_labels=NHWC,
        feature_group_count=feature_groups, batch_group_count=batch_groups,
    )  # fmt: skip
    check(i, [random(left), random(right, 1)], ulp=8)


def greater(dtype: str) -> Computation:
    b = Builder("ge")
    x, y = b.parameter(f(dtype)), b.parameter(f(dtype))
    return b.build(b.add("compare", x, y, direction="GE"))


@pytest.mark.parametrize("padding", [(0, 0), (1, 1)])
def test_select_and_scatter(padding: tuple[int, int]) -> None:
    window = Window((WindowDim(1), WindowDim(3, 2, *padding), WindowDim(2, 2)))
    out = (9 + sum(padding) - 3) // 2 + 1
    i = instruction(
        "select-and-scatter", f("f32", 2, 9, 8), f("f32", 2, out, 4), f("f32"), window=window,
        select=greater("f32"), scatter=binary_computation("add", "f32"),
    )  # fmt: skip
    check(i, [random(f("f32", 2, 9, 8)), random(f("f32", 2, out, 4), 1), np.float32(0)], ulp=1)


@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox"])
@pytest.mark.parametrize("dtype", ["u32", "u64", "u8", "s16"])
@pytest.mark.parametrize("dims", [(), (1,), (4,), (7, 3), (5, 6, 2), (33,)])
def test_random_bits(algorithm: str, dtype: str, dims: tuple[int, ...]) -> None:
    for words in (2, 3) if algorithm == "rng_philox" else (2,):
        shape = tuple_shape(f("u64", words), f(dtype, *dims))
        i = instruction("rng-bit-generator", f("u64", words), shape=shape, algorithm=algorithm)
        state = np.array([0x0123456789ABCDEF, 2**64 - 2, 5][:words], np.uint64)
        check(i, [state])


def test_batch_norm() -> None:
    x, c = f("f32", 4, 5, 6), f("f32", 5)
    args = [random(x), random(c, 1), random(c, 2)]
    i = instruction("batch-norm-training", x, c, c, epsilon=0.01, feature_index=1)
    check(i, args, ulp=16)
    variance = np.abs(random(c, 3))
    i = instruction("batch-norm-inference", x, c, c, c, c, epsilon=0.01, feature_index=1)
    check(i, [*args, random(c, 4), variance], ulp=16)
    i = instruction("batch-norm-grad", x, c, c, c, x, epsilon=0.01, feature_index=1)
    check(i, [*args, variance, random(x, 5)], ulp=64)
