"""Cholesky and triangular solves on a GPU under emulation, against the evaluator."""

from __future__ import annotations

from itertools import cycle, product

import numpy as np
import pytest

from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.kernel import find_kernel_emitter
from shardc.hlo.ir.lapack import PREFIXES
from shardc.hlo.ir.types import array_shape as f
from shardc.hlo.ir.types import tuple_shape
from shardc.native.gpu.target import gpu_target
from shardc.native.llvm.jit import new_module
from tests.compiler.gpu.gpu_runner import ORDERS, assemble_kernel, assert_light, check_gpu, run_gpu_kernel
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
    assert find_kernel_emitter(GpuKernel(new_module("m"), i, "k", gpu_target("cuda"))) is None


def test_code_is_light() -> None:
    solve = instruction(
        "triangular-solve", f("f64", 8, 64, 64), f("f64", 8, 64, 100), left_side=True, lower=True,
        transpose_a="NO_TRANSPOSE",
    )  # fmt: skip
    assert_light(assemble_kernel(solve), registers=96)
    assert_light(assemble_kernel(instruction("cholesky", f("c128", 8, 64, 64), lower=False)), registers=128)


@pytest.mark.parametrize("dtype", ["f32", "c64"])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_lapacks_factor_tells_the_pivot_and_leaves_the_other_triangle(dtype: str, uplo: str) -> None:
    shape = f(dtype, 3, 9, 9)
    i = instruction(
        "custom-call", shape, shape=tuple_shape(shape, f("s32", 3)), backend_config=f"{{uplo = {ord(uplo)} : ui8}}",
        custom_call_target=f"lapack_{PREFIXES[dtype]}potrf_ffi",
    )  # fmt: skip
    x = positive(dtype, 3, 9, 9)
    check_gpu(i, [x], ulp=32, orders=FEW)
    check_gpu(i, [x], ulp=32, orders=FEW[:1], in_place={0: 0})
    x[1, 3, 3] = -1
    factor, info = run_gpu_kernel(i, [x], orders=FEW)
    assert info.tolist() == [0, 4, 0]
    assert np.isfinite(factor[[0, 2]]).all()


@pytest.mark.parametrize(("side", "uplo", "trans", "diag"), ["LLNN", "RUTU", "LUCN", "RLNN"])
def test_lapacks_solve(side: str, uplo: str, trans: str, diag: str) -> None:
    a = random(f("c64", 2, 6, 6)) * 0.1 + np.eye(6, dtype=np.complex64)
    dims = (2, 6, 4) if side == "L" else (2, 4, 6)
    words = {"diag": diag, "side": side, "trans_x": trans, "uplo": uplo}
    config = ", ".join(f"{name} = {ord(word)} : ui8" for name, word in words.items())
    i = instruction(
        "custom-call", f("c64", 2, 6, 6), f("c64", *dims), shape=f("c64", *dims), backend_config=f"{{{config}}}",
        custom_call_target="lapack_ctrsm_ffi",
    )  # fmt: skip
    check_gpu(i, [a.astype(np.complex64), random(f("c64", *dims), 1)], ulp=64, orders=FEW)
