"""Cholesky factors of split columns, and so of the upper triangles of split rows, against those of the whole matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from partition_support import collectives, layout, run_partitioned, with_shardings

import shardc
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.partitioner.report import build_report

Array = np.ndarray[Any, Any]

LINE, GRID = Mesh({"x": 8}), Mesh({"x": 3, "y": 4})
#: Errors in units of the type's epsilon, relative to the largest element.
BOUND = 40


def positive(dtype: str, n: int) -> Array:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((n, n))
    a = a + 1j * rng.standard_normal((n, n)) if dtype.startswith("c") else a
    made: Array = (a @ a.conj().T + np.eye(n)).astype(dtype)
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(
    ("n", "mesh", "spec"), [(256, LINE, shardc.P("x")), (300, LINE, shardc.P("x")), (389, GRID, shardc.P(("y", "x")))]
)
def test_upper_factors_of_split_rows(n: int, mesh: Mesh, spec: Any, dtype: str) -> None:
    """The other triangle is not read."""
    a = positive(dtype, n)
    want = np.linalg.cholesky(a).conj().T
    given = np.where(np.triu(np.ones((n, n), bool)), a, np.nan).astype(dtype)
    traced = shardc.trace(lambda a: np.linalg.cholesky(a, upper=True), given, mesh=mesh, in_shardings=(spec,))
    local, (got,) = run_partitioned(traced.propagate().module, [given])
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert abs(got - want).max() <= BOUND * np.finfo(dtype).eps * abs(want).max()
    assert max(i.shape.size for i in local.instructions() if i.shape.is_array) < n * n


def test_an_upper_factor_sends_less_than_a_gather() -> None:
    a = positive("float32", 512)
    for f in (lambda a: np.linalg.cholesky(a, upper=True), lambda a: np.linalg.cholesky(a.T).T):
        traced = shardc.trace(f, a, mesh=LINE, in_shardings=(shardc.P("x"),))
        report = build_report(run_partitioned(traced.propagate().module, [a])[0])
        assert report["wire_bytes"] == a.nbytes * 7 // 8 * 7 // 8
        assert "a panel of columns is gathered" in report["collectives"][0]["reason"]


@pytest.mark.parametrize("at", [None, 0, 153, 255])
def test_lapacks_cholesky_counts_the_row_that_fails(at: int | None) -> None:
    """And leaves what is above the diagonal."""
    b = Builder("main")
    x = b.parameter(array_shape("f64", 256, 256))
    shape = tuple_shape(x.shape, array_shape("s32"))
    attrs = {"custom_call_target": "lapack_dpotrf_ffi", "backend_config": "{uplo = 76 : ui8}"}
    root = b.build(b.add("custom-call", x, shape=shape, **attrs))
    module = with_shardings(root, LINE, lambda i: layout(LINE, *((None, "x") if i.shape.rank else ())))
    a = positive("float64", 256)
    if at is not None:
        a[at, at] = -1
    local, (got, info) = run_partitioned(module, [a])
    want, failed = evaluate(module, [a])
    assert info == failed == (0 if at is None else at + 1)
    assert collectives(local).count("all-gather") == 4
    if at is None:
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
