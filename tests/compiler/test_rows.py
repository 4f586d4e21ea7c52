"""Kernels that walk rows: reductions and what reads them, in one kernel, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.lower.row_plan import RowPlan, plan_rows
from shardc.hlo.ir import Computation
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
    assert plan.first_write(0) == 1  # exponentials wait in the result's row
