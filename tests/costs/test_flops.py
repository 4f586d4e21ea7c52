"""Operations counted: against a count by hand, one by one, and against textbook figures."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from shardc.costs.ops.table import instruction_flops
from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.lapack import LAPACK
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.ir.types import array_shape, tuple_shape

LABELS = ConvDims(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))


def called(target: str, *operands: tuple[int, ...], result: tuple[int, ...]) -> Instruction:
    b = Builder("main")
    args = [b.parameter(array_shape("f32", *dims)) for dims in operands]
    return b.add("custom-call", *args, shape=array_shape("f32", *result), custom_call_target=target)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("holes", "spread"), [(1, 1), (2, 1), (3, 1), (1, 2), (4, 3)])
@pytest.mark.parametrize("pads", [(0, 0), (2, 1), (-1, 3), (9, 0)])
def test_a_convolution_counts_what_it_reads(stride: int, holes: int, spread: int, pads: tuple[int, int]) -> None:
    n, k = 7, 3
    w = WindowDim(k, stride, *pads, lhs_dilate=holes, rhs_dilate=spread)
    room = (n - 1) * holes + 1 + sum(pads) - ((k - 1) * spread + 1)
    out = max(room // stride + 1, 0)
    b = Builder("main")
    x, kernel = b.parameter(array_shape("f32", 2, n, 4)), b.parameter(array_shape("f32", k, 4, 5))
    op = b.add(
        "convolution",
        x,
        kernel,
        shape=array_shape("f32", 2, out, 5),
        dim_labels=LABELS,
        window=Window((w,)),
    )
    held = {i * holes for i in range(n)}
    read = sum(o * stride + j * spread - pads[0] in held for o, j in itertools.product(range(out), range(k)))
    assert instruction_flops(op) == 2 * 2 * 4 * 5 * read


@pytest.mark.parametrize(("kind", "dtype", "expected"), [("FFT", "c64", 1.0), ("RFFT", "f32", 0.5)])
def test_a_transform_counts_five_n_log_n(kind: str, dtype: str, expected: float) -> None:
    b = Builder("main")
    op = b.add("fft", b.parameter(array_shape(dtype, 3, 64, 32)), fft_type=kind, fft_length=(64, 32))
    assert instruction_flops(op) == expected * 3 * 5 * 64 * 32 * 11


def test_orders_count_comparisons() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 4, 100))
    y = array_shape("f32")
    less = Builder("less")
    less_than = less.build(less.add("compare", less.parameter(y), less.parameter(y), direction="LT"))
    assert instruction_flops(b.add("sort", x, dimensions=(1,), to_apply=less_than)) == 400 * 7
    assert instruction_flops(b.add("topk", x, k=8)) == 400 * 3


def test_running_totals_are_taken_in_one_pass() -> None:
    b = Builder("main")
    x, zero = b.parameter(array_shape("f32", 3, 100)), b.constant(0.0, "f32")
    add = binary_computation("add", "f32")
    for edges, count in ((WindowDim(100, pad_low=99), 1), (WindowDim(100, pad_high=99), 1), (WindowDim(5), 5)):
        op = b.add("reduce-window", x, zero, window=Window((WindowDim(1), edges)), to_apply=add)
        assert instruction_flops(op) == op.shape.size * count


def test_windows_that_choose() -> None:
    b = Builder("main")
    x, source = b.parameter(array_shape("f32", 8)), b.parameter(array_shape("f32", 4))
    pick = Builder("pick")
    y = array_shape("f32")
    ge = pick.build(pick.add("compare", pick.parameter(y), pick.parameter(y), direction="GE"))
    op = b.add(
        "select-and-scatter",
        x,
        source,
        b.constant(0.0, "f32"),
        window=Window((WindowDim(2, 2),)),
        select=ge,
        scatter=binary_computation("add", x.shape.dtype),
    )
    assert instruction_flops(op) == 4 * (2 + 1)


def test_linear_algebra() -> None:
    b = Builder("main")
    a, rhs = b.parameter(array_shape("f32", 5, 30, 30)), b.parameter(array_shape("f32", 5, 30, 7))
    assert instruction_flops(b.add("cholesky", a, lower=True)) == 5 * 30**3 // 3
    attrs = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"}
    assert instruction_flops(b.add("triangular-solve", a, rhs, **attrs)) == 5 * 30 * 30 * 7


def test_routines_agree_with_the_operations_that_they_stand_for() -> None:
    n = 30
    assert instruction_flops(called("lapack_spotrf_ffi", (5, n, n), result=(5, n, n))) == 5 * n**3 // 3
    assert instruction_flops(called("lapack_strsm_ffi", (n, n), (n, 7), result=(n, 7))) == n * n * 7
    assert instruction_flops(called("lapack_dgetrf_ffi", (n, n), result=(n, n))) == 2 * n**3 // 3
    # Householder: 2 n^2 (m - n / 3) for a tall matrix.
    tall = instruction_flops(called("lapack_sgeqrf_ffi", (90, n), result=(90, n)))
    assert math.isclose(tall, 2 * n * n * (90 - n / 3))
    assert instruction_flops(called("somebody's", (n, n), result=(n, n))) == 0


@pytest.mark.parametrize("target", LAPACK)
def test_every_routine_has_a_figure(target: str) -> None:
    operands = {"ormqr": ((8, 8), (8,), (8, 6)), "unmqr": ((8, 8), (8,), (8, 6)), "trsm": ((8, 8), (8, 6))}
    name = target.removeprefix("lapack_").removesuffix("_ffi")[1:]
    tridiagonal = ((8,), (8,), (8,), (8, 6))
    reflectors = ((8, 8), (8,))
    given = operands.get(name, tridiagonal if name == "gtsv" else reflectors)
    assert instruction_flops(called(target, *given, result=(8, 8))) > 0


def test_random_numbers_are_work() -> None:
    b = Builder("main")
    state = b.constant(np.zeros(2, np.uint64))
    for dtype, words in (("u32", 100), ("u64", 200), ("u8", 100)):
        shape = tuple_shape(state.shape, array_shape(dtype, 100))
        op = b.add("rng-bit-generator", state, shape=shape, algorithm="rng_three_fry")
        assert instruction_flops(op) == words * 55
