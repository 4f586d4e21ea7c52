# ruff: noqa: E501
"""Hand-written StableHLO: ops that JAX seldom emits, constants of every type, and broken input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from shardc.hlo import stablehlo
from shardc.hlo.errors import EnvironmentProblem, ParseError, ShardcError, UnsupportedError, VerificationError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.custom_calls import DATA_FLOW_EDGE, PROPAGATION_BARRIER, RESHARD, SHARDING_GROUP
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.hlo.verify import verify


def program(body: str, arguments: str = "%a: tensor<2x3xf32>", results: str = "tensor<2x3xf32>") -> str:
    return f"func.func @main({arguments}) -> {results} {{\n{body}\n}}"


def run(text: str, *args: object) -> list[NDArray[np.generic]]:
    module = read_stablehlo(text)
    verify(module)
    return evaluate(module, [np.asarray(a) for a in args])


A = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_if_with_captured_values() -> None:
    body = """  %two = stablehlo.constant dense<2.0> : tensor<2x3xf32>
  %0:2 = "stablehlo.if"(%p) ({
    %1 = stablehlo.multiply %a, %two : tensor<2x3xf32>
    stablehlo.return %1, %a : tensor<2x3xf32>, tensor<2x3xf32>
  }, {
    stablehlo.return %a, %two : tensor<2x3xf32>, tensor<2x3xf32>
  }) : (tensor<i1>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
  return %0#0, %0#1 : tensor<2x3xf32>, tensor<2x3xf32>"""
    text = program(body, "%a: tensor<2x3xf32>, %p: tensor<i1>", "(tensor<2x3xf32>, tensor<2x3xf32>)")
    np.testing.assert_array_equal(run(text, A, True), [A * 2, A])
    np.testing.assert_array_equal(run(text, A, False), [A, np.full_like(A, 2)])


def test_while_with_captured_values_and_a_nested_loop() -> None:
    body = """  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<2x3xf32>
    cond {
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %1:2 = stablehlo.while(%j = %zero, %y = %x) : tensor<i32>, tensor<2x3xf32>
        cond {
          %d = stablehlo.compare LT, %j, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %d : tensor<i1>
        } do {
          %k = stablehlo.add %j, %one : tensor<i32>
          %z = stablehlo.add %y, %a : tensor<2x3xf32>
          stablehlo.return %k, %z : tensor<i32>, tensor<2x3xf32>
        }
      %k2 = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %k2, %1#1 : tensor<i32>, tensor<2x3xf32>
    }
  return %0#1 : tensor<2x3xf32>"""
    (found,) = run(program(body, "%a: tensor<2x3xf32>, %n: tensor<i32>"), A, np.int32(4))
    np.testing.assert_array_equal(found, A * (1 + 0 + 1 + 2 + 3))


def test_region_that_uses_a_constant_from_outside() -> None:
    body = """  %c = stablehlo.constant dense<10.0> : tensor<f32>
  %0 = "stablehlo.reduce"(%a, %c) <{dimensions = array<i64: 1>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %1 = stablehlo.minimum %x, %y : tensor<f32>
    %2 = stablehlo.minimum %1, %c : tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>"""
    (found,) = run(program(body, results="tensor<2xf32>"), A)
    np.testing.assert_array_equal(found, A.min(1))


def test_region_that_uses_a_value_from_outside_is_refused() -> None:
    body = """  %0 = "stablehlo.reduce"(%a, %v) <{dimensions = array<i64: 1>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %2 = stablehlo.minimum %x, %v : tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>"""
    with pytest.raises(UnsupportedError, match="from outside"):
        read_stablehlo(program(body, "%a: tensor<2x3xf32>, %v: tensor<f32>", "tensor<2xf32>"), "f.mlir")


def test_equal_regions_become_one_computation() -> None:
    lines = [
        f"""  %c{i} = stablehlo.constant dense<0.0> : tensor<f32>
  %r{i} = stablehlo.reduce(%a init: %c{i}) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<f32>"""
        for i in range(5)
    ]
    module = read_stablehlo(program("\n".join(lines) + "\n  return %r4 : tensor<f32>", results="tensor<f32>"))
    assert len(module.computations) == 2


def test_broadcasts_that_grow_or_permute() -> None:
    body = """  %0 = "stablehlo.broadcast_in_dim"(%a) <{broadcast_dimensions = array<i64: 2, 0>}>
      : (tensor<1x3xf32>) -> tensor<3x4x5xf32>
  return %0 : tensor<3x4x5xf32>"""
    (found,) = run(program(body, "%a: tensor<1x3xf32>", "tensor<3x4x5xf32>"), A[:1])
    np.testing.assert_array_equal(found, np.broadcast_to(A[0][:, None, None], (3, 4, 5)))


def test_scalar_operands_of_select_and_clamp() -> None:
    body = """  %0 = stablehlo.clamp %low, %a, %high : (tensor<f32>, tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %1 = stablehlo.select %p, %0, %a : tensor<i1>, tensor<2x3xf32>
  return %1 : tensor<2x3xf32>"""
    arguments = "%a: tensor<2x3xf32>, %low: tensor<f32>, %high: tensor<f32>, %p: tensor<i1>"
    (found,) = run(program(body, arguments), A, np.float32(1), np.float32(4), True)
    np.testing.assert_array_equal(found, A.clip(1, 4))


def test_linear_algebra_ops() -> None:
    spd = np.array([[4, 1], [1, 3]], np.float32)
    body = """  %0 = stablehlo.cholesky %a, lower = true : tensor<2x2xf32>
  %1 = "stablehlo.triangular_solve"(%0, %a) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  return %0, %1 : tensor<2x2xf32>, tensor<2x2xf32>"""
    low, solved = run(program(body, "%a: tensor<2x2xf32>", "(tensor<2x2xf32>, tensor<2x2xf32>)"), spd)
    np.testing.assert_allclose(np.tril(low) @ np.tril(low).T, spd, rtol=1e-5)
    np.testing.assert_allclose(np.tril(low) @ solved, spd, rtol=1e-5)


def test_select_and_scatter_and_batch_norm() -> None:
    body = """  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = "stablehlo.select_and_scatter"(%a, %u, %zero) <{window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 3>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %p = stablehlo.compare GE, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }, {
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %q = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %q : tensor<f32>
  }) : (tensor<2x3xf32>, tensor<2x1xf32>, tensor<f32>) -> tensor<2x3xf32>
  %b:3 = "stablehlo.batch_norm_training"(%s, %one, %one) <{epsilon = 0.0 : f32, feature_index = 1 : i64}> : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>)
  return %s, %b#1 : tensor<2x3xf32>, tensor<3xf32>"""
    arguments = "%a: tensor<2x3xf32>, %u: tensor<2x1xf32>, %one: tensor<3xf32>"
    u, one = np.array([[5], [7]], np.float32), np.ones(3, np.float32)
    spread, mean = run(program(body, arguments, "(tensor<2x3xf32>, tensor<3xf32>)"), A, u, one)
    np.testing.assert_array_equal(spread, [[0, 0, 5], [0, 0, 7]])
    np.testing.assert_array_equal(mean, [0, 0, 6])


def test_collectives_keep_groups_channels_and_meaning() -> None:
    body = """  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1], [2, -1]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %1 = "stablehlo.all_to_all"(%a) <{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<2x4xf32>) -> tensor<4x2xf32>
  %2 = "stablehlo.collective_permute"(%a) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0, %1, %2 : tensor<2x4xf32>, tensor<4x2xf32>, tensor<2x4xf32>"""
    text = program(body, "%a: tensor<2x4xf32>", "(tensor<2x4xf32>, tensor<4x2xf32>, tensor<2x4xf32>)")
    module = read_stablehlo(text)
    verify(module)
    found = {i.opcode: i for i in module.entry}
    assert found["all-reduce"].attrs["replica_groups"].expand() == ((0, 1), (2,))
    assert found["all-reduce"].attrs["channel_id"] == 3
    assert found["all-reduce"].attrs["use_global_device_ids"] is True
    assert found["collective-permute"].attrs["source_target_pairs"].expand() == ((0, 1), (1, 0))


CONSTANTS = [
    ("dense<[1, -2, 3]> : tensor<3xi8>", np.array([1, -2, 3], np.int8)),
    ("dense<[1, -2, 3]> : tensor<3xi4>", np.array([1, -2, 3], ml_dtypes.int4)),
    ("dense<[1, 2, 15]> : tensor<3xui4>", np.array([1, 2, 15], ml_dtypes.uint4)),
    ("dense<[true, false, true]> : tensor<3xi1>", np.array([True, False, True])),
    ("dense<18446744073709551615> : tensor<ui64>", np.array(2**64 - 1, np.uint64)),
    ("dense<[1.5, -0.0, 0x7F80]> : tensor<3xbf16>", np.array([1.5, -0.0, np.inf], ml_dtypes.bfloat16)),
    ("dense<[1.5, 0x7E00]> : tensor<2xf16>", np.array([1.5, np.nan], np.float16)),
    ("dense<[0.5, 2.0]> : tensor<2xf8E4M3FN>", np.array([0.5, 2.0], ml_dtypes.float8_e4m3fn)),
    ("dense<1.5> : tensor<2x2xf8E5M2>", np.full((2, 2), 1.5, ml_dtypes.float8_e5m2)),
    ("dense<[(1.0, -2.0), (0.5, 0x7F800000)]> : tensor<2xcomplex<f32>>", np.array([1 - 2j, complex(0.5, np.inf)], np.complex64)),
    ("dense<(1.0, 2.0)> : tensor<2x2xcomplex<f64>>", np.full((2, 2), 1 + 2j, np.complex128)),
    ("dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf64>", np.array([[1, 2], [3, 4]], np.float64)),
    ("dense<> : tensor<0x2xf32>", np.zeros((0, 2), np.float32)),
    ('dense<"0x0000803F00000040"> : tensor<2xf32>', np.array([1, 2], np.float32)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CONSTANTS, ids=[c[0][-24:] for c in CONSTANTS])
def test_constants(text: str, expected: NDArray[np.generic]) -> None:
    type_ = text.rsplit(" : ", 1)[1]
    module = read_stablehlo(program(f"  %0 = stablehlo.constant {text}\n  return %0 : {type_}", "", type_))
    (constant,) = [i for i in module.entry if i.opcode == "constant"]
    found = constant.attrs["literal"].array
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert np.ascontiguousarray(found).tobytes() == expected.tobytes()


def test_long_narrow_constants() -> None:
    values = np.arange(300).astype(ml_dtypes.bfloat16)
    listed = ", ".join(f"{float(v):e}" for v in values)
    type_ = "tensor<300xbf16>"
    body = f"  %0 = stablehlo.constant dense<[{listed}]> : {type_}\n  return %0 : {type_}"
    (found,) = run(program(body, "", type_))
    assert found.tobytes() == values.tobytes()


def test_dynamic_ops_with_known_shapes() -> None:
    body = """  %s = stablehlo.constant dense<[3, 2]> : tensor<2xi32>
  %0 = "stablehlo.dynamic_reshape"(%a, %s) : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>"""
    np.testing.assert_array_equal(run(program(body, results="tensor<3x2xf32>"), A)[0], A.reshape(3, 2))


def failing(text: str | bytes, error: type[ShardcError]) -> ShardcError:
    with pytest.raises(error) as caught:
        read_stablehlo(text, "bad.mlir")
    return caught.value


def test_malformed_text_names_line_and_column() -> None:
    e = failing(program("  %0 = stablehlo.add %a %a : tensor<2x3xf32>\n  return %0 : tensor<2x3xf32>"), ParseError)
    assert str(e.where).startswith("bad.mlir:2:")


def test_type_errors_name_the_place() -> None:
    e = failing(program("  return %a : tensor<2x3xf32>", results="tensor<7xf32>"), ParseError)
    assert str(e.where) == "bad.mlir:2:3"


@pytest.mark.parametrize(
    "data",
    [b"ML\xefR", b"ML\xefR\x0dStableHLO_v1.0.0\x00" + bytes(range(200)), b"\xff\xfe\x00\x01", b"not mlir at all"],
)
def test_bytes_that_are_no_module(data: bytes) -> None:
    assert "bad.mlir" in str(failing(data, ParseError))


def test_damaged_bytecode_never_ends_in_a_crash() -> None:
    import io

    import jax

    stage = (
        jax.jit(lambda x: jax.numpy.sin(x) @ x).trace(np.ones((3, 3), np.float32)).lower(lowering_platforms=("cpu",))
    )
    buffer = io.BytesIO()
    stage.compiler_ir("stablehlo").operation.write_bytecode(buffer)
    data = buffer.getvalue()
    rng = np.random.default_rng(0)
    for _ in range(8):
        damaged = bytearray(data)
        for _ in range(3):
            damaged[int(rng.integers(8, len(data)))] = int(rng.integers(256))
        try:
            read_stablehlo(bytes(damaged), "damaged.mlirbc")
        except ShardcError as e:
            assert "damaged.mlirbc" in str(e)


_WORKER = Path(stablehlo.__path__[0]) / "mlir" / "worker.py"


def test_a_reader_that_crashes_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from shardc.hlo.stablehlo import child

    spoilt = "import os, runpy, time\nworker = runpy.run_path({!r})['main'].__globals__\n{}\nworker['main']()\n"
    for how, reason in (
        ("worker['_load_answers'] = lambda: lambda _: os.abort()", "(signal 6)"),
        ("worker['_load_answers'] = lambda: lambda _: os._exit(3)", "(exit status 3)"),
        ("worker['_load_answers'] = lambda: lambda _: 1 / 0", "(exit status 1): ZeroDivisionError"),
        ("worker['_load_answers'] = lambda: os.abort()", "(signal 6)"),
        ("worker['_load_answers'] = lambda: lambda _: time.sleep(60)", "did not finish within 1 seconds"),
    ):
        script = tmp_path / "spoilt.py"
        script.write_text(spoilt.format(str(_WORKER), how))
        monkeypatch.setattr(child, "_SCRIPT", script)
        monkeypatch.setattr(child, "_SECONDS", 1.0)
        assert reason in str(failing("module {}", ParseError)), how
        monkeypatch.undo()
        assert read_stablehlo(program("  return %a : tensor<2x3xf32>"))


def test_missing_jaxlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardc.hlo.stablehlo import child

    monkeypatch.setattr(child.importlib.util, "find_spec", lambda name: None)
    assert "shardc[jax]" in str(failing("module {}", EnvironmentProblem))


def test_unknown_ops_name_op_and_source() -> None:
    body = """  %0 = stablehlo.uniform_quantize %a : (tensor<2x3xf32>) -> tensor<2x3x!quant.uniform<i8:f32, 0.1:0>>
  return %a : tensor<2x3xf32>"""
    failing(program(body), ShardcError)
    body = """  %0 = "some.op"(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("train.py":12:4)
  return %0 : tensor<2x3xf32>"""
    e = failing(program(body), UnsupportedError)
    assert "some.op" in str(e)
    assert "train.py:12:4" in str(e)


def test_dynamic_shapes_are_refused() -> None:
    body = "  return %a : tensor<?x3xf32>"
    assert "tensor<?x3xf32>" in str(failing(program(body, "%a: tensor<?x3xf32>", "tensor<?x3xf32>"), UnsupportedError))


def test_entry_must_be_clear() -> None:
    two = "func.func public @f() { return }\nfunc.func public @g() { return }"
    assert "several public functions" in str(failing(two, VerificationError))
    assert "no public function" in str(failing("module {}", ParseError))


def test_of_several_meshes_the_used_one_counts() -> None:
    text = """module {
  sdy.mesh @a = <["x"=2]>
  sdy.mesh @b = <["y"=4]>
  func.func @main(%p: tensor<4xf32> {sdy.sharding = #sdy.sharding<@b, [{"y"}]>}) -> tensor<4xf32> {
    return %p : tensor<4xf32>
  }
}"""
    assert read_stablehlo(text).mesh == Mesh({"y": 4})


def test_markers_of_shardy_are_read() -> None:
    text = """module {
  sdy.mesh @m = <["x"=2]>
  func.func @main(%p: tensor<4xf32>) -> tensor<4xf32> {
    %0 = sdy.propagation_barrier %p allowed_direction=BACKWARD : tensor<4xf32>
    sdy.sharding_group %0 group_id=3 : tensor<4xf32>
    %1 = sdy.reshard %0 <@m, [{"x"}]> : tensor<4xf32>
    %2 = stablehlo.optimization_barrier %1 : tensor<4xf32>
    %3 = sdy.data_flow_edge %2 : tensor<4xf32>
    return %3 : tensor<4xf32>
  }
}"""
    module = read_stablehlo(text)
    calls = [i for i in module.entry if i.opcode == "custom-call"]
    assert [i.attrs["custom_call_target"] for i in calls] == [
        PROPAGATION_BARRIER, SHARDING_GROUP, RESHARD, DATA_FLOW_EDGE,
    ]  # fmt: skip
    assert dict(calls[0].attrs["frontend_attributes"]) == {"xla.sdy.allowed_direction": "BACKWARD"}
    assert dict(calls[1].attrs["frontend_attributes"]) == {"xla.sdy.sharding_group_id": "3"}
    (value,) = evaluate(module, [np.arange(4, dtype=np.float32)])
    assert value.tolist() == [0, 1, 2, 3]


def test_the_child_needs_only_jaxlib() -> None:
    """The worker must not import numpy or the packages above it: it starts for every file."""
    worker = Path(read_stablehlo.__code__.co_filename).parent / "mlir"
    for path in worker.glob("*.py"):
        text = path.read_text()
        imports = [line for line in text.splitlines() if line.strip().startswith(("from shardc", "import numpy"))]
        assert all("shardc.hlo.stablehlo.mlir" in line for line in imports), path


def test_a_large_module_is_read_in_seconds() -> None:
    count = 4000
    lines = [f'  %{i + 1} = stablehlo.add %{i}, %a : tensor<2x3xf32> loc("f.py":{i + 1}:1)' for i in range(count)]
    text = program("  %0 = stablehlo.negate %a : tensor<2x3xf32>\n" + "\n".join(lines) + f"\n  return %{count} : tensor<2x3xf32>")  # fmt: skip
    module: Module = read_stablehlo(text)
    assert len(module.entry.instructions) == count + 3


def test_reading_imports_no_jax() -> None:
    code = (
        "import sys; from shardc.hlo.stablehlo.reader import read_stablehlo; "
        "read_stablehlo('func.func @main() { return }'); assert 'jax' not in sys.modules; "
        "assert 'jaxlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
