"""Rows made of several dimensions, where some values are read by one of those only."""

from __future__ import annotations

import pytest

from tests.compiler.checking import SUM, check, program


@pytest.mark.parametrize("inner", [24, 20, 7, 64, 1024])
@pytest.mark.parametrize("by", [0, 1, 2])
def test_normalising_blocks(inner: int, by: int) -> None:
    size = (5, 6, inner)[by]
    module = program(f"""
  x = f32[5,6,{inner}] parameter(0)
  m = f32[{size}] parameter(1)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  b = f32[5,6,{inner}] broadcast(m), dimensions={{{by}}}
  d = f32[5,6,{inner}] subtract(x, b)
  a = f32[5,6,{inner}] abs(d)
  s = f32[5] reduce(a, zero), dimensions={{1,2}}, to_apply=sum
  ones = f32[5] broadcast(one), dimensions={{}}
  n = f32[5] add(s, ones)
  w = f32[5,6,{inner}] broadcast(n), dimensions={{0}}
  ROOT y = f32[5,6,{inner}] divide(d, w)""")
    check(module)


@pytest.mark.parametrize("dims", [(3, 4, 24), (4, 3, 8), (2, 3, 5), (6, 1, 16)])
def test_everything_is_one_row(dims: tuple[int, int, int]) -> None:
    a, b, c = dims
    shape = f"f32[{a},{b},{c}]"
    module = program(f"""
  x = {shape} parameter(0)
  m = f32[{a},{b}] parameter(1)
  k = f32[{b},{c}] parameter(2)
  low = f32[] constant(-inf)
  p = {shape} broadcast(m), dimensions={{0,1}}
  q = {shape} broadcast(k), dimensions={{1,2}}
  d = {shape} subtract(x, p)
  e = {shape} multiply(d, q)
  s = f32[] reduce(e, low), dimensions={{0,1,2}}, to_apply=max
  w = {shape} broadcast(s), dimensions={{}}
  ROOT y = {shape} subtract(e, w)""", before=SUM)  # fmt: skip
    check(module)
