"""Reducers that do not commute: neighbours stay neighbours, however a reduction is cut into lanes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.checking import compiled_results, program

LAST = """
last { a = f32[] parameter(0)
  b = f32[] parameter(1)
  n = pred[] compare(b, b), direction=NE
  ROOT r = f32[] select(n, a, b) }
first { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  n = pred[] compare(a, a), direction=EQ
  g = pred[] compare(b, a), direction=GT
  m = pred[] compare(b, b), direction=NE
  o = pred[] or(g, m)
  t = pred[] and(n, o)
  v = f32[] select(t, b, a)
  k = s32[] select(t, j, i)
  ROOT r = (f32[], s32[]) tuple(v, k) }
"""


@pytest.mark.parametrize("dims", [(40,), (37,), (3, 32), (8, 5), (64, 2)])
def test_the_last_number_wins(dims: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, *dims)).astype(np.float32)
    x.reshape(5, -1)[:, -9:] = np.nan
    text = ",".join(map(str, dims))
    every = ",".join(str(d + 1) for d in range(len(dims)))
    module = program(
        f"x = f32[5,{text}] parameter(0)\nz = f32[] constant(0)\n"
        f"ROOT r = f32[5] reduce(x, z), dimensions={{{every}}}, to_apply=last",
        LAST,
    )
    (out,) = compiled_results(module, [x])
    np.testing.assert_array_equal(out, x.reshape(5, -1)[:, -10])
    whole = program(
        f"x = f32[{text}] parameter(0)\nz = f32[] constant(0)\n"
        f"ROOT r = f32[] reduce(x, z), dimensions={{{','.join(str(d) for d in range(len(dims)))}}}, to_apply=last",
        LAST,
    )
    assert compiled_results(whole, [x[2]])[0] == x[2].reshape(-1)[-10]


@pytest.mark.parametrize("size", [16, 40, 41])
def test_the_first_nan_or_greatest_wins(size: int) -> None:
    """As argmax with ties and NaN: the position of the first."""
    x = np.random.default_rng(2).integers(0, 4, (3, size)).astype(np.float32)
    x[1, [8, 1, 9]] = np.nan
    for rows in (3, 1):
        module = program(
            f"x = f32[{rows},{size}] parameter(0)\ni = s32[{rows},{size}] iota(), iota_dimension=1\n"
            f"z = f32[] constant(-inf)\nk = s32[] constant(0)\n"
            f"ROOT r = (f32[{rows}], s32[{rows}]) reduce(x, i, z, k), dimensions={{1}}, to_apply=first",
            LAST,
        )
        given = x[3 - rows - (rows == 1) :][:rows]
        _, where = compiled_results(module, [given])
        np.testing.assert_array_equal(where, np.argmax(given, axis=1))
