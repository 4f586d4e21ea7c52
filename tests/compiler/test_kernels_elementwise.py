"""Elementwise kernels of every type against the evaluator, special values included."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest

from shardc.hlo.evaluate import evaluate_computation
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.types import DTYPES, Shape
from shardc.hlo.ir.types import array_shape as f
from tests.compiler.kernel_runner import Array, check, compile_and_run, instruction, random

FLOATS = ["f32", "f64", "bf16", "f16"]
SMALL = [d.name for d in DTYPES.values() if d.is_float and d.bits < 32]
INTEGERS = ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "s4", "u4", "s2", "u2"]
COMPLEX = ["c64", "c128"]

EXACT_UNARY = ["abs", "ceil", "floor", "negate", "round-nearest-afz", "round-nearest-even", "sign", "sqrt"]
MATH_UNARY = [
    "exponential",
    "exponential-minus-one",
    "log",
    "log-plus-one",
    "logistic",
    "tanh",
    "sine",
    "cosine",
    "tan",
    "erf",
    "cbrt",
    "rsqrt",
    "asinh",
    "atanh",
    "sinh",
    "cosh",
]


def special(shape: Shape) -> Array:
    """Pairs of awkward values meet in binary ops: the list is cycled with a period that differs per operand."""
    d = shape.dtype
    if d.kind == "pred":
        return random(shape)
    if d.is_integer:
        least, most = (0, 2**d.bits - 1) if d.kind == "unsigned" else (-(2 ** (d.bits - 1)), 2 ** (d.bits - 1) - 1)
        values = [least, most, 0, 1, most - 1, least + 1, min(7, most), max(-1, least), max(-3, least)]
        return np.array(values, np.int64 if least < 0 else np.uint64).astype(d.numpy)
    values = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 3.0, 1e-30, -1e30, 2.5, 1e-45, 255.5, -3e9]
    with np.errstate(all="ignore"):
        return np.array(values).astype(d.numpy)


def crossed(dtype: str, count: int) -> list[Array]:
    """All combinations of special values for ``count`` operands."""
    values = special(f(dtype, 1))
    rows = list(itertools.product(range(len(values)), repeat=count))
    return [values[[r[k] for r in rows]] for k in range(count)]


def both(opcode: str, dtype: str, count: int, *, ulp: float = 0, **attrs: object) -> None:
    operands = crossed(dtype, count)
    shapes = [f(dtype, *x.shape) for x in operands]
    check(instruction(opcode, *shapes, **attrs), operands, ulp=ulp)


@pytest.mark.parametrize("opcode", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
def test_binary(opcode: str) -> None:
    for dtype in [*FLOATS, *INTEGERS, "f8e4m3fn", "f8e5m2"]:
        both(opcode, dtype, 2)


@pytest.mark.parametrize("opcode", ["remainder", "power", "atan2"])
def test_binary_by_library(opcode: str) -> None:
    for dtype in FLOATS:
        operands = [np.abs(x) if opcode == "power" else x for x in crossed(dtype, 2)]
        shapes = [f(dtype, *x.shape) for x in operands]
        check(instruction(opcode, *shapes), operands, ulp=2)
    if opcode != "atan2":
        for dtype in INTEGERS:
            both(opcode, dtype, 2)


@pytest.mark.parametrize("opcode", ["and", "or", "xor", "shift-left", "shift-right-arithmetic", "shift-right-logical"])
def test_bits(opcode: str) -> None:
    for dtype in INTEGERS:
        both(opcode, dtype, 2)
    if not opcode.startswith("shift"):
        both(opcode, "pred", 2)


@pytest.mark.parametrize("opcode", ["abs", "negate", "sign", "not", "popcnt", "count-leading-zeros"])
def test_integer_unary(opcode: str) -> None:
    for dtype in INTEGERS:
        both(opcode, dtype, 1)
    if opcode == "not":
        both(opcode, "pred", 1)


@pytest.mark.parametrize("opcode", EXACT_UNARY)
def test_exact_unary(opcode: str) -> None:
    for dtype in [*FLOATS, "f8e4m3fn", "f8e5m2fnuz", "f8e3m4"]:
        both(opcode, dtype, 1)


@pytest.mark.parametrize("opcode", MATH_UNARY)
def test_math_unary(opcode: str) -> None:
    for dtype in FLOATS:
        x = random(f(dtype, 3, 37))
        x = np.abs(x) if opcode in ("log", "log-plus-one", "rsqrt") else np.tanh(x) if opcode == "atanh" else x
        check(instruction(opcode, f(dtype, 3, 37)), [x.astype(f(dtype).dtype.numpy)], ulp=3)


def test_is_finite_and_reduce_precision() -> None:
    for dtype in FLOATS:
        x = special(f(dtype, 1))
        check(instruction("is-finite", f(dtype, len(x))), [x])
    for exponent, mantissa in ((5, 10), (8, 7), (4, 3), (8, 23), (11, 52)):
        for dtype in ("f32", "f64"):
            x = np.concatenate([special(f(dtype, 1)), random(f(dtype, 200))])
            i = instruction("reduce-precision", f(dtype, len(x)), exponent_bits=exponent, mantissa_bits=mantissa)
            check(i, [x])


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
def test_compare(direction: str) -> None:
    for dtype in [*FLOATS, *INTEGERS, "pred", "f8e4m3fn"]:
        both("compare", dtype, 2, direction=direction)
    for dtype in ("f32", "f64", "bf16"):
        both("compare", dtype, 2, direction=direction, type="TOTALORDER")


def test_select_and_clamp() -> None:
    for dtype in ("f32", "s8", "pred", "c64", "bf16", "u64"):
        s = f(dtype, 5, 21)
        args = [random(f("pred", 5, 21)), random(s, 1), random(s, 2)]
        check(instruction("select", f("pred", 5, 21), s, s), args)
        check(instruction("select", f("pred"), s, s), [np.bool_(True), *args[1:]])
    for dtype in ("f32", "s32", "u8", "f16"):
        s = f(dtype, 5, 21)
        low, high = np.array(0, s.dtype.numpy), np.array(2, s.dtype.numpy)
        check(instruction("clamp", f(dtype), s, f(dtype)), [low, random(s), high])
        check(instruction("clamp", s, s, s), [random(s, 3), random(s), random(s, 4)])


TYPES = [*FLOATS, *SMALL[:-2], *INTEGERS, "pred", *COMPLEX]


@pytest.mark.parametrize("source", TYPES)
def test_convert(source: str) -> None:
    for target in TYPES:
        if source in COMPLEX and target not in COMPLEX:
            continue
        x = random(f(source, 1)) if source in COMPLEX else special(f(source, 1))
        if source == "f64" and DTYPES[target].bits < 32 and DTYPES[target].is_float:
            x = x.astype(np.float32).astype(np.float64)
        check(instruction("convert", f(source, len(x)), shape=f(target, len(x))), [x])


def test_small_floats_decode_and_encode_every_code() -> None:
    rng = np.random.default_rng(0)
    for name in SMALL:
        d = DTYPES[name]
        if d.bits <= 8:
            codes = np.arange(2**d.bits, dtype=np.uint8).view(d.numpy)
            check(instruction("convert", f(name, len(codes)), shape=f("f32", len(codes))), [codes])
        x = rng.integers(0, 2**32, 4000, dtype=np.uint32).view(np.float32)
        x = np.concatenate([x, (rng.standard_normal(4000) * 10).astype(np.float32)])
        x = x[np.isfinite(x)]
        if name == "f8e8m0fnu":
            x = np.abs(x)
            x = x[x > 2.0**-126]
        check(instruction("convert", f("f32", len(x)), shape=f(name, len(x))), [x])


def test_bitcast_convert() -> None:
    for source, target in (("f32", "s32"), ("u64", "f64"), ("bf16", "u16"), ("s16", "f16"), ("f8e5m2", "u8")):
        x = np.arange(0, 200, dtype=f(source).dtype.numpy) if source[0] in "su" else random(f(source, 200))
        check(instruction("bitcast-convert", f(source, 200), shape=f(target, 200)), [x])


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex(dtype: str) -> None:
    s = f(dtype, 3, 21)
    x, y = random(s), random(s, 1)
    part = "f32" if dtype == "c64" else "f64"
    for opcode in ("add", "subtract", "multiply"):
        check(instruction(opcode, s, s), [x, y], ulp=4)
    for opcode in ("abs", "real", "imag"):
        check(instruction(opcode, s, shape=f(part, 3, 21)), [x], ulp=4)
    check(instruction("complex", f(part, 3, 21), f(part, 3, 21)), [x.real.copy(), y.real.copy()])
    check(instruction("compare", s, s, direction="EQ"), [x, np.where(random(f("pred", 3, 21)), x, y)])


#: HLO's complex functions as mpmath has them.
EXACTLY = {
    "abs": abs,
    "acos": mpmath.acos,
    "acosh": mpmath.acosh,
    "asin": mpmath.asin,
    "asinh": mpmath.asinh,
    "atanh": mpmath.atanh,
    "cbrt": mpmath.cbrt,
    "cosh": mpmath.cosh,
    "cosine": mpmath.cos,
    "divide": lambda x, y: x / y,
    "exponential": mpmath.exp,
    "exponential-minus-one": mpmath.expm1,
    "log": mpmath.log,
    "log-plus-one": mpmath.log1p,
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "power": mpmath.power,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sign": lambda x: x / abs(x),
    "sine": mpmath.sin,
    "sinh": mpmath.sinh,
    "sqrt": mpmath.sqrt,
    "tan": mpmath.tan,
    "tanh": mpmath.tanh,
}


def ordinary(dtype: str, seed: int) -> Array:
    """Everyday numbers, small ones, and ones near the unit circle and near -1, where logarithms cancel."""
    x = random(f(dtype, 160), seed).astype(np.complex128)
    x[:40] /= np.abs(x[:40])
    x[:20] *= 1 + 1e-3 * x[20:40].real
    x[40:60] = 0.01 * x[40:60] - 1
    x[60:80] *= 1e-3
    return x.astype(f(dtype).dtype.numpy)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("opcode", EXACTLY)
def test_complex_functions(opcode: str, dtype: str) -> None:
    """Each part of c64 rounded once (and 1e-10); c128 to 4 times 2**-52 of the size."""
    operands = [ordinary(dtype, k) for k in range(2 if opcode in ("divide", "power") else 1)]
    [got] = compile_and_run(instruction(opcode, *(f(dtype, *x.shape) for x in operands)), operands)
    with mpmath.workprec(200):
        rows = zip(*([mpmath.mpc(complex(v)) for v in x] for x in operands), strict=True)
        wanted = [mpmath.mpmathify(EXACTLY[opcode](*row)) for row in rows]
        for g, w, *row in zip(got, wanted, *operands, strict=True):
            parts = [(g.real, w.real, w.real), (g.imag, w.imag, w.imag)]
            if dtype == "c128":
                parts = [(g.real, w.real, w), (g.imag, w.imag, w)]
            ulp = 2.0**-24 + 1e-10 if dtype == "c64" else 4 * 2.0**-52
            for a, b, size in parts:
                assert abs(mpmath.mpf(float(a)) - b) <= ulp * abs(size), (opcode, row, g, w)


def test_complex_powers_with_large_exponents() -> None:
    """Each part to a few ulp of its own, however many turns the exponent makes; the evaluator's, too."""
    shape = f("c128", 200)
    x, y = (3 * random(shape, seed) for seed in (1, 2))
    power = instruction("power", shape, shape)
    [got] = compile_and_run(power, [x, y])
    with np.errstate(all="ignore"):
        evaluated = evaluate_computation(Computation("power", [*power.operands, power], power), [x, y])
    with mpmath.workprec(200):
        for g, e, a, b in zip(got, evaluated, x, y, strict=True):
            wanted = mpmath.power(mpmath.mpc(complex(a)), mpmath.mpc(complex(b)))
            for value in (g, e):
                for part, exact in ((value.real, wanted.real), (value.imag, wanted.imag)):
                    assert abs(mpmath.mpf(float(part)) - exact) <= 8 * 2.0**-52 * abs(exact), (a, b, value, wanted)


def test_bitcast_convert_between_widths() -> None:
    for source, target, ratio in (("f32", "u8", 4), ("u64", "u32", 2), ("f64", "bf16", 4)):
        wide, narrow = f(source, 3, 7), f(target, 3, 7, ratio)
        x = random(wide) if source != "u64" else np.arange(21, dtype=np.uint64).reshape(3, 7) * np.uint64(0x123456789AB)
        check(instruction("bitcast-convert", wide, shape=narrow), [x])
        parts = x.view(narrow.dtype.numpy).reshape(narrow.dims)
        check(instruction("bitcast-convert", narrow, shape=wide), [parts])
