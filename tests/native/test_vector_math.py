"""Elementary functions: error in ulp against mpmath over their whole range, special values, any vector width."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from llvmlite import ir

from shardc.native.llvm import jit
from shardc.native.llvm.target import host_target, named_target
from shardc.native.math import vector_math
from shardc.native.math.vector import F32, F64, I64, PTR, constant, with_lanes

UNARY = [n for n in vector_math.F32_FUNCTIONS if n not in ("pow", "atan2")]
CUBES = ("inverse_root_cubed", "inverse_root_cubed_of_positive")
REFERENCE: dict[str, Callable[..., object]] = {
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "pow": mpmath.power,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x) if x else mpmath.inf,
    **dict.fromkeys(CUBES, lambda x: mpmath.power(x, -1.5) if x else mpmath.inf),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
}
OTHERS = [c for c in ("x86-64", "x86-64-v3") if host_target().triple.startswith("x86_64")]
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
def function(name: str, lanes: int, count: int, double: bool = False, cpu: str = "") -> tuple[jit.Loaded, int]:
    """A loop over ``lanes`` elements at a time; the arguments are arrays, the last one the result."""
    target = named_target(cpu) if cpu else host_target()
    module = jit.new_module(name, target)
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
    loaded = jit.load_object(jit.compile_ir(module, target), ["f"])
    return loaded, loaded.address("f")


def native(name: str, *operands: np.ndarray, lanes: int = 16, cpu: str = "") -> np.ndarray:
    dtype = operands[0].dtype
    n = -(-len(operands[0]) // lanes) * lanes
    padded = [np.resize(x, n).astype(dtype) for x in operands]
    out = np.empty(n, dtype)
    _, address = function(name, lanes, len(operands), dtype == np.float64, cpu)
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(operands) + 1), ctypes.c_int64)
    signature(address)(*(p.ctypes.data for p in padded), out.ctypes.data, n)
    return out[: len(operands[0])]


def reference(name: str, *operands: np.ndarray) -> list[object]:
    f = REFERENCE.get(name) or getattr(mpmath, name)
    with mpmath.workprec(max(160, mpmath.mp.prec)):
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
    if name in ("log", "acosh", *CUBES):
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


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_f32_functions_of_angles_are_rounded_once(name: str) -> None:
    """Programs multiply them by others, or divide by them, and are compared within 3 ulp."""
    x = np.random.default_rng(11).standard_normal(2000) * np.repeat([0.1, 3, 300, 1e5], 500)
    x = x.astype(np.float32)
    assert worst_ulp(native(name, x), reference(name, x)) <= 0.6


@pytest.mark.parametrize("cpu", ["", *OTHERS])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inverse_roots_are_rounded_once(dtype: type, cpu: str) -> None:
    """Powers multiply them. Where products are not fused with sums, the last step cannot see what it rounds off."""
    x = np.random.default_rng(12).uniform(1, 4, 4000).astype(dtype)
    assert worst_ulp(native("rsqrt", x, cpu=cpu), reference("rsqrt", x)) <= (0.9 if cpu == "x86-64" else 0.65)


@pytest.mark.parametrize("cpu", ["", *OTHERS])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cubes_of_inverse_roots(dtype: type, cpu: str) -> None:
    """Over two octaves, which are all that mantissas know of; with and without an estimate or a fused sum."""
    x = np.random.default_rng(13).uniform(1, 4, 1 << 16 if dtype == np.float32 else 2000).astype(dtype)
    got = native(CUBES[1], x, cpu=cpu)
    if dtype == np.float64:
        assert worst_ulp(got, reference(CUBES[1], x)) <= 4
        return
    wanted = 1 / (x.astype(np.float64) * np.sqrt(x.astype(np.float64)))
    assert (np.abs(got - wanted) <= 4 * np.spacing(wanted.astype(np.float32))).all()


@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_error_of_f32_functions_of_two(name: str) -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal(1000) * rng.choice([1e-3, 1, 30], 1000) for _ in range(2))
    if name == "pow":
        x = np.abs(x)
    x, y = x.astype(np.float32), y.astype(np.float32)
    assert worst_ulp(native(name, x, y), reference(name, x, y)) <= 3


def magnitudes(dtype: type, count: int, seed: int) -> np.ndarray:
    """Numbers of every exponent and sign, denormal ones too."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    exponents = np.linspace(info.minexp - info.nmant, info.maxexp - 1, count).astype(np.int64)
    with np.errstate(under="ignore"):
        return (rng.choice([-1, 1], count) * np.ldexp(rng.uniform(1, 2, count), exponents)).astype(dtype)


def in_domain(name: str, x: np.ndarray) -> np.ndarray:
    """Those where the function is a finite number that is worth computing."""
    most = {"sin": 1e15, "cos": 1e15, "tan": 1e15}.get(name, np.inf)
    if name in ("exp", "expm1", "logistic", "sinh", "cosh"):
        most = 744.0 if x.dtype == np.float64 else 103.0
    least = {"log": 0.0, "acosh": 1.0, "log1p": -1.0, **dict.fromkeys(CUBES, 0.0)}.get(name, -np.inf)
    if name in ("asin", "acos", "atanh"):
        most = 1 - 1e-9
    return x[(np.abs(x) < most) & (x > least)]


