"""Custom calls read from StableHLO: layouts, typed attributes, aliases; calls that HLO has an op for."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.ir import Module
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.hlo.text.equal import difference
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.text.shapes import shape_of_text

pytest.importorskip("jaxlib")

LAPACK = """
func.func @main(%x: tensor<2x3x5xf32>) -> (tensor<2x3x5xf32>, tensor<2x3xi32>, tensor<2xi32>) {
  %r:3 = stablehlo.custom_call @lapack_sgetrf_ffi(%x) {
    api_version = 4 : i32, has_side_effect = true,
    backend_config = {uplo = 76 : ui8, tol = 5.000000e-01 : f64, flag = true},
    operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>],
    output_operand_aliases = [#stablehlo.output_operand_alias<
      output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>],
    result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>]
  } : (tensor<2x3x5xf32>) -> (tensor<2x3x5xf32>, tensor<2x3xi32>, tensor<2xi32>)
  return %r#0, %r#1, %r#2 : tensor<2x3x5xf32>, tensor<2x3xi32>, tensor<2xi32>
}
"""


def read(text: str) -> Module:
    return read_stablehlo(text)


def test_everything_about_a_call_survives() -> None:
    module = read(LAPACK)
    (call,) = (i for i in module.instructions() if i.opcode == "custom-call")
    assert call.attrs == {
        "custom_call_target": "lapack_sgetrf_ffi",
        "custom_call_has_side_effect": True,
        "operand_layout_constraints": (shape_of_text("f32[2,3,5]{1,2,0}"),),
        "output_to_operand_aliasing": "{{0}: (0, {})}",
        "backend_config": "{flag = true, tol = 5.000000e-01 : f64, uplo = 76 : ui8}",
        "api_version": "API_VERSION_TYPED_FFI",
    }
    assert str(call.shape) == "(f32[2,3,5]{1,2,0}, s32[2,3], s32[2])"
    assert difference(read_hlo(print_module(module)), module) is None
    x = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    lu, pivots, info = evaluate(module, [x])
    for a, f, p in zip(x, lu, pivots, strict=True):
        product = (np.tril(f[:, :3], -1) + np.eye(3)) @ np.triu(f)
        for k in reversed(range(3)):
            product[[k, p[k] - 1]] = product[[p[k] - 1, k]]
        np.testing.assert_allclose(product, a, atol=1e-5)
    assert info.tolist() == [0, 0]


RAGGED = """
module attributes {mhlo.num_partitions = 2 : i32} {
func.func @main(%x: tensor<3xf32>, %out: tensor<4xf32>, %at: tensor<2xi32>, %n: tensor<2xi32>, %to: tensor<2xi32>,
                %m: tensor<2xi32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @ragged_all_to_all(%x, %out, %at, %n, %to, %m) {
    api_version = 4 : i32, backend_config = {channel_id = 1 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
  } : (tensor<3xf32>, tensor<4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
}
"""


def test_ragged_all_to_all_is_an_op() -> None:
    module = read(RAGGED)
    assert next(i.opcode for i in module.instructions() if i.operands) == "ragged-all-to-all"
    i32 = lambda *v: np.array(v, np.int32)  # noqa: E731
    # Device 0 sends 1 element to itself and 2 to device 1; device 1 sends 2 to device 0 and 1 to itself.
    per_device = [
        [np.array([1, 2, 3], np.float32), np.zeros(4, np.float32), i32(0, 1), i32(1, 2), i32(0, 0), i32(1, 2)],
        [np.array([4, 5, 6], np.float32), np.zeros(4, np.float32), i32(0, 2), i32(2, 1), i32(1, 2), i32(2, 1)],
    ]
    (first,), (second,) = evaluate_spmd(module, per_device)
    assert first.tolist() == [1, 4, 5, 0]
    assert second.tolist() == [2, 3, 6, 0]


COMPOSITES = """
func.func @main(%x: tensor<3x8xf32>) -> (tensor<3x2xf32>, tensor<3x2xi32>, tensor<3x8xf32>, tensor<3x8xf32>) {
  %r:2 = stablehlo.composite "chlo.top_k" %x {composite_attributes = {k = 2 : i64, largest = true},
    decomposition = @best} : (tensor<3x8xf32>) -> (tensor<3x2xf32>, tensor<3x2xi32>)
  %e = stablehlo.composite "chlo.erf" %x {decomposition = @twice} : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %t = stablehlo.composite "my.own" %x {decomposition = @twice} : (tensor<3x8xf32>) -> tensor<3x8xf32>
  return %r#0, %r#1, %e, %t : tensor<3x2xf32>, tensor<3x2xi32>, tensor<3x8xf32>, tensor<3x8xf32>
}
func.func private @best(%x: tensor<3x8xf32>) -> (tensor<3x2xf32>, tensor<3x2xi32>) {
  %v = stablehlo.slice %x [0:3, 0:2] : (tensor<3x8xf32>) -> tensor<3x2xf32>
  %i = stablehlo.iota dim = 1 : tensor<3x2xi32>
  return %v, %i : tensor<3x2xf32>, tensor<3x2xi32>
}
func.func private @twice(%x: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %y = stablehlo.add %x, %x : tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}
"""


def test_composites_of_chlo_are_its_operations() -> None:
    """Portable modules, such as a PJRT plug-in gets, have them with a decomposition, which would sort whole rows."""
    module = read(COMPOSITES)
    assert sorted(i.opcode for i in module.instructions() if i.opcode in ("topk", "erf", "call", "slice")) == [
        "call",
        "erf",
        "topk",
    ]
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    values, places, _, twice = evaluate(module, [x])
    assert np.array_equal(values, -np.sort(-x)[:, :2])
    assert np.array_equal(places, np.argsort(-x)[:, :2])
    assert np.array_equal(twice, 2 * x)
