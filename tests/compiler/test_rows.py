"""Kernels that walk rows: reductions and what reads them, in one kernel, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.lower.fuse.row_plan import RowPlan, plan_rows
from shardc.compiler.lower.fuse.row_space import frame_of, spots_in
from shardc.hlo.ir.ir import Computation
from shardc.hlo.text.reader import read_hlo
from tests.compiler.checking import SUM
from tests.compiler.kernel_runner import assert_close, compile_and_run, expected, fusion, random


def computation(body: str) -> Computation:
    return read_hlo(f"HloModule test\n{SUM}\nENTRY main {{\n{body}\n}}\n").entry


def planned(c: Computation) -> RowPlan:
    plan = plan_rows(c)
    assert plan is not None
    return plan


def check_rows(c: Computation, arguments: list[np.ndarray], ulp: float = 64, in_place: int | None = None) -> RowPlan:
    """The row kernel computes what the evaluator does."""
    plan = planned(c)
    i = fusion(c)
    wanted = expected(i, arguments)
    for got, w, s in zip(compile_and_run(i, arguments, in_place=in_place), wanted, i.shape.leaves(), strict=True):
        assert_close(got, np.asarray(w), s, ulp)
    return plan


def softmax(rows: int, columns: int, dtype: str = "f32") -> Computation:
    full, row = f"{dtype}[{rows},{columns}]", f"{dtype}[{rows}]"
    reducers = "".join(
        f"{op} {{\n{op}.a = {dtype}[] parameter(0)\n{op}.b = {dtype}[] parameter(1)\n"
        f"ROOT {op}.c = {dtype}[] {op}({op}.a, {op}.b)\n}}\n" for op in ("add", "maximum")
    )  # fmt: skip
    body = f"""
x = {full} parameter(0)
low = {dtype}[] constant(-inf)
zero = {dtype}[] constant(0)
m = {row} reduce(x, low), dimensions={{1}}, to_apply=maximum
mb = {full} broadcast(m), dimensions={{0}}
d = {full} subtract(x, mb)
e = {full} exponential(d)
s = {row} reduce(e, zero), dimensions={{1}}, to_apply=add
sb = {full} broadcast(s), dimensions={{0}}
ROOT p = {full} divide(e, sb)
"""
    return read_hlo(f"HloModule test\n{reducers}\nENTRY main {{\n{body}\n}}\n").entry


@pytest.mark.parametrize("dims", [(3, 17), (1, 64), (5, 2), (2, 700), (40, 33), (300, 129)])
@pytest.mark.parametrize("in_place", [None, 0])
def test_softmax(dims: tuple[int, int], in_place: int | None) -> None:
    c = softmax(*dims)
    plan = check_rows(c, [random(c.parameters[0].shape)], in_place=in_place)
    assert len(plan.loops) == 3
    assert list(plan.kept.values()) == [(1, None)]  # exponentials wait in scratch memory


def test_rows_of_several_dimensions_and_broadcasts_along_them() -> None:
    body = """
x = f32[2,3,4,5] parameter(0)
g = f32[4,5] parameter(1)
zero = f32[] constant(0)
s = f32[2,3] reduce(x, zero), dimensions={2,3}, to_apply=sum
sb = f32[2,3,4,5] broadcast(s), dimensions={0,1}
gb = f32[2,3,4,5] broadcast(g), dimensions={2,3}
d = f32[2,3,4,5] divide(x, sb)
m = f32[2,3,4,5] multiply(d, gb)
ROOT t = (f32[2,3,4,5], f32[2,3]) tuple(m, s)
"""
    c = computation(body)
    check_rows(c, [np.abs(random(p.shape)) + 1 for p in c.parameters])


def test_a_value_at_another_row_is_computed_from_scratch() -> None:
    body = """
x = f32[6,40] parameter(0)
zero = f32[] constant(0)
s = f32[6] reduce(x, zero), dimensions={1}, to_apply=sum
r = f32[6] reverse(s), dimensions={0}
sb = f32[6,40] broadcast(s), dimensions={0}
rb = f32[6,40] broadcast(r), dimensions={0}
a = f32[6,40] add(sb, rb)
ROOT m = f32[6,40] multiply(a, x)
"""
    c = computation(body)
    frame = frame_of(c)
    assert frame is not None
    assert spots_in(c, frame)[c.parameters[0]] is None  # no reduction lies in the rows then: an ordinary kernel
    assert plan_rows(c) is None
    i = fusion(c)
    arguments = [random(p.shape) for p in c.parameters]
    assert_close(compile_and_run(i, arguments)[0], expected(i, arguments)[0], i.shape, 64)