def covering(name: str, dtype: type, count: int, seed: int = 11) -> tuple[np.ndarray, ...]:
    """Arguments of every exponent, and more where functions change their ways."""
    rng = np.random.default_rng(seed)
    near = rng.standard_normal(count) * rng.choice([1e-8, 1e-3, 0.1, 0.5, 1, 5, 40, 300], count)
    around = np.concatenate(
        [1 + rng.standard_normal(count // 4) * 1e-3, rng.integers(1, 2**20, count // 4) * np.pi / 2]
    )
    x = np.concatenate([magnitudes(dtype, count // 2, seed), near, around]).astype(dtype)
    if name == "atan2":
        return x, rng.permutation(x)
    if name != "pow":
        return (in_domain(name, x),)
    x = np.abs(x[np.isfinite(x) & (x != 0)])
    y = (rng.uniform(-1, 1, x.size) * 700 / np.maximum(np.abs(np.log(x.astype(np.float64))), 1e-3)).astype(dtype)
    y = y if dtype == np.float64 else (y / 8).astype(dtype)
    return x, y


def check_error(name: str, dtype: type, count: int, cpu: str = "", seed: int = 11) -> None:
    operands = covering(name, dtype, count, seed)
    with mpmath.workprec(1200):  # enough to reduce any argument of sin
        wanted = reference(name, *operands)
    assert worst_ulp(native(name, *operands, lanes=8, cpu=cpu), wanted) <= 3


@pytest.mark.parametrize("name", sorted(vector_math.F64_FUNCTIONS))
def test_error_of_f64_functions(name: str) -> None:
    check_error(name, np.float64, 300)


#: Functions without a fused multiply-add, and with half as wide vectors.
@pytest.mark.parametrize("cpu", OTHERS)
@pytest.mark.parametrize("name", ["exp", "log", "sin", "pow", "erf", "log1p"])
def test_error_on_other_cpus(name: str, cpu: str) -> None:
    if cpu == "x86-64-v3" and "+fma" not in host_target().features:
        pytest.skip("this CPU has no AVX2")
    for dtype in (np.float32, np.float64):
        check_error(name, dtype, 120, cpu)


@pytest.mark.full
@pytest.mark.parametrize("cpu", ["", *OTHERS])
@pytest.mark.parametrize("name", sorted(vector_math.F64_FUNCTIONS))
def test_error_over_many_numbers(name: str, cpu: str) -> None:
    for dtype in (np.float32, np.float64):
        check_error(name, dtype, 1500, cpu, seed=12)


NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "logistic": lambda x: 1 / (1 + np.exp(-x)), "erf": np.vectorize(__import__("math").erf), "asin": np.arcsin,
    "acos": np.arccos, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "atan2": np.arctan2,
    "pow": np.power, "rsqrt": lambda x: 1 / np.sqrt(x), **dict.fromkeys(CUBES, lambda x: np.power(x, -1.5)),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(vector_math.F32_FUNCTIONS))
def test_special_values(name: str) -> None:
    x = np.array(SPECIAL, np.float32)
    x = np.abs(x) if name == CUBES[1] else x
    operands = [x] if name in UNARY else [g.reshape(-1) for g in np.meshgrid(x, x)]
    with np.errstate(all="ignore"):
        f = NUMPY.get(name) or getattr(np, name)
        wanted = np.asarray(f(*(o.astype(np.float64) for o in operands))).astype(np.float32)
    got = native(name, *operands)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(wanted))
    np.testing.assert_allclose(got, wanted, rtol=5e-7, atol=0 if name != "tan" else 1e-6)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(wanted[~np.isnan(wanted)]))


@pytest.mark.parametrize("name", sorted(vector_math.F64_FUNCTIONS))
def test_special_values_of_f64_functions(name: str) -> None:
    """Against NumPy in a wider type, within 3 ulp; signs of zeros too."""
    more = [5e-324, -1e-310, 1e300, -1e22, 709.7, 710.2, -745.1, -745.2, 0.25, 2.0**53, -(2.0**53) - 1]
    x = np.array([v for v in SPECIAL if not 0 < abs(v) < 1e-37] + more)
    x = np.abs(x) if name == CUBES[1] else x
    operands = [x] if name in UNARY else [g.reshape(-1) for g in np.meshgrid(x, x)]
    f = NUMPY.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        wide = operands if name == "erf" else [o.astype(np.longdouble) for o in operands]
        wanted = np.asarray(f(*wide)).astype(np.float64)
        got = native(name, *operands, lanes=8)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        finite = np.isfinite(wanted)
        np.testing.assert_array_equal(got[np.isinf(wanted)], wanted[np.isinf(wanted)])
        assert (np.abs(got - wanted)[finite] <= 3 * np.spacing(np.abs(wanted[finite]))).all()
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(wanted[~np.isnan(wanted)]))


@pytest.mark.parametrize("name", ["exp", "sin", "pow", "fmod", "rsqrt", *CUBES])
def test_every_width_gives_the_same(name: str) -> None:
    rng = np.random.default_rng(5)
    operands = [
        np.abs(rng.standard_normal(64).astype(np.float32)) * 3 for _ in range(2 if name in ("pow", "fmod") else 1)
    ]
    wide = native(name, *operands, lanes=16)
    for lanes in (1, 2, 4, 8, 32):
        np.testing.assert_array_equal(native(name, *operands, lanes=lanes), wide)
