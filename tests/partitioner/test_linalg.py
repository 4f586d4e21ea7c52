"""Linear algebra: only batch dimensions are split, whatever a rule that comes with a call names."""

from __future__ import annotations

import numpy as np
import pytest
from partition_support import collectives, layout, run_partitioned, with_shardings

from shardc.hlo.build import Builder
from shardc.hlo.evaluate import evaluate
from shardc.hlo.mesh import Mesh
from shardc.hlo.types import array_shape, tuple_shape

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
