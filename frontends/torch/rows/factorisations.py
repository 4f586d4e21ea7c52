"""Operators of linear algebra: factors of matrices, and what is solved and counted with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from shardc.hlo.errors import UnsupportedError

__all__ = ["ROWS"]

Row = Callable[..., Any]


def _transposed(a: Any) -> Any:
    return jnp.conj(jnp.swapaxes(a, -1, -2))


def _fine(a: Any) -> Any:
    """The report of a factorisation that did not fail, one for each matrix; failures show as NaN in the values."""
    return jnp.zeros(a.shape[:-2], jnp.int32)


def _cholesky(a: Any, upper: bool = False) -> Any:
    lower = jnp.tril(lax.linalg.cholesky(_transposed(a) if upper else a, symmetrize_input=False))
    return _transposed(lower) if upper else lower


def _cholesky_ex(a: Any, *, upper: bool = False, check_errors: bool = False) -> tuple[Any, Any]:
    return _cholesky(a, upper), _fine(a)


def _triangular(
    a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False, transpose: bool = False
) -> Any:
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = jnp.broadcast_to(a, batch + a.shape[-2:]), jnp.broadcast_to(b, batch + b.shape[-2:])
    return lax.linalg.triangular_solve(
        a, b, left_side=left, lower=not upper, transpose_a=transpose, unit_diagonal=unitriangular
    )


def _cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    lower = _transposed(factor) if upper else factor
    return _triangular(_transposed(lower), _triangular(lower, b, upper=False), upper=True)


def _lu(a: Any, pivot: bool = True) -> tuple[Any, Any, Any]:
    """Both factors in one matrix, rows that were exchanged counted from one, and the order of the rows."""
    if not pivot:
        raise UnsupportedError("a factorisation without pivoting is not supported", fix="omit pivot=False")
    factors, exchanged, order = lax.linalg.lu(a)
    return factors, exchanged + 1, order


def _unpacked(factors: Any) -> tuple[Any, Any]:
    rows, columns = factors.shape[-2:]
    least = min(rows, columns)
    lower = jnp.tril(factors[..., :, :least], -1) + jnp.eye(rows, least, dtype=factors.dtype)
    return lower, jnp.triu(factors[..., :least, :])


def _order(exchanged: Any, rows: int) -> Any:
    """The order of rows after the exchanges that LAPACK counts from one."""
    return lax.linalg.lu_pivots_to_permutation(exchanged.astype(jnp.int32) - 1, rows)


def _permutation(order: Any, dtype: Any) -> Any:
    return jnp.swapaxes(jax.nn.one_hot(order, order.shape[-1], dtype=dtype), -1, -2)


def _lu_unpack(factors: Any, exchanged: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    empty = jnp.zeros((0,), factors.dtype)
    order = _order(exchanged, factors.shape[-2])
    permutation = _permutation(order, factors.dtype) if unpack_pivots else empty
    return (permutation, *(_unpacked(factors) if unpack_data else (empty, empty)))


def _whole_lu(a: Any, *, pivot: bool = True) -> tuple[Any, Any, Any]:
    factors, _, order = _lu(a, pivot)
    return (_permutation(order, a.dtype), *_unpacked(factors))


def _lu_factor_ex(a: Any, *, pivot: bool = True, check_errors: bool = False) -> tuple[Any, Any, Any]:
    factors, exchanged, _ = _lu(a, pivot)
    return factors, exchanged, _fine(a)


def _lu_solve(factors: Any, exchanged: Any, b: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    if not left:
        return _transposed(_lu_solve(factors, exchanged, _transposed(b), adjoint=not adjoint))
    order, batch = _order(exchanged, factors.shape[-2]), jnp.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    order = jnp.broadcast_to(order, batch + order.shape[-1:])[..., None]
    b = jnp.broadcast_to(b, batch + b.shape[-2:])
    if not adjoint:
        b = jnp.take_along_axis(b, order, axis=-2)
        lower = _triangular(factors, b, upper=False, unitriangular=True)
        return _triangular(factors, lower, upper=True)
    upper = _triangular(_transposed(factors), b, upper=False)
    made = _triangular(_transposed(jnp.tril(factors)), upper, upper=True, unitriangular=True)
    return jnp.take_along_axis(made, jnp.argsort(order, axis=-2), axis=-2)


def _solve_ex(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> tuple[Any, ...]:
    factors, exchanged, _ = _lu(a)
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    made = _lu_solve(factors, exchanged, b[..., None] if vector else b, left=left or vector)
    return made[..., 0] if vector else made, factors, exchanged, _fine(a)


def _inverse_ex(a: Any, *, check_errors: bool = False) -> tuple[Any, Any]:
    return jnp.linalg.inv(a), _fine(a)


def _qr(a: Any, mode: str = "reduced") -> tuple[Any, Any]:
    if mode == "r":
        return jnp.zeros((0,), a.dtype), jnp.linalg.qr(a, mode="r")
    made = jnp.linalg.qr(a, mode=mode)
    return made[0], made[1]


def _reflections(a: Any) -> tuple[Any, Any]:
    """LAPACK's form of a QR factorisation: R with the reflections below it, and their factors."""
    made, factors = jnp.linalg.qr(a, mode="raw")
    return jnp.swapaxes(made, -1, -2), factors


