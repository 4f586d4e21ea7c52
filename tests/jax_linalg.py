"""Linear algebra, Fourier transforms and sorting as JAX scripts call them: name -> (function, arguments).

A case whose vectors are free in sign or phase has an ``invariant`` instead of values to compare: a function of the
arguments and the results, whose arrays must be (nearly) zero. ``exact`` results are moved, not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import lax

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    function: Callable[..., Any]
    args: Sequence[Array]
    invariant: Callable[..., Any] | None = None
    exact: bool = False


def adjoint(a: Array) -> Array:
    return np.conj(np.swapaxes(a, -1, -2))


def unitary(u: Array) -> Array:
    """How far the columns are from orthonormal."""
    return np.asarray(np.matmul(adjoint(u), u) - np.eye(u.shape[-1]))


def svd_error(a: Array, u: Array, s: Array, vh: Array) -> list[Array]:
    k = s.shape[-1]
    return [np.matmul(u[..., :k] * s[..., None, :], vh[..., :k, :]) - a, unitary(u), unitary(adjoint(vh))]


def eigh_error(a: Array, w: Array, v: Array) -> list[Array]:
    return [np.matmul(a, v) - v * w[..., None, :], unitary(v), np.minimum(np.diff(w), 0)]


def schur_error(a: Array, t: Array, z: Array) -> list[Array]:
    return [z @ t @ adjoint(z) - a, unitary(z), np.tril(t, -2)]


class Numbers:
    """Random arrays of one element type."""

    def __init__(self, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self.random = np.random.RandomState(3)

    def __call__(self, *dims: int) -> Array:
        x = self.random.standard_normal(dims)
        if self.dtype.kind == "c":
            x = x + 1j * self.random.standard_normal(dims)
        return np.asarray(x).astype(self.dtype)

    def hermitian(self, *dims: int) -> Array:
        x = self(*dims)
        return ((x + adjoint(x)) / 2).astype(self.dtype)

    def positive(self, *dims: int) -> Array:
        x = self(*dims)
        return (np.matmul(x, adjoint(x)) + np.eye(dims[-1])).astype(self.dtype)

    def triangular(self, *dims: int) -> Array:
        return (self(*dims) / dims[-1] + np.eye(dims[-1])).astype(self.dtype)


def factorisations(r: Numbers) -> dict[str, Case]:
    square, batch, tall, wide = r(5, 5), r(2, 3, 4, 4), r(7, 4), r(2, 3, 5)
    positive = r.positive(2, 3, 4, 4)
    return {
        "cholesky": Case(jnp.linalg.cholesky, [positive]),
        "cholesky upper": Case(partial(jsl.cholesky, lower=False), [r.positive(5, 5)]),
        "cholesky large": Case(jnp.linalg.cholesky, [r.positive(20, 20)]),
        "cholesky indefinite": Case(jnp.linalg.cholesky, [np.stack([positive[0, 0], -positive[0, 1]])]),
        "qr": Case(jnp.linalg.qr, [wide]),
        "qr complete": Case(partial(jnp.linalg.qr, mode="complete"), [tall]),
        "qr r": Case(partial(jnp.linalg.qr, mode="r"), [tall]),
        "qr raw": Case(partial(jnp.linalg.qr, mode="raw"), [tall]),
        "qr pivoting": Case(partial(jsl.qr, pivoting=True, mode="economic"), [tall]),
        "householder product": Case(lax.linalg.householder_product, [tall, r(4)]),
        "lu": Case(lax.linalg.lu, [wide]),
        "lu factor": Case(jsl.lu_factor, [square]),
        "lu singular": Case(lax.linalg.lu, [np.zeros((3, 3), r.dtype)]),
        "svd": Case(jnp.linalg.svd, [wide], svd_error),
        "svd thin": Case(partial(jnp.linalg.svd, full_matrices=False), [tall], svd_error),
        "svd values": Case(partial(jnp.linalg.svd, compute_uv=False), [wide]),
        "svd qr": Case(partial(lax.linalg.svd, algorithm=lax.linalg.SvdAlgorithm.QR), [tall], svd_error),
        "svd nan": Case(
            partial(jnp.linalg.svd, compute_uv=False), [np.where(np.eye(4) > 0, np.nan, 1).astype(r.dtype)]
        ),
        "eigh": Case(jnp.linalg.eigh, [r.hermitian(2, 3, 4, 4)], eigh_error),
        "eigh upper": Case(lambda a: jnp.linalg.eigh(a, UPLO="U", symmetrize_input=False)[0], [square]),
        "eigvalsh": Case(jnp.linalg.eigvalsh, [r.hermitian(5, 5)]),
        "eig": Case(jnp.linalg.eig, [batch], lambda a, w, v: [np.matmul(a, v) - v * w[..., None, :]]),
        "eig left": Case(lax.linalg.eig, [square], lambda a, w, l, v: [adjoint(l) @ a - w[:, None] * adjoint(l)]),
        "eigvals": Case(jnp.linalg.eigvals, [square]),
        "eigvals not finite": Case(jnp.linalg.eigvals, [np.stack([square, square * np.nan, square * np.inf])]),
        "schur": Case(jsl.schur, [square], schur_error),
        "schur complex": Case(partial(jsl.schur, output="complex"), [square], schur_error),
        "hessenberg": Case(partial(jsl.hessenberg, calc_q=True), [square]),
        "tridiagonal": Case(partial(lax.linalg.tridiagonal, lower=False), [r.hermitian(2, 5, 5)]),
    }


def solvers(r: Numbers) -> dict[str, Case]:
    square, batch, side = r(5, 5), r(2, 3, 4, 4), r(5, 2)
    cases = {
        "inv": Case(jnp.linalg.inv, [batch]),
        "solve": Case(jnp.linalg.solve, [square, side]),
        "solve vector": Case(jnp.linalg.solve, [square, r(5)]),
        "solve batch": Case(jnp.linalg.solve, [batch, batch]),
        "det": Case(jnp.linalg.det, [batch]),
        "slogdet": Case(jnp.linalg.slogdet, [batch]),
        "lstsq": Case(lambda a, b: jnp.linalg.lstsq(a, b)[0], [r(7, 4), r(7, 2)]),
        "pinv": Case(jnp.linalg.pinv, [r(2, 3, 5)]),
        "matrix power": Case(lambda a: jnp.linalg.matrix_power(a, -3), [square]),
        "norm": Case(partial(jnp.linalg.norm, ord=2, axis=(-2, -1)), [batch]),
        "matrix rank": Case(jnp.linalg.matrix_rank, [square]),
        "cond": Case(jnp.linalg.cond, [square]),
        "lu solve": Case(lambda a, b: jsl.lu_solve(jsl.lu_factor(a), b), [square, side]),
        "cho solve": Case(lambda a, b: jsl.cho_solve(jsl.cho_factor(a), b), [r.positive(5, 5), side]),
        "tridiagonal solve": Case(lax.linalg.tridiagonal_solve, [r(2, 5), r(2, 5) + 4, r(2, 5), r(2, 5, 3)]),
        "tridiagonal perturbed": Case(
            partial(lax.linalg.tridiagonal_solve, perturb_singular=True),
            [r(2, 5), r(2, 5), r(2, 5), r(2, 5, 3)],
        ),
        "tridiagonal singular": Case(
            partial(lax.linalg.tridiagonal_solve, perturb_singular=True),
            [
                np.ones((2, 4), r.dtype),
                np.array([[1, 2, 2, 1], [0, 0, 0, 0]], r.dtype),
                np.ones((2, 4), r.dtype),
                r(2, 4, 1),
            ],
        ),
        "tridiagonal of one": Case(
            partial(lax.linalg.tridiagonal_solve, perturb_singular=True),
            [r(2, 1), np.array([[0], [2]], r.dtype), r(2, 1), r(2, 1, 2)],
        ),
        "sqrtm": Case(jsl.sqrtm, [r.positive(4, 4)]),
        "polar": Case(jsl.polar, [square]),
        "expm": Case(jax.vmap(jsl.expm), [batch[0]]),
        "solve sylvester": Case(jsl.solve_sylvester, [square, square[::-1].copy(), square]),
    }
    for flags in range(16):
        left, lower, transpose, unit = (bool(flags >> k & 1) for k in range(4))
        solve = partial(
            lax.linalg.triangular_solve, left_side=left, lower=lower, transpose_a=transpose,
            conjugate_a=transpose and r.dtype.kind == "c", unit_diagonal=unit,
        )  # fmt: skip
        dims = (2, 4, 3) if left else (2, 3, 4)
        cases[f"triangular solve {flags:04b}"] = Case(solve, [r.triangular(2, 4, 4), r(*dims)])
    if r.dtype.kind == "f":
        d, e = r(6), r(5)
        matrix = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
        cases["eigh tridiagonal"] = Case(jsl.eigh_tridiagonal, [d, e], lambda d, e, w, v: eigh_error(matrix, w, v))
        cases["gradient of cholesky"] = Case(jax.grad(lambda a: jnp.linalg.cholesky(a).sum()), [r.positive(4, 4)])
        cases["gradient of solve"] = Case(jax.grad(lambda a, b: jnp.linalg.solve(a, b).sum()), [square, side])
        cases["gradient of qr"] = Case(jax.grad(lambda a: abs(jnp.linalg.qr(a)[1]).sum()), [r(7, 4)])
    return cases


def transforms(r: Numbers) -> dict[str, Case]:
    x = r(3, 4, 10)
    if r.dtype.kind == "f":
        return {
            "rfft": Case(jnp.fft.rfft, [x]),
            "rfft longer": Case(partial(jnp.fft.rfft, n=13), [x]),
            "rfftn": Case(jnp.fft.rfftn, [x]),
            "hfft": Case(jnp.fft.ihfft, [x]),
        }
    return {
        "fft": Case(jnp.fft.fft, [x]),
        "fft of another axis": Case(partial(jnp.fft.fft, axis=0, n=7, norm="ortho"), [x]),
        "ifft2": Case(jnp.fft.ifft2, [x]),
        "fftn": Case(jnp.fft.fftn, [x]),
        "irfft": Case(jnp.fft.irfft, [x]),
        "irfft odd": Case(partial(jnp.fft.irfft, n=17), [x]),
        "irfftn": Case(jnp.fft.irfftn, [x]),
        "fft of a prime length": Case(jnp.fft.fft, [r(2, 101)]),
    }


moved = partial(Case, exact=True)


def orders(r: Numbers) -> dict[str, Case]:
    x = r(3, 20)
    x[0, ::3] = 0
    x[1, 1::4] = -0.0
    if r.dtype.kind == "c":
        return {"sort complex": moved(jnp.sort, [np.round(x)])}
    keys = np.array([[3, 1, 3, 1, 2, 3], [0, 0, 0, 5, 5, 5]], np.int32)
    special = np.array([np.nan, 1, -np.inf, 0.0, -0.0, np.inf, -np.nan, 2, 1], r.dtype)
    return {
        "sort": moved(jnp.sort, [x]),
        "sort specials": moved(jnp.sort, [special]),
        "argsort": moved(jnp.argsort, [np.round(x)]),
        "argsort downwards": moved(partial(jnp.argsort, descending=True), [np.round(x)]),
        "sort along the first": moved(partial(jnp.sort, axis=0), [x]),
        "sort by two keys": moved(lambda a, b, c: lax.sort((a, b, c), num_keys=2),
                                 [keys, np.round(x[:2, :6]), np.arange(12).reshape(2, 6)]),
        "lexsort": moved(lambda a, b: jnp.lexsort((a, b)), [x[0], np.round(x[1])]),
        "top k": moved(lambda a: lax.top_k(a, 4), [np.round(x)]),
        "top k specials": moved(lambda a: lax.top_k(a, 9), [special]),
        "top k all": moved(lambda a: lax.top_k(a, 20), [np.round(x)]),
        "approximate max": moved(lambda a: lax.approx_max_k(a, 3), [x]),
        "approximate min": moved(lambda a: lax.approx_min_k(a, 3), [x]),
        "median": moved(partial(jnp.median, axis=1), [x]),
    }  # fmt: skip


def cases() -> dict[str, tuple[str, Callable[[], Case]]]:
    """Every case in every element type, made when it is asked for: ``"qr float32"``."""
    found: dict[str, tuple[str, Callable[[], Case]]] = {}
    for dtype in ("float32", "float64", "complex64", "complex128"):
        for make in (factorisations, solvers, transforms, orders):
            for name in make(Numbers(dtype)):
                found[f"{name} {dtype}"] = (dtype, lambda m=make, n=name, d=dtype: m(Numbers(d))[n])  # type: ignore[misc]
    return found
