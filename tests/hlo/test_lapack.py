"""The table of LAPACK's routines: it names functions that exist, and refuses calls that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.errors import UnsupportedError, VerificationError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.lapack import LAPACK, attributes_of
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape
from shardc.hlo.verify import verify
from shardc.native.llvm import blas

f32 = array_shape("f32", 4, 4)
info = array_shape("s32")


def call(target: str, *operands: Shape, shape: Shape, **attrs: object) -> Module:
    b = Builder("main")
    given = [b.parameter(s) for s in operands]
    return make_module("lapack", b.build(b.add("custom-call", *given, shape=shape, custom_call_target=target, **attrs)))


@pytest.mark.parametrize("target", LAPACK)
def test_every_routine_exists(target: str) -> None:
    routine = LAPACK[target]
    assert routine.symbol in blas.SYMBOLS
    assert getattr(blas.library(), routine.symbol)
    assert len(routine.begin) == len(routine.results)


@pytest.mark.parametrize(
    ("target", "operands", "shape", "message"),
    [
        ("lapack_spotrf_ffi", [f32, f32], tuple_shape(f32, info), "takes 1 operands, not 2"),
        ("lapack_spotrf_ffi", [f32], f32, "gives 2 results, not 1"),
        ("lapack_dpotrf_ffi", [f32], tuple_shape(f32, info), "does not take element type f32"),
        ("lapack_spotrf_ffi", [array_shape("f32", 4, 3)], tuple_shape(array_shape("f32", 4, 3), info), "size 3"),
        ("lapack_sgeqrf_ffi", [f32], tuple_shape(f32, array_shape("f32", 3)), "has size 3 where .* needs 4"),
        ("lapack_sgeqrf_ffi", [array_shape("f32", 2, 4, 4)], tuple_shape(f32, array_shape("f32", 4)), "not a batch"),
    ],
)
def test_shapes_that_do_not_fit(target: str, operands: list[Shape], shape: Shape, message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        verify(call(target, *operands, shape=shape))


@pytest.mark.parametrize(
    ("target", "config", "message"),
    [
        ("lapack_spotrf_ffi", "{}", "needs the attribute uplo"),
        ("lapack_spotrf_ffi", "{uplo = 1 : ui8}", "needs the attribute uplo, found 1"),
        ("lapack_strsm_ffi", "{side = 76 : ui8, uplo = 88 : ui8}", "needs the attribute uplo, found 88"),
    ],
)
def test_attributes_that_do_not_fit(target: str, config: str, message: str) -> None:
    solve = target.endswith("trsm_ffi")
    shape = f32 if solve else tuple_shape(f32, info)
    module = call(target, *([f32] * (1 + solve)), shape=shape, backend_config=config)
    with pytest.raises(UnsupportedError, match=message) as caught:
        evaluate(module, [np.eye(4, dtype=np.float32)] * (1 + solve))
    assert "backend_config" in str(caught.value)
    assert "%custom-call" in str(caught.value)


def test_typed_attributes() -> None:
    text = '{low = 1 : i32, uplo = 76 : ui8, left = true, tol = 5.000000e-01 : f64, name = "a, \\"b"}'
    (instruction,) = (
        i for i in call("any", f32, shape=f32, backend_config=text).instructions() if i.opcode == "custom-call"
    )
    found = attributes_of(instruction)
    assert {k: found[k] for k in ("low", "uplo", "left", "tol")} == {"low": 1, "uplo": 76, "left": True, "tol": 0.5}
    assert found["name"] == 'a, \\"b'
