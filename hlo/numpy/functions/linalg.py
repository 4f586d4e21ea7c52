"""``np.linalg``: factorisations by the custom calls that JAX uses for LAPACK, and what follows from them.

Where NumPy raises LinAlgError (a singular matrix, one that is not positive definite) a compiled program gives
infinities or NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardc.hlo.ir.lapack import LAPACK, PREFIXES, column_major
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape
from shardc.hlo.numpy.control import run_while
from shardc.hlo.numpy.functions import norms
from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import broadcast, convert, emit, full, iota, lift, refuse

__all__ = ["FUNCTIONS"]

_NOTHING = NP._NoValue

#: NumPy's named tuples of results.
_QR: Any = type(np.linalg.qr(np.eye(1)))
_SVD: Any = type(np.linalg.svd(np.eye(1)))
_EIGH: Any = type(np.linalg.eigh(np.eye(1)))
_SLOGDET: Any = type(np.linalg.slogdet(np.eye(1)))


def _matrix(recorder: Trace, a: Any, square: bool = True) -> Tracer:
    """A stack of matrices in a type that LAPACK has; NumPy's own errors for others."""
    x = lift(recorder, a)
    if x.ndim < 2:
        raise np.linalg.LinAlgError(f"{x.ndim}-dimensional array given. Array must be at least two-dimensional")
    if square and x.shape[-1] != x.shape[-2]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    if x.aval.dtype.name in PREFIXES:
        return x
    if x.aval.dtype.is_float:
        raise TypeError(f"array type {x.dtype} is unsupported in linalg")
    return convert(x, np.float64)


def _lapack(routine: str, operands: list[Tracer], results: list[Shape], attributes: str = "") -> list[Tracer]:
    """One of LAPACK's routines on stacks of matrices; ``results`` as `shardc.hlo.ir.lapack` lists them."""
    target = f"lapack_{PREFIXES[operands[0].aval.dtype.name]}{routine}_ffi"
    known = LAPACK[target]
    shapes = [column_major(s, letters) for s, letters in zip(results, known.results, strict=True)]
    constraints = [column_major(o.aval, letters) for o, letters in zip(operands, known.operands, strict=True)]
    made = emit(
        "custom-call",
        *operands,
        shape=shapes[0] if len(shapes) == 1 else tuple_shape(*shapes),
        custom_call_target=target,
        operand_layout_constraints=tuple(constraints),
        backend_config="{" + attributes + "}",
        api_version="API_VERSION_TYPED_FFI",
    )
    if len(shapes) == 1:
        return [made]
    return [emit("get-tuple-element", made, index=k) for k in range(len(shapes))]


def _letter(name: str, letter: str) -> str:
    return f"{name} = {ord(letter)} : ui8"


def _real(x: Tracer) -> str:
    return "f32" if x.aval.dtype.name in ("f32", "c64") else "f64"


def _adjoint(x: Tracer) -> Any:
    turned = NP.swapaxes(x, -1, -2)
    return NP.conjugate(turned) if x.aval.dtype.is_complex else turned


# Cholesky, QR, and linear systems.


def _cholesky(recorder: Trace, a: Any, /, *, upper: bool = False) -> Any:
    x = _matrix(recorder, a)
    lower = (
        NP.tril(emit("cholesky", x, lower=True)) if not upper else NP.tril(emit("cholesky", _adjoint(x), lower=True))
    )
    return _adjoint(lower) if upper else lower


def _qr_factors(x: Tracer, complete: bool) -> tuple[Any, Any]:
    m, n = x.shape[-2:]
    lead, k = x.shape[:-2], min(m, n)
    packed, tau = _lapack("geqrf", [x], [x.aval.plain, array_shape(x.aval.dtype, *lead, k)])
    width = m if complete else k
    columns = packed[..., : min(n, width)]
    if width > columns.shape[-1]:
        columns = NP.pad(columns, [(0, 0)] * (x.ndim - 1) + [(0, width - columns.shape[-1])])
    build = "ungqr" if x.aval.dtype.is_complex else "orgqr"
    (q,) = _lapack(build, [columns, tau], [array_shape(x.aval.dtype, *lead, m, width)])
    return q, NP.triu(packed[..., :width, :])


def _qr(recorder: Trace, a: Any, mode: str = "reduced") -> Any:
    x = _matrix(recorder, a, square=False)
    if mode not in ("reduced", "complete", "r"):
        refuse(recorder, f"np.linalg.qr(mode={mode!r})", "use mode reduced, complete or r")
    q, r = _qr_factors(x, mode == "complete")
    return r if mode == "r" else _QR(q, r)


