"""QR and singular values of matrices whose rows are split, against LAPACK's of the whole matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from partition_support import collectives, run_partitioned

import shardc
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.partitioner.report import build_report

Array = np.ndarray[Any, Any]

LINE, GRID, ODD = Mesh({"x": 8}), Mesh({"x": 2, "y": 4}), Mesh({"x": 3, "y": 2})
#: Dimensions, mesh, and axes of the rows; of the batch as well where there is one.
SPLITS: dict[str, tuple[tuple[int, ...], Mesh, Any]] = {
    "even": ((512, 8), LINE, shardc.P("x")),
    "uneven": ((500, 7), LINE, shardc.P("x")),
    "short last shards": ((33, 3), LINE, shardc.P("x")),
    "one column": ((9, 1), LINE, shardc.P("x")),
    "two axes": ((509, 8), ODD, shardc.P(("y", "x"))),
    "one axis of two": ((300, 5), GRID, shardc.P("y")),
    "split batch": ((2, 200, 5), GRID, shardc.P("x", "y")),
    "whole batch": ((3, 96, 2), LINE, shardc.P(None, "x")),
    "shards lower than wide": ((150, 16), LINE, shardc.P("x")),
}
TYPES = ("float32", "float64", "complex64", "complex128")
#: Errors in units of the type's epsilon, relative to the largest element.
BOUND = 40


def numbers(dtype: str, *dims: int) -> Array:
    rng = np.random.default_rng(0)
    a = rng.standard_normal(dims)
    return (a + 1j * rng.standard_normal(dims) if dtype.startswith("c") else a).astype(dtype)


def propagated(function: Callable[..., Any], a: Array, mesh: Mesh, spec: Any) -> Module:
    return shardc.trace(function, a, mesh=mesh, in_shardings=(spec,)).propagate().module


def assert_close(got: Array, want: Array) -> None:
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert abs(got - want).max(initial=0) <= BOUND * np.finfo(got.dtype).eps * max(1, abs(want).max(initial=0))


def assert_unitary(q: Array) -> None:
    assert_close(
        np.swapaxes(q.conj(), -1, -2) @ q,
        np.broadcast_to(np.eye(q.shape[-1], dtype=q.dtype), (*q.shape[:-2], q.shape[-1], q.shape[-1])),
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("split", SPLITS)
def test_qr_is_lapacks(split: str, dtype: str) -> None:
    """Signs included, and R alone as well."""
    dims, mesh, spec = SPLITS[split]
    a = numbers(dtype, *dims)
    local, (q, r) = run_partitioned(propagated(np.linalg.qr, a, mesh, spec), [a])
    assert_unitary(q)
    assert_close(q @ r, a)
    for got, want in zip((q, r), np.linalg.qr(a), strict=True):
        assert_close(got, want)
    whole = [i for i in local.instructions() if i.opcode == "all-gather" and i.shape.dims == dims]
    assert not whole or dims[0] < 8 * dims[1]
    (r,) = run_partitioned(propagated(lambda a: np.linalg.qr(a, mode="r"), a, mesh, spec), [a])[1]
    assert_close(r, np.linalg.qr(a, mode="r"))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("split", SPLITS)
def test_singular_values_are_lapacks(split: str, dtype: str) -> None:
    dims, mesh, spec = SPLITS[split]
    a = numbers(dtype, *dims)
    module = propagated(lambda a: np.linalg.svd(a, full_matrices=False), a, mesh, spec)
    local, (u, s, vh) = run_partitioned(module, [a])
    assert_close(s, np.linalg.svd(a, compute_uv=False))
    assert_close((u * s[..., None, :]) @ vh, a)
    assert_unitary(u)
    assert_unitary(np.swapaxes(vh, -1, -2))
    assert all(i.shape.dims != dims for i in local.instructions() if i.opcode == "all-gather")
    (values,) = run_partitioned(propagated(np.linalg.svdvals, a, mesh, spec), [a])[1]
    assert_close(values, s)


@pytest.mark.parametrize("kind", ["zero", "equal columns", "zero shards", "triangular"])
@pytest.mark.parametrize("rows", [24, 40, 47, 33])
def test_dependent_columns_have_an_orthonormal_q(kind: str, rows: int) -> None:
    """Shards of as many rows as columns, of more, uneven ones, and some that are too low for a tree."""
    a = numbers("float64", rows, 3)
    if kind == "zero":
        a[:] = 0
    elif kind == "equal columns":
        a[:, 1] = a[:, 0]
    elif kind == "zero shards":
        a[: rows // 2] = 0
    else:
        a = np.triu(a)
    _, (q, r) = run_partitioned(propagated(np.linalg.qr, a, LINE, shardc.P("x")), [a])
    assert_unitary(q)
    assert_close(q @ r, a)
    np.testing.assert_array_equal(np.tril(r, -1), 0)
    if kind != "equal columns":  # else the last columns are rounding errors
        assert_close(r, np.linalg.qr(a).R)


@pytest.mark.parametrize("rows", [80, 400, 403])
def test_columns_of_very_different_size_keep_their_precision(rows: int) -> None:
    """Products of columns with each other (Cholesky QR) would lose what TSQR keeps."""
    a = numbers("float64", rows, 6) @ np.diag(10.0 ** -np.arange(0, 30, 5)) + 1e-3
    _, (q, r) = run_partitioned(propagated(np.linalg.qr, a, LINE, shardc.P("x")), [a])
    assert_unitary(q)
    assert_close(q @ r, a)


def test_tall_qr_sends_little() -> None:
    """Of 4096 by 32 over 8: three gathers of R, the first rows, and products of reflections."""
    a = numbers("float32", 4096, 32)
    local, _ = run_partitioned(propagated(np.linalg.qr, a, LINE, shardc.P("x")), [a])
    report = build_report(local)
    assert report["wire_bytes"] == 37376 < 64 * 1024
    assert max(i.shape.size for i in local.instructions() if i.opcode == "all-gather") == 64 * 32
    gathers = [c for c in report["collectives"] if c["op"] == "all-gather"]
    assert {c["reason"].partition(": ")[2] for c in gathers} == {"neighbours exchange R, and all get the first rows"}


def test_whole_bases_are_gathered() -> None:
    """A square matrix of left vectors is no product of the rows that a device has."""
    a = numbers("float64", 64, 4)
    local, (u, s, vh) = run_partitioned(propagated(np.linalg.svd, a, LINE, shardc.P("x")), [a])
    assert collectives(local) == ["all-gather"]
    assert_unitary(u)
    assert_close((u[:, :4] * s) @ vh, a)


def test_wide_matrices_are_gathered() -> None:
    a = numbers("float64", 8, 16)
    local, (q, r) = run_partitioned(propagated(np.linalg.qr, a, LINE, shardc.P("x")), [a])
    assert collectives(local) == ["all-gather"]
    assert_close(q @ r, a)
