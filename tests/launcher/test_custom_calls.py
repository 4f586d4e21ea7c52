"""Users' own custom calls: in NumPy, as HLO, as C functions; and the errors for targets that nobody knows."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc.hlo.evaluate import evaluate

TEXT = """HloModule own

ENTRY main {
  x = f32[4,3] parameter(0), metadata={source_file="train.py" source_line=12}
  y = f32[4,3] add(x, x)
  ROOT r = f32[4,3] custom-call(x, y), custom_call_target="my_scale", metadata={source_file="train.py" source_line=14}%s
}
"""
X = np.arange(12, dtype=np.float32).reshape(4, 3)


def program(tmp_path: Path, more: str = "", text: str = TEXT) -> shardc.Program:
    file = tmp_path / "own.hlo"
    file.write_text(text % more)
    return shardc.load(file)


def expand(b: Any, call: Any, x: Any, y: Any) -> Any:
    return b.add("multiply", x, y)


def test_an_expansion_is_sharded_and_compiled(tmp_path: Path) -> None:
    known = program(tmp_path).with_custom_calls({"my_scale": shardc.CustomCall(expand=expand)})
    assert "custom-call" not in known.as_text()
    partitioned = known.annotate({"x": shardc.P("i", None)}, mesh=shardc.Mesh({"i": 2})).partition()
    assert "f32[2,3]" in partitioned.as_text()
    assert not partitioned.report()["collectives"]
    np.testing.assert_array_equal(np.asarray(partitioned.compile()(X)), 2 * X * X)


def test_an_expansion_must_keep_the_shape(tmp_path: Path) -> None:
    wrong = shardc.CustomCall(expand=lambda b, call, x, y: b.add("reverse", b.add("slice", x, slice=((0, 1, 1),) * 2),
                                                                 dimensions=(0,)))  # fmt: skip
    with pytest.raises(shardc.ShardcError, match=r"returns f32\[1,1\], but the call has shape f32\[4,3\]"):
        program(tmp_path).with_custom_calls({"my_scale": wrong})


def test_a_numpy_function_is_for_the_evaluator(tmp_path: Path) -> None:
    own = {"my_scale": shardc.CustomCall(evaluate=lambda call, x, y: x * y)}
    known = program(tmp_path).with_custom_calls(own)
    (got,) = evaluate(known.module, [X], custom_calls=own)
    np.testing.assert_array_equal(got, 2 * X * X)
    with pytest.raises(shardc.ShardcError, match=r"'my_scale' cannot be compiled") as caught:
        known.compile()
    assert "train.py:14" in str(caught.value)
    wrong = {"my_scale": shardc.CustomCall(evaluate=lambda call, x, y: x[0])}
    with pytest.raises(shardc.ShardcError, match=r"gives float32\[3\], not f32\[4,3\]"):
        evaluate(known.module, [X], custom_calls=wrong)


def buffers(address: int, count: int) -> Any:
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (count,))


@pytest.mark.parametrize("target", ["cpu", "cuda-emulated"])
def test_a_c_function_by_address(tmp_path: Path, target: str) -> None:
    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    def scale(out: int, operands: Any) -> None:
        buffers(out, 12)[:] = buffers(operands[0], 12) * buffers(operands[1], 12) + 1

    own = {"my_scale": shardc.CustomCall(address=ctypes.cast(scale, ctypes.c_void_p).value or 0, keep=scale)}
    compiled = program(tmp_path).with_custom_calls(own).compile(target)
    np.testing.assert_array_equal(np.asarray(compiled(X)), 2 * X * X + 1)
    compiled.save(tmp_path / "own.shardc")
    again = shardc.load_executable(tmp_path / "own.shardc", custom_calls=own)
    np.testing.assert_array_equal(np.asarray(again(X)), 2 * X * X + 1)
    with pytest.raises(shardc.ShardcError, match="needs a function for custom call 'my_scale'"):
        shardc.load_executable(tmp_path / "own.shardc")(X)


UNIFIED = """HloModule own