def _triangular(a: Any, b: Any, *, lower: bool, unit: bool = False) -> Any:
    """``x`` with ``a x = b`` of a triangular ``a``."""
    turned = "NO_TRANSPOSE"
    return emit("triangular-solve", a, b, left_side=True, lower=lower, unit_diagonal=unit, transpose_a=turned)


def _solve(recorder: Trace, a: Any, b: Any) -> Any:
    """One matrix with few right-hand sides by LU, as NumPy does; else by QR, which is as stable and has no pivots."""
    x, y = _matrix(recorder, a), lift(recorder, b)
    dtype = np.result_type(x.dtype, y.dtype)
    x, y = convert(x, dtype), convert(y, dtype)
    vector = y.ndim == 1
    right = y[:, None] if vector else y
    if right.ndim < 2 or right.shape[-2] != x.shape[-1]:
        raise ValueError(f"solve: the matrix {x.shape} and the right-hand side {y.shape} do not fit")
    lead = np.broadcast_shapes(x.shape[:-2], right.shape[:-2])
    x, right = broadcast(x, (*lead, *x.shape[-2:])), broadcast(right, (*lead, *right.shape[-2:]))
    if not right.size:
        made = right
    elif not lead and 2 * right.shape[1] <= x.shape[0]:
        packed, pivots, _ = _lu_factors(x)
        made = _triangular(packed, right[_row_order(recorder, pivots)], lower=True, unit=True)
        made = _triangular(packed, made, lower=False)
    else:
        q, r = _qr_factors(x, False)
        made = _triangular(r, NP.matmul(_adjoint(q), right), lower=False)
    return made[..., 0] if vector else made


def _lu_factors(x: Tracer) -> list[Tracer]:
    """L and U in one array, the (one-based) pivots, and the column that fails."""
    n, lead = x.shape[-1], x.shape[:-2]
    return _lapack("getrf", [x], [x.aval.plain, array_shape("s32", *lead, n), array_shape("s32", *lead)])


def _row_order(recorder: Trace, pivots: Any) -> Any:
    """Where each row comes from when rows 0, 1, ... change places with the pivots, one after the other."""

    def swap(state: Any) -> Any:
        number, order = state
        other = pivots[number] - 1
        for place, row in ((number, order[other]), (other, order[number])):
            order = emit("dynamic-update-slice", order, NP.reshape(row, (1,)), place)
        return number + 1, order

    n = pivots.shape[0]
    start = (full(pivots, (), 0, np.int32), iota(pivots, (n,), 0, np.int32))
    return run_while(recorder, "np.linalg.solve", start, lambda state: state[0] < n, swap, ("number", "order"))[1]


def _inv(recorder: Trace, a: Any) -> Any:
    x = _matrix(recorder, a)
    return _solve(recorder, x, NP.eye(x.shape[-1], dtype=x.dtype, like=x))


def _lu_diagonal(x: Tracer) -> tuple[Any, Any]:
    """The diagonal of U, and 1 or -1 for the permutation."""
    packed, pivots, _ = _lu_factors(x)
    dims = pivots.shape
    own = emit("add", iota(x, dims, len(dims) - 1, np.int32), full(x, dims, 1, np.int32))
    moved = NP.sum(NP.not_equal(pivots, own), axis=-1)
    return NP.diagonal(packed, axis1=-2, axis2=-1), NP.where(moved % 2 == 0, 1, -1)


def _det(recorder: Trace, a: Any) -> Any:
    x = _matrix(recorder, a)
    diagonal, sign = _lu_diagonal(x)
    return NP.prod(diagonal, axis=-1) * convert(sign, x.dtype)


def _slogdet(recorder: Trace, a: Any) -> Any:
    x = _matrix(recorder, a)
    diagonal, sign = _lu_diagonal(x)
    size = NP.absolute(diagonal)
    phase = NP.prod(NP.sign(diagonal), axis=-1) * convert(sign, x.dtype)
    return _SLOGDET(phase, NP.sum(NP.log(size), axis=-1))


# Singular values and eigenvalues.


def _svd_parts(x: Tracer, mode: str) -> tuple[Any, Any, Any]:
    m, n = x.shape[-2:]
    lead, k, dtype = x.shape[:-2], min(m, n), x.aval.dtype
    left, right = (m, n) if mode == "A" else (k, k)
    results = [
        x.aval.plain,
        array_shape(_real(x), *lead, k),
        array_shape(dtype, *lead, m, left),
        array_shape(dtype, *lead, right, n),
        array_shape("s32", *lead),
    ]
    _, s, u, vh, info = _lapack("gesdd", [x], results, _letter("mode", mode))
    return _where_found(info, u, 2), _where_found(info, s, 1), _where_found(info, vh, 2)


