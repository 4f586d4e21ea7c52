"""Elementary functions: error in ulp against mpmath over their whole range, special values, any vector width."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from llvmlite import ir

from shardc.native import jit, vector_math
from shardc.native.vector import F32, F64, I64, PTR, constant, with_lanes

UNARY = [n for n in vector_math.F32_FUNCTIONS if n not in ("pow", "atan2")]
REFERENCE: dict[str, Callable[..., object]] = {
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "pow": mpmath.power,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
}
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    -2.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1e-40,
    1.17549435e-38,
    3.4e38,
    -3.4e38,
]


@functools.cache
def function(name: str, lanes: int, count: int, double: bool = False) -> tuple[jit.Loaded, int]:
    """A loop over ``lanes`` elements at a time; the arguments are arrays, the last one the result."""
    module = jit.new_module(name)
    t = with_lanes(F64 if double else F32, lanes)
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR] * (count + 1) + [I64]), "f")
    b = ir.IRBuilder(f.append_basic_block())
    entry, loop, done = b.block, f.append_basic_block(), f.append_basic_block()
    b.branch(loop)
    b.position_at_end(loop)
    i = b.phi(I64)
    i.add_incoming(constant(I64, 0), entry)
    places = [b.gep(p, [i], source_etype=F64 if double else F32) for p in f.args[:-1]]
    b.store(vector_math.call(b, name, *(b.load(p, typ=t, align=4) for p in places[:-1])), places[-1], align=4)
    following = b.add(i, constant(I64, lanes))
    i.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, f.args[-1]), loop, done)
    b.position_at_end(done)
    b.ret_void()
    loaded = jit.load_object(jit.compile_ir(module), ["f"])
    return loaded, loaded.address("f")


def native(name: str, *operands: np.ndarray, lanes: int = 16) -> np.ndarray:
    dtype = operands[0].dtype
    n = -(-len(operands[0]) // lanes) * lanes
    padded = [np.resize(x, n).astype(dtype) for x in operands]
    out = np.empty(n, dtype)
    _, address = function(name, lanes, len(operands), dtype == np.float64)
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(operands) + 1), ctypes.c_int64)
    signature(address)(*(p.ctypes.data for p in padded), out.ctypes.data, n)
    return out[: len(operands[0])]


def reference(name: str, *operands: np.ndarray) -> list[object]:
    f = REFERENCE.get(name) or getattr(mpmath, name)
    with mpmath.workprec(160):
        return [f(*(mpmath.mpf(float(v)) for v in row)) for row in zip(*operands, strict=True)]


def worst_ulp(got: np.ndarray, wanted: list[object]) -> float:
    """Largest error in units in the last place of the wanted value (denormal spacing below the normal range)."""
    info = np.finfo(got.dtype)
    worst = 0.0
    for g, w in zip(got, wanted, strict=True):
        if isinstance(w, mpmath.mpc) or mpmath.isnan(w):
            assert np.isnan(g)
            continue
        if abs(w) >= mpmath.mpf(float(info.max)) * (1 + mpmath.mpf(2) ** -(info.nmant + 2)):
            assert np.isinf(g), (g, w)
            continue
        if np.isinf(g):
            worst = max(worst, 1.0 if abs(w) > float(info.max) * (1 - 2.0**-22) else np.inf)
            continue
        exponent = max(mpmath.frexp(w)[1] - 1 if w else -999999, info.minexp) - info.nmant
        worst = max(worst, float(abs(mpmath.mpf(float(g)) - w) / mpmath.mpf(2) ** exponent))
    return worst


def samples(name: str, dtype: type = np.float32) -> np.ndarray:
    """All magnitudes, and more where the function is neither flat nor infinite."""
    rng = np.random.default_rng(7)
    everywhere = rng.integers(0, 2**32, 600, dtype=np.uint32).view(np.float32)
    near = rng.standard_normal(900) * rng.choice([0.01, 0.3, 1.0, 3.0, 30.0, 60.0], 900)
    x = np.concatenate([everywhere[np.isfinite(everywhere)], near])
    if name in ("log", "acosh"):
        x = np.abs(x) + (name == "acosh")
    if name in ("asin", "acos", "atanh"):
        x = np.where(np.abs(x) > 1, np.tanh(x), x)
    if name == "log1p":
        x = np.where(x < -1, -1 + np.abs(np.tanh(x)), x)
    if name in ("sinh", "cosh", "exp", "expm1", "logistic"):
        x = np.clip(x, -200, 200)
    return x.astype(dtype)


@pytest.mark.parametrize("name", UNARY)
def test_error_of_f32_functions(name: str) -> None:
    x = samples(name)
    assert worst_ulp(native(name, x), reference(name, x)) <= 3


@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_error_of_f32_functions_of_two(name: str) -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal(1000) * rng.choice([1e-3, 1, 30], 1000) for _ in range(2))
    if name == "pow":
        x = np.abs(x)
    x, y = x.astype(np.float32), y.astype(np.float32)
    assert worst_ulp(native(name, x, y), reference(name, x, y)) <= 3


@pytest.mark.parametrize("name", sorted(vector_math.F64_FUNCTIONS))
def test_error_of_f64_functions(name: str) -> None:
    x = np.clip(np.random.default_rng(1).standard_normal(800) * 200, -750, 720)
    assert worst_ulp(native(name, x, lanes=8), reference(name, x)) <= 3


NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "logistic": lambda x: 1 / (1 + np.exp(-x)), "erf": np.vectorize(__import__("math").erf), "asin": np.arcsin,
    "acos": np.arccos, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "atan2": np.arctan2,
    "pow": np.power,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(vector_math.F32_FUNCTIONS))
def test_special_values(name: str) -> None:
    x = np.array(SPECIAL, np.float32)
    operands = [x] if name in UNARY else [g.reshape(-1) for g in np.meshgrid(x, x)]
    with np.errstate(all="ignore"):
        f = NUMPY.get(name) or getattr(np, name)
        wanted = np.asarray(f(*(o.astype(np.float64) for o in operands))).astype(np.float32)
    got = native(name, *operands)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(wanted))
    np.testing.assert_allclose(got, wanted, rtol=5e-7, atol=0 if name != "tan" else 1e-6)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(wanted[~np.isnan(wanted)]))


@pytest.mark.parametrize("name", ["exp", "sin", "pow", "fmod"])
def test_every_width_gives_the_same(name: str) -> None:
    rng = np.random.default_rng(5)
    operands = [
        np.abs(rng.standard_normal(64).astype(np.float32)) * 3 for _ in range(2 if name in ("pow", "fmod") else 1)
    ]
    wide = native(name, *operands, lanes=16)
    for lanes in (1, 2, 4, 8, 32):
        np.testing.assert_array_equal(native(name, *operands, lanes=lanes), wide)
