"""Eigenvalues and eigenvectors of Hermitian matrices of split rows, against LAPACK's of the whole matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from partition_support import collectives

import shardc
from shardc import Mesh, P

Array = np.ndarray[Any, Any]

LINE, GRID = Mesh({"x": 4}), Mesh({"x": 2, "y": 4})
#: Errors in units of the type's epsilon: of eigenvalues and A V - V diag(w) relative to the norm, of V^H V itself.
BOUND = 200


def hermitian(dtype: str, n: int, values: Array | None = None) -> Array:
    """A random matrix, or one with these eigenvalues."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((n, n))
    if dtype.startswith("c"):
        a = a + 1j * rng.standard_normal((n, n))
    if values is not None:
        q = np.linalg.qr(a)[0]
        a = (q * values) @ q.conj().T
    made: Array = ((a + a.conj().T) / 2).astype(dtype)
    return made


def partitioned(function: Callable[..., Any], a: Array, mesh: Mesh, spec: Any, **how: Any) -> Any:
    """In less memory than whole matrices take, unless told otherwise."""
    how = how or {"memory": (2.4 if mesh.size == 2 else 2.15) * a.nbytes}
    return shardc.trace(function, a, mesh=mesh, in_shardings=(spec,)).propagate().partition(**how)


def assert_eigen(a: Array, w: Array, v: Array) -> None:
    double = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
    want, eps = np.linalg.eigvalsh(double), np.finfo(w.dtype).eps
    norm = abs(want).max() or 1
    assert (w.dtype, v.dtype, w.shape, v.shape) == (a.real.dtype, a.dtype, want.shape, a.shape)
    assert (np.diff(w) >= 0).all()
    assert abs(w - want).max() <= BOUND * eps * norm
    assert abs(double @ v - v * w).max() <= BOUND * eps * norm
    assert abs(v.conj().T @ v - np.eye(len(a))).max() <= BOUND * eps


def assert_split(program: Any, n: int) -> None:
    """Blocks go round, and nobody has the whole matrix."""
    assert "collective-permute" in collectives(program.module)
    assert max(i.shape.size for i in program.module.instructions() if i.shape.is_array) < n * n


@pytest.mark.parametrize(
    ("n", "mesh", "spec", "dtype"),
    [
        *((256, LINE, P("x"), dtype) for dtype in ("float32", "float64", "complex64", "complex128")),
        (262, Mesh({"x": 2}), P("x"), "float32"),
        (259, GRID, P(("y", "x")), "float64"),
        (290, Mesh({"x": 3}), P("x"), "complex128"),
        (256, GRID, P("y"), "float32"),
    ],
)
def test_eigenvectors_of_split_rows(n: int, mesh: Mesh, spec: Any, dtype: str) -> None:
    a = hermitian(dtype, n)
    program = partitioned(np.linalg.eigh, a, mesh, spec)
    assert_split(program, n)
    w, v = program.compile()(a)
    assert v.sharding == program.module.parameters[0].sharding
    assert_eigen(a, np.asarray(w), np.asarray(v))


N = 256
#: Eigenvalues by what is difficult about them.
SPECTRA: dict[str, Array] = {
    "repeated": np.repeat([1.0, -1.0, 2.0, 3.0], N // 4),
    "ill-conditioned": np.logspace(0, -14, N),
    "all equal": np.full(N, -3.0),
    "opposite pairs": np.concatenate([np.arange(1.0, N // 2 + 1), -np.arange(1.0, N // 2 + 1)]),
    "rank one": np.eye(1, N)[0],
    "nearly singular": np.concatenate([np.full(N - 1, 1e-9), [1.0]]),
    "huge": 1e30 * np.linspace(-1, 1, N),
    "tiny": 1e-30 * np.linspace(-1, 1, N),
    "zero": np.zeros(N),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_difficult_eigenvalues(name: str) -> None:
    a = hermitian("float64" if name in ("repeated", "ill-conditioned") else "float32", N, SPECTRA[name])
    w, v = partitioned(np.linalg.eigh, a, LINE, P("x")).compile()(a)
    assert_eigen(a, np.asarray(w), np.asarray(v))


def test_the_other_triangle_is_not_read() -> None:
    a = hermitian("complex64", 256)
    for uplo, triangle in (("L", np.tril(a)), ("U", np.triu(a))):
        given = np.where(triangle == 0, np.nan, triangle).astype(a.dtype)
        program = partitioned(lambda a, uplo=uplo: np.linalg.eigh(a, UPLO=uplo), given, LINE, P("x"))
        assert_split(program, 256)
        w, v = program.compile()(given)
        assert_eigen(a, np.asarray(w), np.asarray(v))


def test_what_is_not_finite_gives_not_a_number() -> None:
    """And no loop without an end."""
    a = hermitian("float32", 256)
    a[3, 5] = a[5, 3] = np.nan
    w, v = partitioned(np.linalg.eigh, a, LINE, P("x")).compile()(a)
    assert np.isnan(np.asarray(w)).all()
    assert np.isnan(np.asarray(v)).all()


def test_eigenvalues_alone_need_no_vectors() -> None:
    a = hermitian("float64", 256)
    program = partitioned(np.linalg.eigvalsh, a, LINE, P("x"), memory=2 * a.nbytes)
    assert_split(program, 256)
    np.testing.assert_allclose(np.asarray(program.compile()(a)), np.linalg.eigvalsh(a), atol=1e-12)


def test_a_large_matrix_is_split_where_that_takes_less_time() -> None:
    """Small ones are gathered: messages would take longer."""
    for n, split in ((1024, False), (8192, True)):
        a = np.broadcast_to(np.float32(0), (n, n))
        program = partitioned(np.linalg.eigh, a, Mesh({"x": 8}), P("x"), machine="h100-dgx")
        assert ("collective-permute" in collectives(program.module)) == split


def test_without_a_machine_or_a_limit_the_matrix_is_gathered() -> None:
    """Since a gather sends less."""
    a = hermitian("float32", 256)
    program = partitioned(np.linalg.eigh, a, LINE, P("x"), plan="auto")
    assert collectives(program.module) == ["all-gather"]
    report = partitioned(np.linalg.eigh, a, LINE, P("x")).report()
    rounds = [c for c in report["collectives"] if c["op"] == "collective-permute"]
    assert [(c["count"], c["unknown_trip_count"]) for c in rounds] == [(7 * 4, True)] * 2
    assert "until each has met all others" in rounds[0]["reason"]


#: Batches whose matrices lie whole on a device: dimensions of the batch, and how these lie.
BATCHES = [((8,), LINE, P("x")), ((7,), LINE, P("x")), ((6,), GRID, P("x")), ((4, 8), GRID, P("x", "y"))]


@pytest.mark.parametrize(("batch", "mesh", "spec"), BATCHES)
@pytest.mark.parametrize("n", [20, 256])
@pytest.mark.parametrize("plan", ["propagated", "auto"])
def test_matrices_of_a_split_batch_stay_where_they_are(
    batch: tuple[int, ...], mesh: Mesh, spec: Any, n: int, plan: str
) -> None:
    a = np.random.default_rng(1).standard_normal((*batch, n, n))
    a = (a + a.swapaxes(-1, -2)) / 2
    for function in (np.linalg.eigh, np.linalg.eigvalsh):
        program = partitioned(function, a, mesh, spec, plan=plan)
        assert collectives(program.module) == []
        found = program.compile()(a)
        values = found[0] if function is np.linalg.eigh else found
        np.testing.assert_allclose(np.asarray(values), np.linalg.eigvalsh(a), atol=1e-12 * n)