def _where_found(info: Tracer, made: Tracer, rank: int) -> Any:
    """NaN where LAPACK reports that it found nothing, and may have left ``made`` as it was: matrices with NaN."""
    found = NP.reshape(NP.equal(info, 0), (*info.shape, *(1,) * rank))
    return NP.where(found, made, made.dtype.type(np.nan))


def _svd(recorder: Trace, a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    x = _matrix(recorder, a, square=False)
    if hermitian:
        refuse(recorder, "np.linalg.svd(hermitian=True)", "leave it out, or use np.linalg.eigh")
    if not compute_uv:
        return _svd_parts(x, "N")[1]
    return _SVD(*_svd_parts(x, "A" if full_matrices else "S"))


def _svdvals(recorder: Trace, x: Any, /) -> Any:
    return _svd(recorder, x, compute_uv=False)


def _eigh_parts(recorder: Trace, a: Any, uplo: str, vectors: bool) -> tuple[Any, Any]:
    x = _matrix(recorder, a)
    if uplo.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    lead = x.shape[:-2]
    routine = "heevd" if x.aval.dtype.is_complex else "syevd"
    results = [x.aval.plain, array_shape(_real(x), *lead, x.shape[-1]), array_shape("s32", *lead)]
    options = f"{_letter('mode', 'V' if vectors else 'N')}, {_letter('uplo', uplo.upper())}"
    v, w, _ = _lapack(routine, [x], results, options)
    return w, v


def _eigh(recorder: Trace, a: Any, UPLO: str = "L") -> Any:
    return _EIGH(*_eigh_parts(recorder, a, UPLO, True))


def _eigvalsh(recorder: Trace, a: Any, UPLO: str = "L") -> Any:
    return _eigh_parts(recorder, a, UPLO, False)[0]


def _eig(recorder: Trace, a: Any) -> Any:
    refuse(
        recorder,
        "np.linalg.eig: whether its result is real or complex depends on values",
        "use np.linalg.eigh or eigvalsh for symmetric matrices, np.linalg.svd for others",
    )


def _pinv(recorder: Trace, a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = _NOTHING) -> Any:
    x = _matrix(recorder, a, square=False)
    u, s, vh = _svd_parts(x, "S")
    if rtol is None:
        rtol = max(x.shape[-2:]) * np.finfo(x.dtype).eps
    cut = next((v for v in (rtol, rcond) if v is not None and v is not _NOTHING), 1e-15)
    keep = NP.greater(s, cut * NP.max(s, axis=-1, keepdims=True))
    inverse = NP.where(keep, 1 / NP.where(keep, s, 1), 0)
    return NP.matmul(_adjoint(vh), inverse[..., None] * _adjoint(u))


def _matrix_rank(recorder: Trace, A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    x = lift(recorder, A)
    if x.ndim < 2:
        return convert(NP.any(NP.not_equal(x, 0)), np.int64)
    x = _matrix(recorder, x, square=False)
    s = _svd_parts(x, "N")[1]
    factor = max(x.shape[-2:]) * np.finfo(s.dtype).eps if rtol is None else rtol
    limit = NP.max(s, axis=-1, keepdims=True) * factor if tol is None else lift(recorder, tol)[..., None]
    return NP.sum(NP.greater(s, limit), axis=-1)


def _cond(recorder: Trace, x: Any, p: Any = None) -> Any:
    value = _matrix(recorder, x, square=False)
    if p in (None, 2, -2):
        s = _svd_parts(value, "N")[1]
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    inverse = _inv(recorder, value)
    sizes = [NP.linalg.norm(v, p, axis=(-2, -1)) for v in (value, inverse)]
    return sizes[0] * sizes[1]


def _lstsq(recorder: Trace, a: Any, b: Any, rcond: Any = None) -> Any:
    refuse(
        recorder,
        "np.linalg.lstsq: the shape of its residuals depends on values",
        "use np.linalg.pinv(a) @ b, or np.linalg.qr and np.linalg.solve",
    )


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **norms.FUNCTIONS,
    "linalg.cholesky": _cholesky,
    "linalg.qr": _qr,
    "linalg.solve": _solve,
    "linalg.inv": _inv,
    "linalg.det": _det,
    "linalg.slogdet": _slogdet,
    "linalg.svd": _svd,
    "linalg.svdvals": _svdvals,
    "linalg.eigh": _eigh,
    "linalg.eigvalsh": _eigvalsh,
    "linalg.eig": _eig,
    "linalg.eigvals": _eig,
    "linalg.pinv": _pinv,
    "linalg.matrix_rank": _matrix_rank,
    "linalg.cond": _cond,
    "linalg.lstsq": _lstsq,
}
