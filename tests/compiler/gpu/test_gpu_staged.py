"""Kernels whose elements need sums: which sums become launches of their own."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.kernel import find_kernel_emitter
from shardc.native.gpu.target import gpu_target
from shardc.native.llvm.jit import new_module
from tests.compiler.gpu.gpu_runner import as_instruction, check_gpu, emulated
from tests.compiler.kernel_runner import random

HEAD = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
best {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(b, a), direction=GT
  m = f32[] select(g, b, a)
  n = s32[] select(g, j, i)
  ROOT r = (f32[], s32[]) tuple(m, n)
}
ENTRY main {
  z = f32[] constant(0)
"""

COLUMNS = """
  x = f32[300,40] parameter(0)
  t = f32[40] reduce(x, z), dimensions={0}, to_apply=add
  b = f32[300,40] broadcast(t), dimensions={1}
  ROOT r = f32[300,40] subtract(x, b)"""

THREE = """
  x = f32[300,40] parameter(0)
  t = f32[] reduce(x, z), dimensions={0,1}, to_apply=add
  b = f32[300,40] broadcast(t), dimensions={}
  u = f32[300] reduce(x, z), dimensions={1}, to_apply=add
  c = f32[300,40] broadcast(u), dimensions={0}
  v = f32[40] reduce(x, z), dimensions={0}, to_apply=add
  d = f32[300,40] broadcast(v), dimensions={1}
  m = f32[300,40] multiply(b, c)
  n = f32[300,40] multiply(m, d)
  ROOT r = f32[300,40] subtract(x, n)"""

CHAINED = """
  x = f32[30,40] parameter(0)
  y = f32[40,70] parameter(1)
  t = f32[40] reduce(x, z), dimensions={0}, to_apply=add
  b = f32[30,40] broadcast(t), dimensions={1}
  s = f32[30,40] subtract(x, b)
  q = f32[30,70] dot(s, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  u = f32[30] reduce(q, z), dimensions={1}, to_apply=add
  c = f32[30,70] broadcast(u), dimensions={0}
  p = f32[30,70] multiply(q, c)
  ROOT r = f32[70,30] transpose(p), dimensions={1,0}"""

JOINED = """
  x = f32[30,400] parameter(0)
  y = f32[6] parameter(1)
  u = f32[30] reduce(x, z), dimensions={1}, to_apply=add
  ROOT p = f32[36] concatenate(u, y), dimensions={0}"""

TUPLES = """
  x = f32[90,12] parameter(0)
  i = s32[90,12] iota(), iota_dimension=0
  k = s32[] constant(0)
  w = (f32[12], s32[12]) reduce(x, i, z, k), dimensions={0}, to_apply=best
  m = f32[12] get-tuple-element(w), index=0
  n = s32[12] get-tuple-element(w), index=1
  f = f32[12] convert(n)
  s = f32[12] multiply(m, f)
  ROOT b = f32[5,12] broadcast(s), dimensions={1}"""

SHORT = """
  x = f32[30,3] parameter(0)
  y = f32[6] parameter(1)
  u = f32[30] reduce(x, z), dimensions={1}, to_apply=add
  ROOT p = f32[36] concatenate(u, y), dimensions={0}"""


@pytest.mark.parametrize(
    ("body", "ulp"), [(COLUMNS, 8), (THREE, 64), (CHAINED, 512), (JOINED, 32), (TUPLES, 0)]
)  # fmt: skip
def test_sums_that_many_elements_need_are_made_once(body: str, ulp: float) -> None:
    i = as_instruction(HEAD + body + "\n}")
    emitter = find_kernel_emitter(GpuKernel(new_module("m"), i, "k", gpu_target("cuda")))
    assert emitter is not None
    assert emitter.name == "staged"
    assert len(emulated(i)[1].steps) == 1 + (HEAD + body).count(" reduce(") + body.count(" dot(")
    check_gpu(i, [random(o.shape, n) for n, o in enumerate(i.operands)], ulp=ulp)


UPDATED = """
  x = f32[50,40] parameter(0)
  y = f32[8,40,90] parameter(1)
  k = s32[] parameter(2)
  n = s32[] constant(0)
  t = f32[8,40] reduce(y, z), dimensions={2}, to_apply=add
  m = f32[8,40] negate(t)
  ROOT r = f32[50,40] dynamic-update-slice(x, m, k, n)"""


@pytest.mark.parametrize("in_place", [{}, {0: 0}])
def test_the_rest_is_whatever_it_is(in_place: dict[int, int]) -> None:
    """An update in place of sums, for instance: nothing but the part is written."""
    i = as_instruction(HEAD + UPDATED + "\n}")
    given = [random(o.shape, n) for n, o in enumerate(i.operands[:2])]
    check_gpu(i, [*given, np.int32(17)], ulp=32, in_place=in_place)
    steps = emulated(i, in_place)[1].steps
    assert len(steps) == 2
    assert (steps[1].shape.grid[0] * steps[1].shape.threads < 50 * 40) == bool(in_place)


def test_short_sums_of_one_element_are_its_threads() -> None:
    i = as_instruction(HEAD + SHORT + "\n}")
    assert len(emulated(i)[1].steps) == 1
    check_gpu(i, [random(o.shape, n) for n, o in enumerate(i.operands)], ulp=8)
