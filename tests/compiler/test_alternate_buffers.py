"""Loops that do several iterations at a time: nothing carried is copied back, and the results are the same."""

from __future__ import annotations

import pytest

from shardc.compiler.lower.lowered import BufferCopy, Lowered, WhileStep
from shardc.compiler.lower.pipeline import lower
from shardc.compiler.lower.schedule.step_traffic import step_traffic
from shardc.costs.kernels.trips import trip_count
from shardc.hlo.ir.ir import Module
from shardc.hlo.text.reader import read_hlo
from tests.compiler.checking import check, random_arguments

ROLLED = """
  a = f32[8,255] slice({x}), slice={{[0:8], [1:256]}}
  b = f32[8,1] slice({x}), slice={{[0:8], [0:1]}}
  {name} = f32[8,256] concatenate(a, b), dimensions={{1}}
"""
F = "f32[8,256]"


def looped(trips: int, state: int, work: str, *new: str) -> Module:
    """``trips`` iterations that make ``new`` of the arrays x0, x1, ..., by ``work``."""
    arrays = ", ".join(["s32[]", *[F] * state])
    parts = "\n".join(f"  x{k} = {F} get-tuple-element(p), index={k + 1}" for k in range(state))
    given = "\n".join(f"  y{k} = {F} parameter({k})" for k in range(state))
    taken = "\n".join(f"  z{k} = {F} get-tuple-element(w), index={k + 1}" for k in range(state))
    return read_hlo(f"""HloModule looped
body {{
  p = ({arrays}) parameter(0)
  n = s32[] get-tuple-element(p), index=0
{parts}
  one = s32[] constant(1)
  m = s32[] add(n, one)
  {work}
  ROOT r = ({arrays}) tuple(m, {", ".join(new)})
}}
condition {{
  p = ({arrays}) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  stop = s32[] constant({trips})
  ROOT c = pred[] compare(n, stop), direction=LT
}}
ENTRY main {{
{given}
  zero = s32[] constant(0)
  init = ({arrays}) tuple(zero, {", ".join(f"y{k}" for k in range(state))})
  w = ({arrays}) while(init), condition=condition, body=body
{taken}
  ROOT out = ({", ".join([F] * state)}) tuple({", ".join(f"z{k}" for k in range(state))})
}}
""")


def loop_of(lowered: Lowered) -> WhileStep:
    (step,) = (s for s in lowered.steps if isinstance(s, WhileStep))
    return step


def copied(lowered: Lowered) -> int:
    """Bytes that one run of the loop's body copies."""
    steps = (s for s in loop_of(lowered).body if isinstance(s, BufferCopy))
    return sum(step_traffic(s, lowered.plan).written for s in steps)


@pytest.mark.parametrize("trips", [6, 7, 40, 41])
def test_a_stencil_alternates_between_two_buffers(trips: int) -> None:
    work = ROLLED.format(x="x0", name="shifted") + f"  y = {F} add(x0, shifted)"
    module = looped(trips, 1, work, "y")
    lowered = lower(module)
    assert copied(lowered) == 0
    assert trip_count(loop_of(lowered).instruction) == trips // 2
    check(module, random_arguments(module))


@pytest.mark.parametrize("trips", [6, 9, 20])
def test_leapfrog_hands_its_steps_round(trips: int) -> None:
    work = ROLLED.format(x="x1", name="shifted") + f"  d = {F} subtract(shifted, x0)\n  y = {F} add(d, x1)"
    module = looped(trips, 2, work, "x1", "y")
    lowered = lower(module)
    assert copied(lowered) == 0
    assert trip_count(loop_of(lowered).instruction) == trips // 2
    check(module, random_arguments(module))


def test_three_steps_go_round_in_three() -> None:
    work = f"  d = {F} subtract(x2, x0)\n  y = {F} add(d, x1)"
    module = looped(20, 3, work, "x1", "x2", "y")
    lowered = lower(module)
    assert copied(lowered) == 0
    assert trip_count(loop_of(lowered).instruction) == 6
    check(module, random_arguments(module))


def test_loops_that_copy_nothing_or_run_a_few_times_stay() -> None:
    module = looped(20, 1, f"  y = {F} sine(x0)", "y")
    assert trip_count(loop_of(lower(module)).instruction) == 20
    work = ROLLED.format(x="x0", name="shifted") + f"  s = {F} sine(x0)\n  y = {F} add(s, shifted)"
    assert trip_count(loop_of(lower(looped(5, 1, work, "y"))).instruction) == 5
