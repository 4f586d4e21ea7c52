"""Cholesky and triangular solves on a GPU under emulation, against the evaluator."""

from __future__ import annotations

from itertools import cycle, product

import numpy as np
import pytest

from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.kernel import hero_of
from shardc.hlo.types import array_shape as f
from shardc.native.gpu.target import gpu_target
from shardc.native.jit import new_module
from tests.compiler.gpu.gpu_runner import ORDERS, assemble_kernel, assert_light, check_gpu
from tests.compiler.kernel_runner import instruction, random
from tests.compiler.test_kernels_linalg import positive

FEW = ORDERS[1:3]


@pytest.mark.parametrize(
    ("dtype", "lower"), [("f32", True), ("f64", False), ("c64", True), ("c64", False), ("bf16", False)]
)
def test_cholesky(dtype: str, lower: bool) -> None:
    for dims in ((1, 1), (3, 7, 7), (40, 40)):
        i = instruction("cholesky", f(dtype, *dims), lower=lower)
        check_gpu(i, [positive(dtype, *dims)], ulp=32, orders=FEW)


@pytest.mark.parametrize("dtype", ["f32", "c128"])
def test_what_is_not_positive_definite_becomes_nan(dtype: str) -> None:
    x = positive(dtype, 2, 9, 9)
    x[1, 3, 3] = -1
    check_gpu(instruction("cholesky", f(dtype, 2, 9, 9), lower=True), [x], ulp=32, orders=FEW)


#: Element type, rows, right-hand sides, unit diagonal.
SOLVES = (
    ("f32", 6, 4, True),
    ("c128", 6, 1, False),
    ("bf16", 17, 5, False),
    ("f64", 9, 70, False),
    ("c64", 5, 3, True),
)
WAYS = list(product([True, False], [True, False], ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]))


@pytest.mark.parametrize(("way", "kind"), list(zip(WAYS, cycle(SOLVES), strict=False)))
def test_triangular_solve(way: tuple[bool, bool, str], kind: tuple[str, int, int, bool]) -> None:
    left, lower, transpose = way
    dtype, n, width, unit = kind
    a = (random(f(dtype, 2, n, n)) * 0.6 / n + np.eye(n)).astype(f(dtype).dtype.numpy)
    dims = (2, n, width) if left else (2, width, n)
    i = instruction(
        "triangular-solve", f(dtype, 2, n, n), f(dtype, *dims), left_side=left, lower=lower, unit_diagonal=unit,
        transpose_a=transpose,
    )  # fmt: skip
    x = random(f(dtype, *dims), 1)
    check_gpu(i, [a, x], ulp=64, orders=FEW)
    check_gpu(i, [a, x], ulp=64, orders=FEW[:1], in_place={1: 0})


def test_big_matrices_are_the_hosts() -> None:
    i = instruction("cholesky", f("f32", 1000, 1000), lower=True)
    assert hero_of(GpuKernel(new_module("m"), i, "k", gpu_target("cuda"))) is None


def test_code_is_light() -> None:
    solve = instruction(
        "triangular-solve", f("f64", 8, 64, 64), f("f64", 8, 64, 100), left_side=True, lower=True,
        transpose_a="NO_TRANSPOSE",
    )  # fmt: skip
    assert_light(assemble_kernel(solve), registers=96)
    assert_light(assemble_kernel(instruction("cholesky", f("c128", 8, 64, 64), lower=False)), registers=128)
