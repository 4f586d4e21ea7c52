"""Elementwise meaning against XLA: every element type, special values, XLA's integer rules."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from evaluator_truth import agree, jax

from shardc.hlo.evaluate import evaluate_computation
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.types import array_shape

lax, jnp = jax.lax, jax.numpy

FLOATS = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TOLERANCE = {"f64": 1e-12, "f32": 2e-6, "f16": 2e-3, "bf16": 1.6e-2}
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
UNARY = (
    "abs acos acosh asin asinh atan atanh cbrt ceil cos cosh erf exp expm1 floor is_finite log log1p logistic neg "
    "round rsqrt sign sin sinh sqrt tan tanh"
)


def specials(kind: Any) -> Any:
    values = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -1.5, 2.5, -2.5, 0.5, -0.5, 3e4, 3e9, -3e9, 200.0, -200.0, 0.3]
    with np.errstate(over="ignore"):
        return np.array(values, dtype=kind)


def edges(kind: str) -> Any:
    i = np.iinfo(kind)
    values = [0, 1, 2, 3, 7, 8, 16, 31, 32, 63, 64, 100, i.max, i.min, i.max - 1, i.min + 1]
    if i.min < 0:
        values += [-1, -2, -3, -7, -100]
    return np.array(values, dtype=kind)


def pairs(name: str) -> Any:
    """A binary op on every pair of elements."""
    return lambda x: getattr(lax, name)(*jnp.broadcast_arrays(x[:, None], x[None, :]))


@pytest.mark.parametrize("kind", FLOATS)
def test_unary_floats(kind: str) -> None:
    x = np.concatenate([specials(FLOATS[kind]), np.linspace(-3, 3, 41).astype(FLOATS[kind])])

    def everything(x: Any) -> Any:
        return [getattr(lax, name)(x) for name in UNARY.split()]

    agree(everything, x, tolerance=TOLERANCE[kind])


@pytest.mark.parametrize("kind", FLOATS)
def test_binary_floats(kind: str) -> None:
    x = specials(FLOATS[kind])

    def everything(x: Any) -> Any:
        results = [pairs(name)(x) for name in ("add", "sub", "mul", "div", "rem", "atan2", "eq", "ne", "lt", "ge")]
        # The sign of max(0, -0) is unspecified.
        return results + [abs(pairs(name)(x)) for name in ("max", "min")]

    agree(everything, x, tolerance=TOLERANCE[kind])


@pytest.mark.parametrize("kind", FLOATS)
def test_power(kind: str) -> None:
    x = np.linspace(0.1, 3, 20).astype(FLOATS[kind])
    agree(pairs("pow"), x, tolerance=TOLERANCE[kind])


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers(kind: str) -> None:
    binary = "add sub mul div rem max min bitwise_and bitwise_or bitwise_xor shift_left shift_right_arithmetic "
    binary += "shift_right_logical eq lt ge"

    def everything(x: Any) -> Any:
        unary = [getattr(lax, name)(x) for name in ("neg", "sign", "bitwise_not", "population_count", "clz")]
        return unary + [pairs(name)(x) for name in binary.split()] + [lax.integer_pow(x, 5)]

    agree(everything, edges(kind))


@pytest.mark.parametrize("kind", ["int4", "uint4"])
def test_sub_byte_integers(kind: str) -> None:
    x = np.arange(-8 if kind == "int4" else 0, 8 if kind == "int4" else 16).astype(kind)

    def everything(x: Any) -> Any:
        return [pairs(name)(x).astype(np.int32) for name in ("add", "sub", "mul", "max", "bitwise_xor", "lt")]

    agree(everything, x)


TARGETS = (*INTEGERS, "bool", "int4", "uint4", "float16", "bfloat16", "float32", "float64", "complex64")
TARGETS += ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz")


@pytest.mark.parametrize("source", [*FLOATS, "int32", "uint8", "int64"])
def test_convert(source: str) -> None:
    x = specials(FLOATS[source]) if source in FLOATS else edges(source)

    def everything(x: Any) -> Any:
        return [lax.convert_element_type(x, t) for t in TARGETS]

    agree(everything, x)


@pytest.mark.parametrize(("source", "target"), [("float32", "int8"), ("uint8", "uint32"), ("float64", "float32")])
def test_bitcast_convert(source: str, target: str) -> None:
    x = (np.random.default_rng(0).standard_normal((2, 4)) * 50).astype(source)
    agree(lambda x: lax.bitcast_convert_type(x, target), x)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("bits", [(5, 10), (8, 7), (4, 3), (5, 2), (8, 0), (2, 1)])
def test_reduce_precision(kind: str, bits: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(100)
    x = np.concatenate([specials(FLOATS[kind]), x.astype(FLOATS[kind]), (x * 1e-4).astype(FLOATS[kind])])
    agree(lambda x: lax.reduce_precision(x, *bits), x)


def test_complex() -> None:
    r = np.random.default_rng(0)
    z = (r.standard_normal((4, 4)) + 1j * r.standard_normal((4, 4))).astype(np.complex64)

    def everything(z: Any, w: Any) -> Any:
        unary = "abs exp log sqrt rsqrt sin cos log1p expm1 neg sign real imag conj tanh logistic"
        binary = "add sub mul div pow eq ne"
        results = [getattr(lax, name)(z) for name in unary.split()]
        return results + [getattr(lax, name)(z, w) for name in binary.split()] + [lax.complex(z.real, w.imag)]

    agree(everything, z, z[::-1], tolerance=3e-6)


def test_predicates_clamp_and_select() -> None:
    p = np.array([True, False, True])
    x = np.array([np.nan, -3.0, 9.0], np.float32)

    def everything(p: Any, x: Any) -> Any:
        logic = [pairs(name)(p) for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "max", "min", "eq", "lt")]
        return [
            *logic,
            lax.bitwise_not(p),
            lax.clamp(np.float32(-1), x, np.float32(2)),
            jnp.where(p, x, 0),
            lax.select(p[0], x, -x),
        ]

    agree(everything, p, x)


def test_curves_are_rounded_once() -> None:
    """Elementary functions of f32 are the f64 ones, rounded: NumPy's own f32 code is up to 4 ulp off."""
    x = np.linspace(0.01, 0.99, 999, dtype=np.float32)
    for opcode, function in (("sine", np.sin), ("exponential", np.exp), ("log", np.log), ("tanh", np.tanh)):
        b = Builder("program")
        root = b.add(opcode, b.parameter(array_shape("f32", 999)))
        got = evaluate_computation(b.build(root), [x])
        np.testing.assert_array_equal(got, function(x.astype(np.float64)).astype(np.float32), err_msg=opcode)
