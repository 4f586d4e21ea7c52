"""Loops with few iterations and little in them: gone, with the same results."""

from __future__ import annotations

import pytest

from shardc.compiler.lower.simplify.unroll_loops import UnrollLoops
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify
from tests.compiler.checking import assert_close, check, random_arguments


def looped(start: int, stop: int, step: int = 1, work: str = "y = f32[4] multiply(x, v)", more: str = "") -> Module:
    """``for n in range(start, stop, step)`` over ``x``, with ``v`` carried unchanged."""
    return read_hlo(f"""HloModule looped
{more}
body {{
  p = (s32[], f32[4], f32[4]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  v = f32[4] get-tuple-element(p), index=2
  by = s32[] constant({step})
  m = s32[] add(n, by)
  {work}
  ROOT r = (s32[], f32[4], f32[4]) tuple(m, y, v)
}}
condition {{
  p = (s32[], f32[4], f32[4]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  stop = s32[] constant({stop})
  ROOT c = pred[] compare(n, stop), direction=LT
}}
ENTRY main {{
  x = f32[4] parameter(0)
  v = f32[4] parameter(1)
  start = s32[] constant({start})
  init = (s32[], f32[4], f32[4]) tuple(start, x, v)
  w = (s32[], f32[4], f32[4]) while(init), condition=condition, body=body
  y = f32[4] get-tuple-element(w), index=1
  n = s32[] get-tuple-element(w), index=0
  ROOT out = (f32[4], s32[]) tuple(y, n)
}}
""")


def loops(module: Module) -> int:
    return sum(i.opcode == "while" for i in module.instructions())


@pytest.mark.parametrize(
    ("start", "stop", "step", "left"), [(0, 0, 1, 0), (3, 4, 1, 0), (0, 9, 3, 0), (0, 12, 1, 0), (0, 13, 1, 1)]
)
def test_by_trip_count(start: int, stop: int, step: int, left: int) -> None:
    module = looped(start, stop, step)
    after = UnrollLoops().run(module)
    verify(after)
    assert loops(after) == left
    args = random_arguments(module)
    assert_close(evaluate(after, args), evaluate(module, args), 0)
    assert UnrollLoops().run(after) is after
    check(module)


BRANCH = (
    "twice { a = f32[4] parameter(0)  ROOT b = f32[4] add(a, a) }\n"
    "once { a = f32[4] parameter(0)  ROOT b = f32[4] negate(a) }\n"
)
CONDITIONAL = "q = pred[] compare(n, m), direction=LT\n  y = f32[4] conditional(q, x, x), true_computation=twice, "


@pytest.mark.parametrize(("stop", "left"), [(1, 0), (2, 1)])
def test_bodies_with_branches_run_once_or_stay(stop: int, left: int) -> None:
    module = looped(0, stop, work=CONDITIONAL + "false_computation=once", more=BRANCH)
    after = UnrollLoops().run(module)
    assert loops(after) == left
    args = random_arguments(module)
    assert_close(evaluate(after, args), evaluate(module, args), 0)


def test_draws_are_not_repeated() -> None:
    draw = "zero = f32[] constant(0)\n  one = f32[] constant(1)\n  y = f32[4] rng(zero, one), distribution=rng_uniform"
    assert loops(UnrollLoops().run(looped(0, 2, work=draw))) == 1
    assert loops(UnrollLoops().run(looped(0, 1, work=draw))) == 0


def test_side_effects_stay_in_their_loop() -> None:
    call = (
        'z = f32[4] custom-call(x), custom_call_target="tell", custom_call_has_side_effect=true\n  y = f32[4] add(x, v)'
    )
    module = looped(0, 1, work=call)
    assert UnrollLoops().run(module) is module


def test_the_limit_counts_all_iterations() -> None:
    assert loops(UnrollLoops(limit=3).run(looped(0, 2))) == 1
    assert loops(UnrollLoops(limit=4).run(looped(0, 2))) == 0
