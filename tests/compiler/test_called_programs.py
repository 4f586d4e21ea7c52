"""Called computations that are programs: loops, branches and arrays inside map, reduce, sort, scatter, windows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.checking import check, program

BODIES = """
below { s = (f32[], f32[]) parameter(0)
  v = f32[] get-tuple-element(s), index=0
  w = f32[] get-tuple-element(s), index=1
  ROOT c = pred[] compare(v, w), direction=LT }
twice { s = (f32[], f32[]) parameter(0)
  v = f32[] get-tuple-element(s), index=0
  w = f32[] get-tuple-element(s), index=1
  d = f32[] add(v, v)
  ROOT r = (f32[], f32[]) tuple(d, w) }
grown { a = f32[] parameter(0)
  b = f32[] parameter(1)
  h = f32[] constant(0.01)
  m = f32[] abs(a)
  n = f32[] maximum(m, h)
  q = f32[] abs(b)
  s = (f32[], f32[]) tuple(n, q)
  w = (f32[], f32[]) while(s), condition=below, body=twice
  ROOT r = f32[] get-tuple-element(w), index=0 }
up { p = f32[] parameter(0)
  ROOT e = f32[] exponential(p) }
down { p = f32[] parameter(0)
  ROOT e = f32[] negate(p) }
chosen { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = pred[] compare(a, b), direction=LT
  x = f32[] conditional(c, a, b), true_computation=up, false_computation=down
  ROOT r = f32[] add(x, b) }
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
same { p = f32[] parameter(0)
  ROOT e = f32[] copy(p) }
greater { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = pred[] compare(a, b), direction=LT
  ROOT x = f32[] conditional(c, b, a), true_computation=same, false_computation=same }
table { a = f32[] parameter(0)
  b = f32[] parameter(1)
  t = f32[4] constant({1, -1, 2, 0.5})
  z = s32[] constant(0)
  m = f32[] maximum(a, b)
  f = f32[] abs(m)
  k = s32[] convert(f)
  e = f32[1] dynamic-slice(t, k), dynamic_slice_sizes={1}
  y = f32[] constant(0)
  ROOT s = f32[] reduce(e, y), dimensions={0}, to_apply=add }
remainder { a = s32[] parameter(0)
  b = s32[] parameter(1)
  t = s32[3] constant({5, 3, 4})
  n = s32[] constant(3)
  i = s32[] remainder(a, n)
  j = s32[] remainder(b, n)
  u = s32[1] dynamic-slice(t, i), dynamic_slice_sizes={1}
  v = s32[1] dynamic-slice(t, j), dynamic_slice_sizes={1}
  x = s32[] reshape(u)
  y = s32[] reshape(v)
  ROOT r = pred[] compare(x, y), direction=LT }
pair { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  x = f32[2] broadcast(a), dimensions={}
  s = f32[] constant(-inf)
  y = f32[] reduce(x, s), dimensions={0}, to_apply=max
  v = f32[] maximum(y, b)
  k = s32[] add(i, j)
  ROOT r = (f32[], s32[]) tuple(v, k) }
"""

CASES = {
    "map": "ROOT r = f32[3,37] map(x, y), dimensions={0,1}, to_apply=grown",
    "map of branches": "n = f32[3,37] negate(x)\nm = f32[3,37] map(n, y), dimensions={0,1}, to_apply=chosen\n"
    "ROOT r = f32[3,37] add(m, x)",
    "reduce rows": "ROOT r = f32[3] reduce(x, z), dimensions={1}, to_apply=greater",
    "reduce columns": "ROOT r = f32[37] reduce(x, z), dimensions={0}, to_apply=greater",
    "reduce window": "ROOT r = f32[3,36] reduce-window(x, z), window={size=2x2 pad=1_0x0_0}, to_apply=table",
    "variadic reduce": "i = s32[3,37] iota(), iota_dimension=1\nk = s32[] constant(1)\n"
    "ROOT r = (f32[3], s32[3]) reduce(x, i, z, k), dimensions={1}, to_apply=pair",
    "sort": "i = s32[3,37] iota(), iota_dimension=1\n"
    "ROOT r = s32[3,37] sort(i), dimensions={1}, to_apply=remainder, is_stable=true",
    "scatter": "j = s32[2,1] constant({{2},{0}})\nu = f32[2,37] slice(y), slice={[0:2],[0:37]}\n"
    "ROOT r = f32[3,37] scatter(x, j, u), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=grown",
}


@pytest.mark.parametrize("case", list(CASES))
def test_programs_inside(case: str) -> None:
    module = program(
        f"x = f32[3,37] parameter(0)\ny = f32[3,37] parameter(1)\nz = f32[] constant(0.5)\n{CASES[case]}", BODIES
    )
    rng = np.random.default_rng(3)
    args = [rng.standard_normal((3, 37)).astype(np.float32) for _ in range(2)]
    check(module, args[: len(module.parameters)])


def test_select_and_scatter_with_a_branch() -> None:
    body = (
        BODIES
        + """
ge { a = f32[] parameter(0)
  b = f32[] parameter(1)
  m = f32[] map(a, b), dimensions={}, to_apply=table
  t = f32[2] broadcast(m), dimensions={}
  ROOT c = pred[] compare(a, b), direction=GE }
"""
    )
    module = program(
        "x = f32[6] parameter(0)\ns = f32[3] parameter(1)\nz = f32[] constant(0)\n"
        "ROOT r = f32[6] select-and-scatter(x, s, z), window={size=2 stride=2}, select=ge, scatter=chosen",
        body,
    )
    check(module)
