"""The plain C that stands in for BLAS ahead of time: every function against the library, in all ways of calling it."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardc.native.llvm import blas

FOLDER = Path(__file__).resolve().parents[2] / "compiler" / "ahead" / "c"
TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
Matrix = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")


@pytest.fixture(scope="module")
def builtin(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    shared = tmp_path_factory.mktemp("blas") / "builtin.so"
    source = str(FOLDER / "shardc_blas_builtin.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(shared), source], check=True)
    return ctypes.CDLL(str(shared))


def scale(letter: str, value: complex) -> Any:
    """A factor as the function of a type takes it."""
    if letter == "s":
        return ctypes.c_float(value.real)
    if letter == "d":
        return ctypes.c_double(value.real)
    return np.array([value], TYPES[letter]).ctypes.data_as(ctypes.c_void_p)


def random(letter: str, *dims: int) -> Matrix:
    rng = np.random.default_rng(sum(dims))
    values = rng.standard_normal(dims) + (1j * rng.standard_normal(dims) if letter in "cz" else 0)
    return values.astype(TYPES[letter])


def pointer(a: Matrix) -> Any:
    return a.ctypes.data_as(ctypes.c_void_p)


def both(builtin: ctypes.CDLL, name: str, before: tuple[Any, ...], out: Matrix, last: int) -> tuple[Matrix, Matrix]:
    """What the library and the plain C make of ``out``."""
    results = []
    for library in (blas.library(), builtin):
        result = out.copy()
        getattr(library, name)(*before, pointer(result), last)
        results.append(result)
    return results[0], results[1]


def close(wanted: Matrix, got: Matrix) -> bool:
    tolerance = 1e-4 if wanted.dtype in (np.float32, np.complex64) else 1e-11
    return bool(np.allclose(wanted, got, rtol=tolerance, atol=tolerance))


def test_every_function_is_there(builtin: ctypes.CDLL) -> None:
    for symbol in blas.SYMBOLS:
        assert "LAPACKE" in symbol or hasattr(builtin, symbol), symbol


def test_any_library_serves_as_well(tmp_path: Path) -> None:
    """The file that forwards to CBLAS defines the same names."""
    target = tmp_path / "forward.o"
    subprocess.run(["cc", "-c", "-Wall", "-Werror", "-o", target, str(FOLDER / "shardc_blas_cblas.c")], check=True)
    from shardc.native.llvm.jit import undefined_symbols

    wanted = {s for s in blas.SYMBOLS if "LAPACKE" not in s}
    code = target.read_bytes()
    assert {s.removeprefix("_") for s in undefined_symbols(code)} == {
        s.removeprefix("scipy_") for s in wanted if "omatcopy" not in s
    }
    assert all(s.encode() in code for s in wanted)


@pytest.mark.parametrize("letter", "sdcz")
def test_products(builtin: ctypes.CDLL, letter: str) -> None:
    m, n, k = 70, 131, 150
    for order, ta, tb in itertools.product((101, 102), (111, 112, 113), (111, 112, 113)):
        across = order == 101
        a, b = random(letter, 160, 160), random(letter, 161, 161)
        c = random(letter, 170, 170)
        arguments = (order, ta, tb, m, n, k, scale(letter, 0.5 + 1j), pointer(a), 160, pointer(b), 161)
        for beta in (0, 2 - 1j):
            out = np.full_like(c, np.nan) if beta == 0 and across else c
            wanted, got = both(builtin, f"scipy_cblas_{letter}gemm", (*arguments, scale(letter, beta)), out, 170)
            inside = (slice(m), slice(n)) if across else (slice(n), slice(m))
            assert close(wanted[inside], got[inside]), (order, ta, tb, beta)


@pytest.mark.parametrize("letter", "sdcz")
def test_triangular_solves(builtin: ctypes.CDLL, letter: str) -> None:
    m, n = 7, 5
    for order, side, uplo, ta, diagonal in itertools.product(
        (101, 102), (141, 142), (121, 122), (111, 112, 113), (131, 132)
    ):
        a = random(letter, 8, 8) * TYPES[letter](0.2) + np.eye(8, dtype=TYPES[letter]) * 3
        b = random(letter, 9, 9)
        before = (order, side, uplo, ta, diagonal, m, n, scale(letter, 2 - 1j), pointer(a), 8)
        wanted, got = both(builtin, f"scipy_cblas_{letter}trsm", before, b, 9)
        assert close(wanted, got), (order, side, uplo, ta, diagonal)


@pytest.mark.parametrize("letter", "sd")
def test_transposing_copies(builtin: ctypes.CDLL, letter: str) -> None:
    for order, ta in itertools.product((101, 102), (111, 112)):
        a, out = random(letter, 40, 40), np.zeros((50, 50), TYPES[letter])
        before = (order, ta, 37, 21, scale(letter, 1.5), pointer(a), 40)
        wanted, got = both(builtin, f"scipy_cblas_{letter}omatcopy", before, out, 50)
        np.testing.assert_array_equal(wanted, got)
