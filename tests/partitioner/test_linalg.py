"""Linear algebra: only batch dimensions are split, whatever a rule that comes with a call names."""

from __future__ import annotations

import numpy as np
import pytest
from partition_support import collectives, layout, run_partitioned, with_shardings

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape, tuple_shape

MESH = Mesh({"x": 3})


def test_dimensions_that_a_rule_only_keeps_apart_stay_whole() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 6, 4, 4))
    rule = "#sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i]) {i=6, j=4, k=4, l=4, m=4}, custom>"
    made = b.add(
        "custom-call",
        x,
        shape=tuple_shape(x.shape, array_shape("s32", 6)),
        custom_call_target="lapack_spotrf_ffi",
        backend_config="{uplo = 76 : ui8}",
        api_version="API_VERSION_TYPED_FFI",
        frontend_attributes=(("num_batch_dims", "1"), ("xla.sdy.sharding_rule", rule)),
    )
    root = b.build(b.add("get-tuple-element", made, index=0))
    rows = layout(MESH, None, "x", None)
    module = with_shardings(root, MESH, lambda i: rows if i.shape.rank == 3 else layout(MESH, None))
    a = np.random.default_rng(0).standard_normal((6, 4, 4)).astype(np.float32)
    a = a @ a.transpose(0, 2, 1) + 4 * np.eye(4, dtype=np.float32)
    local, (got,) = run_partitioned(module, [a])
    np.testing.assert_allclose(got, evaluate(module, [a])[0], rtol=1e-5)
    (call,) = [i for i in local.instructions() if i.opcode == "custom-call"]
    assert call.operands[0].shape.dims == (2, 4, 4)
    assert "all-gather" not in collectives(local)


@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("axes", [("x", None), (None, "x"), ("x", "y")])
def test_transforms_over_several_dimensions_move_axes_about(kind: str, axes: tuple[str | None, ...]) -> None:
    mesh = Mesh({"x": 3, "y": 4})
    b = Builder("main")
    n = 24
    x = b.parameter(array_shape("f32" if kind == "RFFT" else "c64", 2, n, n // 2 + 1 if kind == "IRFFT" else n))
    made = b.build(b.add("fft", x, fft_type=kind, fft_length=(n, n)))
    module = with_shardings(made, mesh, lambda i: layout(mesh, None, *axes))
    rng = np.random.default_rng(0)
    a = rng.standard_normal(x.shape.dims).astype(x.shape.dtype.numpy)
    local, (got,) = run_partitioned(module, [a])
    want = evaluate(module, [a])[0]
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, atol=1e-5 * abs(want).max())
    # To gather half of a real array can be as cheap as to move the complex one out and back.
    assert (None not in axes and kind in ("RFFT", "IRFFT")) or "all-gather" not in collectives(local)
    assert "all-to-all" in collectives(local)


@pytest.mark.parametrize("target", ["lapack_strsm_ffi", "lapack_sormqr_ffi"])
@pytest.mark.parametrize("left", [False, True])
def test_one_sided_routines_work_on_shards_of_the_other_operand(target: str, left: bool) -> None:
    """Only the matrix is whole, also where JAX's rule keeps all dimensions apart."""
    b = Builder("main")
    a = b.parameter(array_shape("f32", 6, 6))
    x = b.parameter(array_shape("f32", *((6, 10) if left else (10, 6))))
    if target == "lapack_strsm_ffi":
        operands, rule = (a, x), "([i, j], [k, l])->([m, n]) {i=6, j=6, k=6, l=10, m=6, n=10}"
        config = f"{{diag = 78 : ui8, side = {76 if left else 82} : ui8, trans_x = 78 : ui8, uplo = 76 : ui8}}"
    else:
        tau = b.parameter(array_shape("f32", 6))
        operands, rule = (a, tau, x), "([i, j], [o], [k, l])->([m, n]) {i=6, j=6, k=6, l=10, m=6, n=10, o=6}"
        config = f"{{left = {str(left).lower()}, transpose = false}}"
    if not left:
        rule = rule.replace("k=6, l=10, m=6, n=10", "k=10, l=6, m=10, n=6")
    made = b.add(
        "custom-call",
        *operands,
        shape=x.shape,
        custom_call_target=target,
        backend_config=config,
        api_version="API_VERSION_TYPED_FFI",
        frontend_attributes=(
            ("num_batch_dims", "0"),
            ("xla.sdy.sharding_rule", f"#sdy.op_sharding_rule<{rule}, custom>"),
        ),
    )
    free = (None, "x") if left else ("x", None)

    def place(i: Instruction) -> Sharding:
        return layout(MESH, *free) if i.shape.dims == x.shape.dims else layout(MESH, *[None] * i.shape.rank)

    module = with_shardings(b.build(made), MESH, place)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.parameters]
    args[0] += 4 * np.eye(6, dtype=np.float32)
    local, (got,) = run_partitioned(module, args)
    want = evaluate(module, args)[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * abs(want).max())
    assert collectives(local) == []


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE"])
def test_right_hand_sides_stay_where_they_are(left: bool, transpose: str) -> None:
    """Of a split matrix and split right-hand sides only the matrix, the smaller one, is gathered."""
    mesh = Mesh({"x": 2, "y": 4})
    b = Builder("main")
    a, x = b.parameter(array_shape("f32", 3, 8, 8)), b.parameter(array_shape("f32", 3, *((8, 30) if left else (30, 8))))
    attrs = {"left_side": left, "lower": True, "unit_diagonal": False, "transpose_a": transpose}
    made = b.build(b.add("triangular-solve", a, x, **attrs))
    free = (None, ("x", "y")) if left else (("x", "y"), None)
    module = with_shardings(
        made, mesh, lambda i: layout(mesh, None, *((("x", "y"), None) if i.shape.dims == (3, 8, 8) else free))
    )
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.parameters]
    args[0] += 4 * np.eye(8, dtype=np.float32)
    local, (got,) = run_partitioned(module, args)
    np.testing.assert_allclose(got, evaluate(module, args)[0], rtol=1e-4, atol=1e-5)
    assert collectives(local) == ["all-gather"]


@pytest.mark.parametrize("kind", ["training", "grad", "inference"])
@pytest.mark.parametrize("axes", [("x", None, None), (None, "x", "y"), (("x", "y"), None, None), ("x", None, "y")])
def test_batch_norm_sums_over_split_dimensions(kind: str, axes: tuple[str | tuple[str, ...] | None, ...]) -> None:
    mesh = Mesh({"x": 2, "y": 4})
    b = Builder("main")
    dims = (6, 10, 8)
    x, one = array_shape("f32", *dims), array_shape("f32", 8)
    kinds = {"training": [x, one, one], "inference": [x, *[one] * 4], "grad": [x, one, one, one, x]}
    operands = [b.parameter(s) for s in kinds[kind]]
    shape = x if kind == "inference" else tuple_shape(x, one, one)
    made = b.build(b.add(f"batch-norm-{kind}", *operands, shape=shape, epsilon=1e-3, feature_index=2))
    module = with_shardings(made, mesh, lambda i: layout(mesh, *axes) if i.shape.rank == 3 else layout(mesh, axes[2]))
    rng = np.random.default_rng(0)
    args = [rng.uniform(0.5, 2, p.shape.dims).astype(np.float32) for p in module.parameters]
    local, got = run_partitioned(module, args)
    for g, w in zip(got, evaluate(module, args), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4)
    assert set(collectives(local)) <= {"all-reduce"}
