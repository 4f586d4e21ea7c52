"""fmod and huge angles without libm: exact, or to 1-2 ulp, over their whole range."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import mpmath
import numpy as np
import pytest
from llvmlite import ir

from shardc.native.llvm import jit
from shardc.native.math import vector_math
from shardc.native.math.large import library_function
from shardc.native.math.vector import F32, F64

NAMES = ("fmod", "sin", "cos", "tan")
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3.0, 5.5)


@functools.cache
def loaded() -> jit.Loaded:
    module = jit.new_module("large")
    functions = [library_function(module, n + suffix) for n in NAMES for suffix in ("", "f")]
    for function in functions:
        function.linkage = "external"
    return jit.load_object(jit.compile_ir(module), [f.name for f in functions])


def call(name: str, *operands: np.ndarray) -> np.ndarray:
    dtype = operands[0].dtype
    scalar = ctypes.c_float if dtype == np.float32 else ctypes.c_double
    address = loaded().address(f"shardc.libm.{name}{'f' if dtype == np.float32 else ''}")
    function = ctypes.CFUNCTYPE(scalar, *[scalar] * len(operands))(address)
    return np.array([function(*map(float, row)) for row in zip(*operands, strict=True)], dtype)


def any_bits(dtype: Any, count: int, seed: int) -> np.ndarray:
    integer = np.uint32 if dtype == np.float32 else np.uint64
    return np.random.default_rng(seed).integers(0, np.iinfo(integer).max, count, dtype=integer).view(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fmod_is_exact(dtype: Any) -> None:
    info = np.finfo(dtype)
    special = np.array([*SPECIAL, info.max, info.tiny, info.smallest_subnormal, 7 * info.smallest_subnormal], dtype)
    everyday = np.random.default_rng(0).standard_normal((2, 500)).astype(dtype)
    x = np.concatenate([any_bits(dtype, 3000, 1), np.repeat(special, special.size), everyday[0] * 100])
    y = np.concatenate([any_bits(dtype, 3000, 2), np.tile(special, special.size), everyday[1]])
    with np.errstate(all="ignore"):
        wanted = np.fmod(x, y)
    got = call("fmod", x, y)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(wanted)], np.signbit(wanted)[~np.isnan(wanted)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_angles(name: str, dtype: Any) -> None:
    """Among them the f64 that comes nearest to a multiple of pi / 2."""
    rng = np.random.default_rng(3)
    near = [float(mpmath.mpf(int(k)) * mpmath.pi / 2) for k in rng.integers(2**21, 2**50, 100)]
    exponents = rng.uniform(20, 60, 100)
    x = np.concatenate([any_bits(dtype, 400, 4), (2.0**exponents).astype(dtype), np.array(near, dtype)])
    x = x[np.isfinite(x) & (np.abs(x) > 2.0**20)]
    if dtype == np.float64:
        x = np.append(x, 6381956970095103 * 2.0**797)
    got = call(name, x)
    with mpmath.workprec(1400):
        for angle, value in zip(x, got, strict=True):
            exact = getattr(mpmath, name)(mpmath.mpf(float(angle)))
            error = abs(mpmath.mpf(float(value)) - exact) / float(np.spacing(np.abs(dtype(float(exact)))))
            assert error < 2.5, (angle, value, float(exact))
    assert np.isnan(call(name, np.array([np.inf, -np.inf, np.nan], dtype))).all()


def test_modules_without_libm_call_nothing() -> None:
    module = jit.new_module("alone")
    module.has_libm = False
    for t in (F32, F64, ir.VectorType(F32, 4)):
        function = ir.Function(module, ir.FunctionType(t, [t, t]), f"f{t}".replace(" ", ""))
        b = ir.IRBuilder(function.append_basic_block())
        value = vector_math.call(b, "fmod", *function.args)
        for name in ("sin", "cos", "tan"):
            value = vector_math.call(b, name, value)
        b.ret(value)
    assert jit.undefined_symbols(jit.compile_ir(module)) == []
    with pytest.raises(KeyError):
        library_function(module, "lgamma")
