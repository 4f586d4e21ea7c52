"""Which results no rounding can reach."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.ir.opset import OPS
from shardc.hlo.text.reader import read_hlo
from shardc.partitioner.equivalence import agree
from shardc.partitioner.exactness import _SAME_BITS, exact_results

TEXT = """HloModule m

%add { %a = f32[] parameter(0) %b = f32[] parameter(1) ROOT %s = f32[] add(%a, %b) }
%max { %a.1 = f32[] parameter(0) %b.1 = f32[] parameter(1) ROOT %m = f32[] maximum(%a.1, %b.1) }
%condition {
  %p.1 = (s32[], f32[4], f32[4]) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %three = s32[] constant(3)
  ROOT %less = pred[] compare(%i.1, %three), direction=LT
}
%body {
  %p.2 = (s32[], f32[4], f32[4]) parameter(0)
  %i.2 = s32[] get-tuple-element(%p.2), index=0
  %x.2 = f32[4] get-tuple-element(%p.2), index=1
  %y.2 = f32[4] get-tuple-element(%p.2), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%i.2, %one)
  %twice = f32[4] add(%y.2, %y.2)
  ROOT %t.2 = (s32[], f32[4], f32[4]) tuple(%next, %y.2, BODY)
}
ENTRY %main {
  %x = f32[4] parameter(0)
  %n = s32[4] parameter(1)
  %zero = f32[] constant(0)
  %start = s32[] constant(0)
  %moved = f32[4] reverse(%x), dimensions={0}
  %total = f32[] reduce(%x, %zero), dimensions={0}, to_apply=%add
  %top = f32[] reduce(%x, %zero), dimensions={0}, to_apply=%max
  %count = s32[] convert(%total)
  %square = s32[4] multiply(%n, %n)
  %init = (s32[], f32[4], f32[4]) tuple(%start, %x, %x)
  %loop = (s32[], f32[4], f32[4]) while(%init), condition=%condition, body=%body
  %trips = s32[] get-tuple-element(%loop), index=0
  %late = f32[4] get-tuple-element(%loop), index=1
  ROOT %out = (f32[4], f32[], f32[], s32[], s32[4], s32[], f32[4]) tuple(%moved, %total, %top, %count, %square, %trips, %late)
}
"""  # noqa: E501


@pytest.mark.parametrize(("body", "late"), [("%x.2", True), ("%twice", False)])
def test_what_rounding_reaches(body: str, late: bool) -> None:
    """Sums and what is made from them, also an iteration later; not movement, maxima, integers or trip counts."""
    module = read_hlo(TEXT.replace("BODY", body))
    assert exact_results(module) == (True, False, True, False, True, True, late)


def test_names_are_of_the_op_set() -> None:
    assert set(OPS) >= _SAME_BITS


def test_exact_results_agree_to_the_bit() -> None:
    want = np.array([1.0, np.nan], np.float32)
    off = want + np.float32(1e-6)
    assert agree(want, want, exact=True)
    assert not agree(off, want, exact=True)
    assert agree(off, want)


def test_integers_from_rounded_floats_may_differ_here_and_there() -> None:
    want = np.zeros(1000, np.int32)
    few, many = want.copy(), want.copy()
    few[:5], many[:50] = 1, 1
    assert agree(few, want, exact=False)
    assert not agree(many, want, exact=False)
    assert not agree(few, want)


def test_branches_by_name() -> None:
    text = """HloModule m
    yes { a = f32[4] parameter(0) ROOT n = f32[4] negate(a) }
    no { a = f32[4] parameter(0) ROOT n = f32[4] OP(a) }
    ENTRY main {
      c = pred[] parameter(0)
      x = f32[4] parameter(1)
      ROOT r = f32[4] conditional(c, x, x), true_computation=yes, false_computation=no
    }"""
    assert exact_results(read_hlo(text.replace("OP", "abs"))) == (True,)
    assert exact_results(read_hlo(text.replace("OP", "tanh"))) == (False,)
