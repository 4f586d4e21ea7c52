"""Cholesky, triangular solves and FFTs against the evaluator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from shardc.hlo.ir.types import array_shape as f
from tests.compiler.kernel_runner import Array, check, compile_and_run, instruction, random


def positive(dtype: str, *dims: int) -> Array:
    x = random(f(dtype, *dims)).astype(np.complex128 if dtype[0] == "c" else np.float64)
    square = x @ np.conj(np.swapaxes(x, -1, -2)) + 0.5 * np.eye(dims[-1])
    return square.astype(f(dtype).dtype.numpy)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", ["f32", "f64", "c64", "c128", "bf16"])
def test_cholesky(dtype: str, lower: bool) -> None:
    for dims in ((1, 1), (2, 7, 7), (0, 3, 3), (2, 13, 13), (30, 30)):
        x = positive(dtype, *dims)
        check(instruction("cholesky", f(dtype, *dims), lower=lower), [x], ulp=32)
    for n in (5, 17):
        x = positive(dtype, 2, n, n)
        x[1, 3, 3] = -1
        check(instruction("cholesky", f(dtype, 2, n, n), lower=lower), [x], ulp=32)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_triangular_solve(left: bool, lower: bool, transpose: str) -> None:
    for dtype, n in (("f32", 6), ("c128", 6), ("bf16", 6), ("f32", 14), ("f64", 14), ("c64", 14), ("f16", 14)):
        for unit in (True, False):
            a = random(f(dtype, 3, n, n)) * 0.6 / n + np.eye(n).astype(f(dtype).dtype.numpy)
            dims = (3, n, 4) if left else (3, 4, n)
            i = instruction(
                "triangular-solve", f(dtype, 3, n, n), f(dtype, *dims), left_side=left, lower=lower,
                unit_diagonal=unit, transpose_a=transpose,
            )  # fmt: skip
            x = random(f(dtype, *dims), 1)
            check(i, [a.astype(f(dtype).dtype.numpy), x], ulp=64)
            check(i, [a.astype(f(dtype).dtype.numpy), x], ulp=64, in_place=1)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("n", [4, 14])
def test_narrow_matrices_are_rounded_once(n: int, dtype: str) -> None:
    """Within one unit in the last place of f64, whatever the solution has on the way (seeds 0 to 9)."""
    narrow, batch = f(dtype).dtype.numpy, (20, n, n)
    for seed in range(10):
        a = (2 / n * random(f("f32", *batch), seed) + 2 * np.eye(n)).astype(narrow)
        x = random(f("f32", 20, n, 3), seed + 100).astype(narrow)
        solve = instruction("triangular-solve", f(dtype, *batch), f(dtype, 20, n, 3), left_side=True, lower=True)
        exact = np.linalg.solve(np.tril(a.astype(np.float64)), x.astype(np.float64))
        wide = a.astype(np.float64)
        square = (wide @ np.swapaxes(wide, 1, 2) + np.eye(n)).astype(narrow)
        factor = np.linalg.cholesky(square.astype(np.float64))
        for i, operands, wanted in (
            (solve, [a, x], exact),
            (instruction("cholesky", f(dtype, *batch), lower=True), [square], factor),
        ):
            [got] = compile_and_run(i, operands)
            rounded = wanted.astype(narrow).astype(np.float64)
            # 1e-5 of the largest: what f32 loses where the solution cancels.
            slack = float(ml_dtypes.finfo(narrow).eps) * np.abs(rounded) + 1e-5 * np.abs(wanted).max()
            assert np.all(np.abs(got.astype(np.float64) - wanted) <= slack), (i.opcode, seed)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    "lengths",
    [(1,), (2,), (8,), (12,), (7,), (31,), (286,), (37,), (74,), (997,), (20000,), (30, 4), (3, 5, 6), (4, 41, 3)],
)
def test_fft(lengths: tuple[int, ...], wide: bool) -> None:
    real, whole = ("f64", "c128") if wide else ("f32", "c64")
    dims = (2, *lengths)
    half = (*dims[:-1], dims[-1] // 2 + 1)
    for kind in ("FFT", "IFFT"):
        check(instruction("fft", f(whole, *dims), fft_type=kind, fft_length=lengths), [random(f(whole, *dims))], ulp=8)
    check(instruction("fft", f(real, *dims), fft_type="RFFT", fft_length=lengths), [random(f(real, *dims))], ulp=8)
    check(instruction("fft", f(whole, *half), fft_type="IRFFT", fft_length=lengths), [random(f(whole, *half))], ulp=8)


@pytest.mark.parametrize("n", [64, 61, 210])
def test_fft_is_accurate_to_the_last_places(n: int) -> None:
    """Against the sum in extended precision: errors are a few units of the largest result, of f64 and of f32."""
    k = np.arange(n)
    x = random(f("c128", n))
    angles = (np.outer(k, k) % n).astype(np.longdouble) * (
        2 * np.longdouble("3.14159265358979323846264338327950288") / n
    )
    exact = (np.cos(angles) - 1j * np.sin(angles)) @ x.astype(np.clongdouble)
    for dtype, digits in (("c128", 2.0**-52), ("c64", 2.0**-24)):
        given = x.astype(f(dtype).dtype.numpy)
        if dtype == "c64":
            exact = (np.cos(angles) - 1j * np.sin(angles)) @ given.astype(np.clongdouble)
        (got,) = compile_and_run(instruction("fft", f(dtype, n), fft_type="FFT", fft_length=(n,)), [given])
        assert float(np.max(np.abs(got - exact)) / np.max(np.abs(exact))) < 2 * digits


def test_fft_of_a_prime_length_takes_n_log_n() -> None:
    """200,003 is prime: the plain sum would need 4e10 steps, minutes instead of milliseconds."""
    n = 200_003
    x = random(f("c128", n))
    (got,) = compile_and_run(instruction("fft", f("c128", n), fft_type="FFT", fft_length=(n,)), [x])
    wanted = np.fft.fft(x)
    assert np.max(np.abs(got - wanted)) < 1e-13 * np.max(np.abs(wanted)) * np.log2(n)
