"""Constants: every bit pattern of every type survives printing and reading."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import DTYPES, DType, array_shape
from shardc.hlo.text.literals import print_literal, read_literal
from shardc.hlo.text.scanner import Scanner

TYPES = [d for d in DTYPES.values() if d.kind not in ("token", "tuple", "opaque")]


def survives(literal: Literal) -> None:
    text = print_literal(literal)
    scanner = Scanner(text)
    back = read_literal(scanner, literal.shape)
    assert scanner.at_end()
    assert back == literal, text


def from_bits(dtype: DType, bits: NDArray[np.uint8]) -> NDArray[Any]:
    if dtype.kind == "pred":
        return (bits & 1).astype(np.bool_)
    if dtype.is_integer and dtype.bits < 8:
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0
        return ((bits & ((1 << dtype.bits) - 1)).astype(np.int64) + low).astype(dtype.numpy)
    if dtype.bits < 8:
        bits = bits & np.uint8((1 << dtype.bits) - 1)
    return bits.view(dtype.numpy)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@settings(deadline=None, derandomize=True, max_examples=20)
@given(data=st.data())
def test_every_bit_pattern(dtype: DType, data: st.DataObject) -> None:
    dims = tuple(data.draw(st.lists(st.integers(0, 3), max_size=3)))
    size = int(np.prod(dims, dtype=np.int64))
    raw = np.frombuffer(data.draw(st.binary(min_size=size * dtype.nbytes, max_size=size * dtype.nbytes)), np.uint8)
    survives(Literal(from_bits(dtype, raw.copy()).reshape(dims)))


@pytest.mark.parametrize("name", [d.name for d in TYPES if d.is_float and d.bits <= 16])
def test_all_values_of_small_floats(name: str) -> None:
    dtype = DTYPES[name]
    codes = np.arange(1 << dtype.bits, dtype=f"u{dtype.nbytes}")
    survives(Literal(codes.view(dtype.numpy)))


def test_special_values_of_wide_floats() -> None:
    f32 = np.array([0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 1, 0x80000000, 0x7F7FFFFF], np.uint32)
    survives(Literal(f32.view(np.float32)))
    f64 = np.array([0x7FF0000000000001, 0xFFF8000000000123, 1, 1 << 63], np.uint64)
    survives(Literal(f64.view(np.float64)))
    survives(Literal(f64.view(np.complex128)))


def test_splats_and_tuples() -> None:
    survives(Literal.full(array_shape("f32", 3, 5), 0.1))
    survives(Literal(elements=(Literal(np.float32(1)), Literal(elements=()), Literal(np.array([True])))))
    splat = read_literal(Scanner("{" + ",".join(["{7,7}"] * 9) + "}"), array_shape("s32", 9, 2))
    assert splat.is_splat and splat.array.shape == (9, 2)


def test_large_constants_are_linear() -> None:
    values = np.random.default_rng(0).standard_normal((300, 1000)).astype(np.float32)
    survives(Literal(values))
