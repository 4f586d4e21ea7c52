"""Cholesky factors and triangular systems of split matrices, against those of the whole matrix."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from partition_support import collectives, layout, run_partitioned, with_shardings

import shardc
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.partitioner.report import build_report

Array = np.ndarray[Any, Any]

LINE, GRID, ODD = Mesh({"x": 8}), Mesh({"x": 2, "y": 4}), Mesh({"x": 3, "y": 2})
TYPES = ("float32", "float64", "complex64", "complex128")
#: Errors in units of the type's epsilon, relative to the largest element.
BOUND = 40


def numbers(dtype: str, *dims: int) -> Array:
    rng = np.random.default_rng(0)
    a = rng.standard_normal(dims)
    return (a + 1j * rng.standard_normal(dims) if dtype.startswith("c") else a).astype(dtype)


def positive(dtype: str, *dims: int) -> Array:
    a = numbers(dtype, *dims)
    made: Array = (a @ np.swapaxes(a.conj(), -1, -2) + np.eye(dims[-1])).astype(dtype)
    return made


def assert_close(got: Array, want: Array) -> None:
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert abs(got - want).max(initial=0) <= BOUND * np.finfo(got.dtype).eps * max(1, abs(want).max(initial=0))


def propagated(a: Array, mesh: Mesh, spec: Any) -> Module:
    return shardc.trace(np.linalg.cholesky, a, mesh=mesh, in_shardings=(spec,)).propagate().module


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("dims", "mesh", "spec"),
    [
        ((256, 256), LINE, shardc.P("x")),
        ((259, 259), ODD, shardc.P(("y", "x"))),
        ((2, 256, 256), GRID, shardc.P("x", "y")),
        ((1, 270, 270), GRID, shardc.P(None, "y")),
    ],
)
def test_cholesky_of_split_rows(dims: tuple[int, ...], mesh: Mesh, spec: Any, dtype: str) -> None:
    a = positive(dtype, *dims)
    local, (got,) = run_partitioned(propagated(a, mesh, spec), [a])
    assert_close(got, np.linalg.cholesky(a))
    (gather,) = [i for i in local.instructions() if i.opcode == "all-gather"]
    assert gather.shape.dims[-1] < dims[-1]


def test_cholesky_has_no_whole_gather() -> None:
    """512 rows over 8: seven gathers of 64 columns, where a gather of all would be eight."""
    a = positive("float32", 512, 512)
    local, _ = run_partitioned(propagated(a, LINE, shardc.P("x")), [a])
    (gather,) = build_report(local)["collectives"]
    assert (gather["op"], gather["count"], gather["payload_bytes"]) == ("all-gather", 7, 4 * 512 * 64)
    assert gather["wire_bytes"] == 7 * 7 * 4 * 64 * 64 < 7 * 4 * 512 * 64
    assert "rows of a block of columns are gathered" in gather["reason"]


@pytest.mark.parametrize("at", [None, 0, 153, 255])
def test_lapacks_cholesky_counts_the_row_that_fails(at: int | None) -> None:
    """And leaves what is above the diagonal."""
    b = Builder("main")
    x = b.parameter(array_shape("f64", 256, 256))
    shape = tuple_shape(x.shape, array_shape("s32"))
    attrs = {"custom_call_target": "lapack_dpotrf_ffi", "backend_config": "{uplo = 76 : ui8}"}
    root = b.build(b.add("custom-call", x, shape=shape, **attrs))
    module = with_shardings(root, LINE, lambda i: layout(LINE, *(("x", None) if i.shape.rank else ())))
    a = positive("float64", 256, 256)
    if at is not None:
        a[at, at] = -1
    local, (got, info) = run_partitioned(module, [a])
    want, failed = evaluate(module, [a])
    assert info == failed == (0 if at is None else at + 1)
    assert collectives(local) == ["all-gather", "all-reduce"]
    if at is None:
        assert_close(got, want)


@pytest.mark.parametrize("dtype", ["f32", "c128"])
@pytest.mark.parametrize("n", [256, 270])
@pytest.mark.parametrize("split", [0, 1])
@pytest.mark.parametrize("left", [True, False])
def test_triangular_systems(left: bool, split: int, n: int, dtype: str) -> None:
    """The other triangle is not read, and the matrix is not sent."""
    mesh, sides = Mesh({"x": 4}), (n, 2) if left else (2, n)
    matrix = layout(mesh, *(("x", None) if split == 0 else (None, "x")))
    vectors = layout(mesh, *(("x", None) if left else (None, "x")))
    for lower, unit, op in itertools.product((True, False), (False, True), ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")):
        b = Builder("main")
        a, x = b.parameter(array_shape(dtype, n, n)), b.parameter(array_shape(dtype, *sides))
        attrs = {"left_side": left, "lower": lower, "unit_diagonal": unit, "transpose_a": op}
        root = b.build(b.add("triangular-solve", a, x, **attrs))
        module = with_shardings(root, mesh, lambda i: matrix if i.shape.dims == (n, n) else vectors)
        args = [numbers(p.shape.dtype.numpy.name, *p.shape.dims) for p in module.parameters]
        args[0] = ((args[0] + 32 * np.eye(n)) / 32).astype(args[0].dtype)
        triangle = np.tril(np.ones((n, n), bool)) if lower else np.triu(np.ones((n, n), bool))
        want = evaluate(module, args)[0]
        args[0] = np.where(triangle, args[0], np.nan).astype(args[0].dtype)
        local, (got,) = run_partitioned(module, args)
        assert_close(got, want)
        (c,) = build_report(local)["collectives"]
        assert (c["op"], c["count"]) == ("all-reduce", 3)
        assert c["wire_bytes"] == 3 * 2 * 3 / 4 * -(-n // 4) * 2 * a.shape.dtype.nbytes


@pytest.mark.parametrize(("n", "devices"), [(120, 8), (256, 32)])
def test_small_blocks_are_gathered(n: int, devices: int) -> None:
    """Loops of tiny messages would be slower than one gather."""
    a = positive("float32", n, n)
    local, (got,) = run_partitioned(propagated(a, Mesh({"x": devices}), shardc.P("x")), [a])
    assert_close(got, np.linalg.cholesky(a))
    assert [i.shape.dims for i in local.instructions() if i.opcode == "all-gather"] == [(n, n)]


def test_many_right_hand_sides_gather_the_matrix() -> None:
    mesh = Mesh({"x": 4})
    b = Builder("main")
    a, x = b.parameter(array_shape("f32", 256, 256)), b.parameter(array_shape("f32", 256, 512))
    attrs = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"}
    root = b.build(b.add("triangular-solve", a, x, **attrs))
    rows, columns = layout(mesh, "x", None), layout(mesh, None, "x")
    module = with_shardings(root, mesh, lambda i: rows if i.shape.dims == (256, 256) else columns)
    args = [numbers("float32", *p.shape.dims) for p in module.parameters]
    args[0] += 32 * np.eye(256, dtype=np.float32)
    local, (got,) = run_partitioned(module, args)
    assert_close(got, evaluate(module, args)[0])
    assert collectives(local) == ["all-gather"]
