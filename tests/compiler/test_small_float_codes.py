"""Narrow floats code by code: what only moves keeps its bits, what is converted rounds to nearest even."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.ir.types import DTYPES
from shardc.hlo.ir.types import array_shape as f
from tests.compiler.kernel_runner import Array, compile_and_run, instruction

SMALL = [d.name for d in DTYPES.values() if d.is_float and d.bits < 32]


def codes(dtype: str) -> Array:
    """Every code of a type of whole bytes; signalling NaNs too."""
    d = DTYPES[dtype]
    count = 1 << (d.nbytes * 8 if d.bits in (8, 16) else d.bits)
    return np.arange(count).astype(f"uint{d.nbytes * 8}").view(d.numpy)


def bits(a: Array) -> Array:
    return a.view(f"uint{a.dtype.itemsize * 8}")


@pytest.mark.parametrize("dtype", SMALL)
def test_what_moves_keeps_its_bits(dtype: str) -> None:
    x = codes(dtype)
    n = x.size
    s = f(dtype, n)
    back = x[::-1].copy()
    p = np.arange(n) % 3 == 0
    (got,) = compile_and_run(instruction("select", f("pred", n), s, s), [p, x, back])
    np.testing.assert_array_equal(bits(got), np.where(p, bits(x), bits(back)))
    padding = ((3, 2, 0),)
    for fill in x[[0, 1, n // 2, n - 1]]:
        (got,) = compile_and_run(instruction("pad", s, f(dtype), padding=padding), [x, np.array(fill)])
        np.testing.assert_array_equal(bits(got)[3:-2], bits(x))
        np.testing.assert_array_equal(bits(got)[[0, -1]], bits(np.array([fill, fill])))
    (got,) = compile_and_run(instruction("concatenate", s, s, dimensions=(0,)), [x, back])
    np.testing.assert_array_equal(bits(got), np.concatenate([bits(x), bits(back)]))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_conversions_round_to_nearest_even(dtype: str) -> None:
    """All values, and what lies between each two of them, exactly and by one f32 to either side."""
    x = codes(dtype)
    n = x.size
    (wide,) = compile_and_run(instruction("convert", f(dtype, n), shape=f("f32", n)), [x])
    with np.errstate(invalid="ignore"):  # signalling NaNs
        np.testing.assert_array_equal(wide, x.astype(np.float32))
    finite = np.sort(wide[np.isfinite(wide)])
    middle = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    values = np.concatenate(
        [finite, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, -np.float32(np.inf))]
    )
    values = np.concatenate([values, np.float32([np.inf, -np.inf, 65519.9, 65520, 3.4e38, -3.4e38, 1e-45, -1e-45])])
    (got,) = compile_and_run(instruction("convert", f("f32", values.size), shape=f(dtype, values.size)), [values])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(bits(got), bits(values.astype(x.dtype)))


def test_floats_to_integers_saturate() -> None:
    edges = [
        0.0,
        0.5,
        -0.5,
        0.99,
        127.5,
        128.0,
        -128.9,
        -129.0,
        255.9,
        256.0,
        65535.5,
        65536.0,
        np.nan,
        np.inf,
        -np.inf,
    ]
    for power in (31, 32, 63, 64):
        for v in (2.0**power, -(2.0**power)):
            edges += [v, np.nextafter(v, 0), np.nextafter(v, np.inf), np.nextafter(v, -np.inf)]
    for source in ("f32", "f64"):
        with np.errstate(over="ignore"):
            x = np.array(edges).astype(DTYPES[source].numpy)
        for target in ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"):
            info = np.iinfo(DTYPES[target].numpy)
            wanted = [0 if np.isnan(v) else int(max(min(v, 2.0**70), -(2.0**70))) for v in x.tolist()]
            wanted = [max(info.min, min(info.max, w)) for w in wanted]
            (got,) = compile_and_run(instruction("convert", f(source, x.size), shape=f(target, x.size)), [x])
            assert got.tolist() == wanted, (source, target)


@pytest.mark.parametrize("dtype", ["s8", "u8", "s16", "u16", "s32", "u32"])
def test_integer_division_is_exact(dtype: str) -> None:
    """Quotients just below and at whole numbers, of the largest dividends."""
    d = DTYPES[dtype]
    info = np.iinfo(d.numpy)
    rng = np.random.default_rng(0)
    y = rng.integers(info.min, info.max, 3000, endpoint=True)
    y[y == 0] = 1
    k = rng.integers(0, 1 << (d.bits // 2), 3000)
    x = np.concatenate([np.clip(y * k + e, info.min, info.max) for e in (-1, 0, 1)] + [np.full(3000, info.max)])
    y = np.concatenate([y] * 4)
    operands = [x.astype(d.numpy), y.astype(d.numpy)]
    shapes = [f(dtype, x.size)] * 2
    (quotient,) = compile_and_run(instruction("divide", *shapes), operands)
    (rest,) = compile_and_run(instruction("remainder", *shapes), operands)
    wanted = [abs(int(u)) // abs(int(v)) * (1 if (u < 0) == (v < 0) else -1) for u, v in zip(x, y, strict=True)]
    wanted_array = np.array(wanted).astype(d.numpy)  # the lowest value over -1 wraps around
    np.testing.assert_array_equal(quotient, wanted_array)
    np.testing.assert_array_equal(rest, (x - np.array(wanted) * y).astype(d.numpy))
