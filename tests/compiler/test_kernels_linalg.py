"""Cholesky, triangular solves and FFTs against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.types import array_shape as f
from tests.compiler.kernel_runner import Array, check, instruction, random


def positive(dtype: str, *dims: int) -> Array:
    x = random(f(dtype, *dims)).astype(np.complex128 if dtype[0] == "c" else np.float64)
    square = x @ np.conj(np.swapaxes(x, -1, -2)) + 0.5 * np.eye(dims[-1])
    return square.astype(f(dtype).dtype.numpy)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", ["f32", "f64", "c64", "c128", "bf16"])
def test_cholesky(dtype: str, lower: bool) -> None:
    for dims in ((1, 1), (2, 7, 7), (0, 3, 3)):
        x = positive(dtype, *dims)
        check(instruction("cholesky", f(dtype, *dims), lower=lower), [x], ulp=32)
    x = positive(dtype, 2, 5, 5)
    x[1, 3, 3] = -1
    check(instruction("cholesky", f(dtype, 2, 5, 5), lower=lower), [x], ulp=32)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_triangular_solve(left: bool, lower: bool, transpose: str) -> None:
    for dtype in ("f32", "c128"):
        for unit in (True, False):
            a = random(f(dtype, 3, 6, 6)) * 0.2 + np.eye(6).astype(f(dtype).dtype.numpy)
            dims = (3, 6, 4) if left else (3, 4, 6)
            i = instruction(
                "triangular-solve", f(dtype, 3, 6, 6), f(dtype, *dims), left_side=left, lower=lower,
                unit_diagonal=unit, transpose_a=transpose,
            )  # fmt: skip
            x = random(f(dtype, *dims), 1)
            check(i, [a.astype(f(dtype).dtype.numpy), x], ulp=64)
            check(i, [a.astype(f(dtype).dtype.numpy), x], ulp=64, in_place=1)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("lengths", [(1,), (8,), (12,), (7,), (30, 4), (3, 5, 6)])
def test_fft(lengths: tuple[int, ...], wide: bool) -> None:
    real, whole = ("f64", "c128") if wide else ("f32", "c64")
    dims = (2, *lengths)
    half = (*dims[:-1], dims[-1] // 2 + 1)
    for kind in ("FFT", "IFFT"):
        check(instruction("fft", f(whole, *dims), fft_type=kind, fft_length=lengths), [random(f(whole, *dims))], ulp=8)
    check(instruction("fft", f(real, *dims), fft_type="RFFT", fft_length=lengths), [random(f(real, *dims))], ulp=8)
    check(instruction("fft", f(whole, *half), fft_type="IRFFT", fft_length=lengths), [random(f(whole, *half))], ulp=8)
