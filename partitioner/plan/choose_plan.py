"""The best of several ways to lay out a program: as propagated, and as planned for less and less memory.

A plan is made with models; what it comes to shows when it is carried out. Where that takes more memory than there is,
the next plan is made for as much less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from shardc.costs.machines.machine import Machine
from shardc.hlo.ir.ir import Module
from shardc.partitioner.free_interface import FreeInterface
from shardc.partitioner.plan.judge import Judge, Judgement, judge_by_bytes, judge_by_models
from shardc.partitioner.plan.merge_equal import merge_equal
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.partitioner.strategy.solve.solve import solve_choice

__all__ = ["choose_plan"]

#: How many plans are carried out.
_ROUNDS = 3
#: By how much arithmetic may grow where bytes count, and memory on a machine: plans know it no finer.
_MORE_FLOPS = 1.001
_MORE_MEMORY = 1.05


def choose_plan(
    module: Module,
    machine: Machine | None,
    finish: Callable[[Module], Module],
    *,
    memory: float | None = None,
    judge: Judge | None = None,
    interface: FreeInterface | None = None,
) -> Module:
    """The per-device program that costs least.

    ``module`` is propagated, its calls opened; ``finish`` makes the per-device program of it or of a planned one.
    ``memory``: bytes per device that it may take (None: as many as without a plan). ``judge`` says what a per-device
    program costs (default: bytes, on a machine what models say). Leaves of ``interface`` may lie in any layout.
    """
    question = pose_question(module, machine, interface)
    if judge is None:
        judge = judge_by_bytes() if machine is None else judge_by_models(question.context, machine)
    best = finish(module)
    least = before = judge(best)
    room = before.peak * (1 if machine is None else _MORE_MEMORY) if memory is None else memory
    limit, choice = room, _solve(question, math.inf, None)
    for _ in range(_ROUNDS):
        choice = _solve(question, limit, choice)
        if choice is None:
            break
        made = finish(question.answer(choice))
        found = judge(made)
        if _is_better(found, least, before, room):
            best, least = made, found
        if found.peak <= room:
            break
        limit = min(limit, question.memory.peak(choice)) * room / found.peak
    return best


def _solve(question: LayoutQuestion, limit: float, start: Sequence[int] | None) -> tuple[int, ...] | None:
    """The best choice found within ``limit`` bytes, or the one nearest to them; None where nothing is allowed."""
    merged = merge_equal(question.as_choice(limit))
    answer = solve_choice(merged.problem, None if start is None else merged.collapse(start))
    return None if answer.choice is None else merged.expand(answer.choice)


def _is_better(found: Judgement, least: Judgement, before: Judgement, room: float) -> bool:
    """Does a plan cost less than the best one so far, within the memory? What fits beats what does not."""
    if found.flops > before.flops * _MORE_FLOPS:
        return False
    if least.peak > room:
        return found.peak < least.peak
    return found.peak <= room and found.cost < least.cost