ENTRY main {
  x = f32[4,3] parameter(0)
  both = (f32[4,3], f32[12]) custom-call(x), custom_call_target="my_pair", api_version=API_VERSION_STATUS_RETURNING_UNIFIED, backend_config="plus 5"
  a = f32[4,3] get-tuple-element(both), index=0
  b = f32[12] get-tuple-element(both), index=1
  ROOT r = (f32[4,3], f32[12]) tuple(a, b)
}%s
"""  # noqa: E501


def test_several_results_and_the_opaque_text(tmp_path: Path) -> None:
    seen: list[bytes] = []

    @ctypes.CFUNCTYPE(
        None,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
    )
    def pair(out: Any, operands: Any, opaque: int, size: int, status: int) -> None:
        seen.append(ctypes.string_at(opaque, size))
        buffers(out[0], 12)[:] = buffers(operands[0], 12) + 5
        buffers(out[1], 12)[:] = -buffers(operands[0], 12)

    own = {"my_pair": shardc.CustomCall(address=ctypes.cast(pair, ctypes.c_void_p).value or 0, keep=pair)}
    first, second = program(tmp_path, text=UNIFIED).with_custom_calls(own).compile()(X)
    np.testing.assert_array_equal(np.asarray(first), X + 5)
    np.testing.assert_array_equal(np.asarray(second), -X.reshape(-1))
    assert seen == [b"plus 5"]


@pytest.mark.parametrize(
    ("target", "message", "fix"),
    [
        ("my_scale", "unknown custom call 'my_scale'", "program.with_custom_calls"),
        ("__cublas$gemm", "belongs to another platform", "pass the jitted function"),
        ("cusolver_getrf_ffi", "belongs to another platform", "pass the jitted function"),
        ("tpu_custom_call", "belongs to another platform", "pass the jitted function"),
        ("__gpu$xla.gpu.triton", "belongs to another platform", "pass the jitted function"),
        ("xla_ffi_python_cpu_callback", "calls back into Python", "outside the function"),
    ],
)
def test_unknown_targets(tmp_path: Path, target: str, message: str, fix: str) -> None:
    unknown = program(tmp_path, text=TEXT.replace("my_scale", target))
    for run in (lambda: evaluate(unknown.module, [X]), unknown.compile):
        with pytest.raises(shardc.ShardcError) as caught:
            run()
        assert message in str(caught.value)
        assert fix in str(caught.value)
        assert "train.py:14" in str(caught.value)


def test_a_custom_call_needs_a_meaning() -> None:
    with pytest.raises(shardc.ShardcError, match="defines no implementation"):
        shardc.CustomCall()
    with pytest.raises(shardc.ShardcError, match="expand is an int"):
        shardc.CustomCall(expand=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{"my_scale": lambda call, x: x}, [lambda call, x: x]])
def test_functions_are_no_custom_calls(tmp_path: Path, given: Any) -> None:
    for take in (program(tmp_path).with_custom_calls, lambda calls: shardc.jit(abs, custom_calls=calls)):
        with pytest.raises(shardc.ShardcError, match=r"CustomCall\(evaluate=function\)"):
            take(given)


QR = """HloModule qr

ENTRY main {
  x = DTYPE[2,5,3] parameter(0)
  f = (DTYPE[2,5,3], DTYPE[2,3]) custom-call(x), custom_call_target="Qr"
  a = DTYPE[2,5,3] get-tuple-element(f), index=0
  t = DTYPE[2,3] get-tuple-element(f), index=1
  ROOT q = DTYPE[2,5,3] custom-call(a, t), custom_call_target="ProductOfElementaryHouseholderReflectors"
}%s
"""


@pytest.mark.parametrize("dtype", ["f32", "c128"])
def test_xlas_own_names_of_factorisations(tmp_path: Path, dtype: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, 5, 3)).astype({"f32": np.float32, "c128": np.complex128}[dtype])
    known = program(tmp_path, text=QR.replace("DTYPE", dtype))
    wanted = np.linalg.qr(x)[0]
    for got in (evaluate(known.module, [x])[0], np.asarray(known.compile()(x))):
        np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_jit_with_a_target_of_jax_ffi() -> None:
    jax = pytest.importorskip("jax")

    def function(x: Any) -> Any:
        call = jax.ffi.ffi_call("my_double", jax.ShapeDtypeStruct(x.shape, x.dtype))
        return call(x, by=np.int32(2)) + 1

    def meaning(b: Any, call: Any, x: Any) -> Any:
        assert call.attrs["backend_config"] == "{by = 2 : i32}"
        return b.add("add", x, x)

    own = {"my_double": shardc.CustomCall(expand=meaning)}
    mesh = shardc.Mesh({"i": 2})
    step = shardc.jit(function, mesh=mesh, in_shardings=(shardc.P("i", None),), custom_calls=own)
    np.testing.assert_array_equal(np.asarray(step(X)), 2 * X + 1)


MARKED = """HloModule marked

ENTRY main {
  x = f32[4,3] parameter(0)
  a = f32[4,3] custom-call(x), custom_call_target="ShardBarrierFrom"
  b = f32[4,3] custom-call(a), custom_call_target="MoveToHost"
  empty = f32[4,3] custom-call(), custom_call_target="AllocateBuffer"
  ROOT c = f32[4,3] add(b, empty)
}%s
"""


def test_markers_pass_the_value_on(tmp_path: Path) -> None:
    known = program(tmp_path, text=MARKED)
    np.testing.assert_array_equal(evaluate(known.module, [X])[0], X)
    np.testing.assert_array_equal(np.asarray(known.compile()(X)), X)


def test_known_targets_are_only_replaced_by_hlo(tmp_path: Path) -> None:
    marked = program(tmp_path, text=MARKED)
    with pytest.raises(shardc.ShardcError, match="already implements the custom call 'MoveToHost'"):
        marked.with_custom_calls({"MoveToHost": shardc.CustomCall(evaluate=lambda call, x: x)})
    twice = marked.with_custom_calls({"MoveToHost": shardc.CustomCall(expand=lambda b, call, x: b.add("add", x, x))})
    np.testing.assert_array_equal(np.asarray(twice.compile()(X)), 2 * X)