def _svd(a: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    if not compute_uv:
        empty = jnp.zeros((0,), a.dtype)
        return empty, jnp.linalg.svd(a, compute_uv=False), empty
    return tuple(jnp.linalg.svd(a, full_matrices=full_matrices))


def _eigh(a: Any, UPLO: str = "L", compute_v: bool = True) -> tuple[Any, Any]:  # PyTorch's name
    half = jnp.tril(a) if UPLO == "L" else _transposed(jnp.triu(a))
    whole = half + _transposed(jnp.tril(half, -1))
    values, vectors = jnp.linalg.eigh(whole, symmetrize_input=False)[:2]
    return values, vectors if compute_v else jnp.zeros((0,), a.dtype)


def _householder(a: Any, factors: Any) -> Any:
    return lax.linalg.householder_product(a, factors)


def _reciprocals(values: Any, atol: Any, rtol: Any, a: Any) -> Any:
    """1 / value for what is above the bound, and 0 below."""
    size = jnp.abs(values)
    top = jnp.max(size, axis=-1, keepdims=True, initial=0)
    default = 0.0 if atol is not None else max(a.shape[-2:]) * float(jnp.finfo(a.dtype).eps)
    low = jnp.asarray(0.0 if atol is None else atol)[..., None]
    bound = jnp.maximum(low, jnp.asarray(default if rtol is None else rtol)[..., None] * top)
    kept = size > bound
    return jnp.where(kept, 1 / jnp.where(kept, values, 1), 0).astype(values.dtype)


def _pseudo_inverse(a: Any, bound: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    rtol = bound if rtol is None else rtol
    if not a.size:
        return jnp.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    if hermitian:
        values, vectors = _eigh(a)
        return (vectors * _reciprocals(values, atol, rtol, a)[..., None, :]) @ _transposed(vectors)
    left, values, right = jnp.linalg.svd(a, full_matrices=False)
    return (_transposed(right) * _reciprocals(values, atol, rtol, a)[..., None, :]) @ _transposed(left)


def _double(a: Any) -> Any:
    """In 64 bits: squaring many times loses too many digits in 32."""
    return a.astype(jnp.complex128 if jnp.iscomplexobj(a) else jnp.float64)


def _exponential(a: Any) -> Any:
    rows = jax.vmap(jax.scipy.linalg.expm)(_double(a).reshape(-1, *a.shape[-2:])) if a.size else a
    return rows.reshape(a.shape).astype(a.dtype)


_TABLE: dict[str, Row] = {
    "cholesky": _cholesky,
    "cholesky_solve": _cholesky_solve,
    "cholesky_inverse": lambda factor, upper=False: _cholesky_solve(
        jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape), factor, upper
    ),
    "linalg_cholesky_ex": _cholesky_ex,
    "linalg_solve_triangular": _triangular,
    "triangular_solve": lambda b, a, upper=True, transpose=False, unitriangular=False: (
        _triangular(a, b, upper=upper, unitriangular=unitriangular, transpose=transpose),
        jnp.broadcast_to(a, jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + a.shape[-2:]),
    ),
    "linalg_lu": _whole_lu,
    "linalg_lu_factor_ex": _lu_factor_ex,
    "linalg_lu_solve": _lu_solve,
    "lu_unpack": _lu_unpack,
    "_linalg_solve_ex": _solve_ex,
    "linalg_inv_ex": _inverse_ex,
    "linalg_qr": _qr,
    "geqrf": _reflections,
    "ormqr": lambda a, factors, b, left=True, transpose=False: lax.linalg.ormqr(
        a, factors, b, left=left, transpose=transpose
    ),
    "_linalg_svd": _svd,
    "_linalg_eigh": _eigh,
    "linalg_eig": lambda a: tuple(jnp.linalg.eig(a)),
    "_linalg_eigvals": jnp.linalg.eigvals,
    "linalg_householder_product": _householder,
    "linalg_pinv": _pseudo_inverse,
    "linalg_matrix_exp": _exponential,
    "_linalg_check_errors": lambda *_, **__: None,
}

#: The rows of this family.
ROWS: Mapping[str, Row] = {f"aten.{k}": f for k, f in _TABLE.items()}
