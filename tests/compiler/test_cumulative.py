"""Cumulative windows: running totals are those of the windows taken one by one, and lose little where sums are long."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from shardc.hlo.evaluate import evaluate
from tests.compiler.checking import compiled_results, program

BODY = """
op {{ a = {0}[] parameter(0)
  b = {0}[] parameter(1)
  ROOT r = {0}[] {1}(a, b) }}
"""
#: One step of a recurrence x -> c x + d after another, modulo 2^32: associative, but the order matters.
STEPS = """
op { a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ca = s32[] multiply(c, a)
  cb = s32[] multiply(c, b)
  s = s32[] add(cb, d)
  ROOT r = (s32[], s32[]) tuple(ca, s) }
"""
LINES = [((7,), 0), ((300,), 0), ((5, 33), 1), ((5, 33), 0), ((3, 4, 1), 1), ((2, 6, 50), 1), ((4500, 3), 0)]


def windows(dims: tuple[int, ...], d: int, size: int, low: int, high: int) -> str:
    sizes = "x".join(str(size if k == d else 1) for k in range(len(dims)))
    pads = "x".join(f"{low}_{high}" if k == d else "0_0" for k in range(len(dims)))
    return f"window={{size={sizes} pad={pads}}}"


def both_ways(dims: tuple[int, ...], d: int) -> list[str]:
    """Windows up to an element, longer ones, and windows from an element on."""
    sides = ((dims[d] - 1, 0), (dims[d] + 1, 0), (0, dims[d] - 1))
    return [windows(dims, d, max(low, high) + 1, low, high) for low, high in sides]


#: Reducers by type: exact ones, and for short windows also sums, which are taken one by one.
OPCODES = {"pred": ["xor", "or"], "s8": ["multiply", "minimum"], "c64": []}
SHORT = 16


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8", "pred", "c64", "f64"])
@pytest.mark.parametrize("dims, d", [*LINES[:-1], ((16,), 0), ((2, 9, 40), 1)])
def test_one_pass_is_every_window(dtype: str, dims: tuple[int, ...], d: int) -> None:
    rng = np.random.default_rng(4)
    text = f"{dtype}[{','.join(map(str, dims))}]"
    sums = [] if dims[d] > SHORT or dtype in ("s8", "pred") else ["add"]
    for opcode in (*OPCODES.get(dtype, ["maximum"]), *sums):
        for window in both_ways(dims, d):
            module = program(
                f"x = {text} parameter(0)\nz = {dtype}[] constant({'(1, 2)' if dtype == 'c64' else '1'})\n"
                f"ROOT r = {text} reduce-window(x, z), {window}, to_apply=op",
                BODY.format(dtype, opcode),
            )
            x = (rng.standard_normal(dims) * 3).astype(module.parameters[0].shape.dtype.numpy)
            (got,), (wanted,) = compiled_results(module, [x]), evaluate(module, [x])
            np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "c64", "f64"])
@pytest.mark.parametrize("dims, d", LINES)
def test_sums_are_those_of_more_bits(dtype: str, dims: tuple[int, ...], d: int) -> None:
    text = f"{dtype}[{','.join(map(str, dims))}]"
    for k, window in enumerate(both_ways(dims, d)):
        module = program(
            f"x = {text} parameter(0)\nz = {dtype}[] constant({'(1, 2)' if dtype == 'c64' else '1'})\n"
            f"ROOT r = {text} reduce-window(x, z), {window}, to_apply=op",
            BODY.format(dtype, "add"),
        )
        kind = module.parameters[0].shape.dtype.numpy
        x = (np.random.default_rng(5).random(dims) * 3).astype(kind)
        given = x.astype(np.clongdouble if dtype == "c64" else np.longdouble)
        turned = np.flip(given, d) if k == 2 else given
        wanted = np.cumsum(turned, d) + (1 + 2j if dtype == "c64" else 1)
        (got,) = compiled_results(module, [x])
        parts = kind.type(0).real.dtype
        # One rounding to 16 bits; else one per level of a block of 16, and a few of the blocks. Short ones: one each.
        roundings = dims[d] / 2 if dims[d] <= SHORT else 0.51 if parts.itemsize == 2 else 8
        rtol = float(ml_dtypes.finfo(parts).eps) * max(roundings, 0.51)
        np.testing.assert_allclose(got.astype(wanted.dtype), np.flip(wanted, d) if k == 2 else wanted, rtol=rtol)


def test_sums_of_many_go_on_growing() -> None:
    n = 1 << 20
    for dtype, kind, most in (("bf16", ml_dtypes.bfloat16, 2.0**-8), ("f32", np.dtype(np.float32), 2.0**-21)):
        module = program(
            f"x = {dtype}[{n}] parameter(0)\nz = {dtype}[] constant(0)\n"
            f"ROOT r = {dtype}[{n}] reduce-window(x, z), {windows((n,), 0, n, 0, n - 1)}, to_apply=op",
            BODY.format(dtype, "add"),
        )
        x = np.full(n, 0.1, kind)
        (got,) = compiled_results(module, [x])
        wanted = np.arange(n, 0, -1) * np.float64(x[0])
        np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=most)


@pytest.mark.parametrize("low, high", [(256, 0), (0, 256)])
def test_what_follows_a_nan_is_one(low: int, high: int) -> None:
    module = program(
        f"x = f64[3,257] parameter(0)\nz = f64[] constant(-inf)\n"
        f"ROOT r = f64[3,257] reduce-window(x, z), {windows((3, 257), 1, 257, low, high)}, to_apply=op",
        BODY.format("f64", "maximum"),
    )
    x = np.random.default_rng(7).standard_normal((3, 257))
    x[1, 133], x[2, 256] = np.nan, np.nan
    given = x if low else x[:, ::-1]
    (got,) = compiled_results(module, [np.ascontiguousarray(given)])
    np.testing.assert_array_equal(got if low else got[:, ::-1], np.maximum.accumulate(x, axis=1))


@pytest.mark.parametrize("dims, d", [((6, 21), 0), ((300,), 0), ((2, 37, 3), 1)])
def test_several_arrays_run_together_in_their_order(dims: tuple[int, ...], d: int) -> None:
    text = f"s32[{','.join(map(str, dims))}]"
    rng = np.random.default_rng(6)
    args = [rng.integers(-9, 9, dims, np.int32) for _ in range(2)]
    for window in both_ways(dims, d):
        module = program(
            f"x = {text} parameter(0)\ny = {text} parameter(1)\nz = s32[] constant(1)\nk = s32[] constant(0)\n"
            f"ROOT r = ({text}, {text}) reduce-window(x, y, z, k), {window}, to_apply=op",
            STEPS,
        )
        for got, wanted in zip(compiled_results(module, args), evaluate(module, args), strict=True):
            np.testing.assert_array_equal(got, wanted)
