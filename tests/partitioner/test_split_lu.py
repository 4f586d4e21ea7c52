"""LU of split rows: LAPACK's pivots, valid factors, and what is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from partition_support import layout, run_partitioned, with_shardings

import shardc
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.lapack import PREFIXES
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.partitioner.report import build_report

Array = np.ndarray[Any, Any]


def factorisation(n: int, dtype: str, mesh: Mesh) -> Module:
    b = Builder("main")
    x = b.parameter(array_shape(dtype, n, n))
    shape = tuple_shape(x.shape, array_shape("s32", n), array_shape("s32"))
    target = f"lapack_{PREFIXES[dtype]}getrf_ffi"
    root = b.build(b.add("custom-call", x, shape=shape, custom_call_target=target, backend_config="{}"))
    rows, axes = layout(mesh, tuple(mesh.axis_names), None), {1: layout(mesh, None), 0: layout(mesh)}
    return with_shardings(root, mesh, lambda i: axes.get(i.shape.rank, rows))


def numbers(module: Module) -> Array:
    shape, rng = module.parameters[0].shape, np.random.default_rng(0)
    a = rng.standard_normal(shape.dims)
    full = a + 1j * rng.standard_normal(shape.dims) if shape.dtype.is_complex else a
    made: Array = full.astype(shape.dtype.numpy)
    return made


def swapped(a: Array, pivots: Array) -> Array:
    a = a.copy()
    for k, p in enumerate(pivots):
        a[[k, p - 1]] = a[[p - 1, k]]
    return a


@pytest.mark.parametrize("dtype", PREFIXES)
@pytest.mark.parametrize(
    ("n", "mesh"), [(256, Mesh({"x": 8})), (300, Mesh({"x": 8})), (384, Mesh({"x": 3, "y": 4})), (380, Mesh({"x": 8}))]
)
def test_pivots_are_lapacks(n: int, mesh: Mesh, dtype: str) -> None:
    module = factorisation(n, dtype, mesh)
    a = numbers(module)
    local, (packed, pivots, failed) = run_partitioned(module, [a])
    np.testing.assert_array_equal(pivots, evaluate(module, [a])[1])
    assert failed == 0
    product = (np.tril(packed, -1) + np.eye(n)) @ np.triu(packed)
    error = abs(product - swapped(a, pivots)).max()
    assert error <= 40 * np.finfo(a.dtype).eps * abs(np.triu(packed)).max()
    gathers = [i for i in local.instructions() if i.opcode == "all-gather"]
    assert len(gathers) == 4 and max(i.shape.size for i in gathers) < n * n / 4


@pytest.mark.parametrize("at", [0, 100, 255])
def test_the_column_that_fails_is_counted(at: int) -> None:
    """A zero column has no pivot, and the rest is factored."""
    module = factorisation(256, "f64", Mesh({"x": 8}))
    a = numbers(module)
    a[:, at] = 0
    _, (packed, pivots, failed) = run_partitioned(module, [a])
    want = evaluate(module, [a])
    assert failed == want[2] == at + 1
    np.testing.assert_array_equal(pivots, want[1])
    np.testing.assert_allclose(packed, want[0], atol=1e-10)


def test_lu_sends_less_than_a_gather() -> None:
    """Two exchanges of rows with columns, and panels whose first rows are left out."""
    n, k = 512, 8
    local, _ = run_partitioned(module := factorisation(n, "f32", Mesh({"x": k})), [numbers(module)])
    report = build_report(local)
    shard = 4 * n * n // k
    assert report["wire_bytes"] == (k - 1) * (shard * 5 // 8 + 2 * shard // k) < (k - 1) * shard
    assert "a panel of columns is gathered" in report["collectives"][0]["reason"]


def test_few_devices_gather() -> None:
    local, _ = run_partitioned(module := factorisation(256, "f32", Mesh({"x": 4})), [numbers(module)])
    assert [i.shape.dims for i in local.instructions() if i.opcode == "all-gather"] == [(256, 256)]


def test_systems_of_split_rows_are_solved_without_a_gather_of_the_matrix() -> None:
    """NumPy's ``solve``, by LU and two substitutions."""
    n, mesh, rng = 512, Mesh({"x": 8}), np.random.default_rng(0)
    a, b = rng.standard_normal((n, n)), rng.standard_normal((n, 2))
    rows = (shardc.P("x"), shardc.P("x"))
    program = shardc.trace(np.linalg.solve, a, b, mesh=mesh, in_shardings=rows).propagate()
    local, (x,) = run_partitioned(program.module, [a, b])
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-9, atol=1e-10)
    assert max(i.shape.size for i in local.instructions() if i.shape.is_array) <= n * n / 2
    assert build_report(local)["wire_bytes"] < a.nbytes * 7 / 8
