"""The best of several ways to lay out a program: as propagated, and as planned for less and less memory.

A plan is made with models; what it comes to shows when it is carried out. Where that takes more memory than there is,
the next plan is made for as much less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from shardc.costs.machines.machine import Machine
from shardc.hlo.ir.ir import Module
from shardc.partitioner.free_interface import FreeInterface
from shardc.partitioner.plan.explain_plan import explain_plan
from shardc.partitioner.plan.infeasible import describe_conflict, describe_excess
from shardc.partitioner.plan.judge import Judge, Judgement, judge_by_bytes, judge_by_models
from shardc.partitioner.plan.merge_equal import merge_equal
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.partitioner.plan.plan_reasons import PlanReasons
from shardc.partitioner.strategy.solve.problem import ChosenOptions
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
    tell: Callable[[PlanReasons], None] | None = None,
) -> Module:
    """The per-device program that costs least.

    ``module`` is propagated, its calls opened; ``finish`` makes the per-device program of it or of a planned one.
    ``memory``: bytes per device that it may take (None: as many as without a plan). ``judge`` says what a per-device
    program costs (default: bytes, on a machine what models say). Leaves of ``interface`` may lie in any layout.
    ``tell`` is given the reasons. Raises `PlanError` where nothing is found within ``memory``.
    """
    question = pose_question(module, machine, interface)
    if judge is None:
        judge = judge_by_bytes() if machine is None else judge_by_models(question.context, machine)
    best = finish(module)
    least = before = judge(best)
    room = before.peak * (1 if machine is None else _MORE_MEMORY) if memory is None else memory
    limit, answer = room, _solve(question, math.inf, None)
    taken: tuple[ChosenOptions, float] | None = None
    for _ in range(_ROUNDS):
        answer = _solve(question, limit, answer.choice)
        if answer.choice is None:
            raise describe_conflict(question, answer)
        made = finish(question.answer(answer.choice))
        found = judge(made)
        if _is_better(found, least, before, room):
            best, least, taken = made, found, (answer, limit)
        if found.peak <= room:
            break
        limit = min(limit, question.memory.peak(answer.choice)) * room / found.peak
    if memory is not None and least.peak > memory:
        raise describe_excess(question, answer, memory, least.peak)
    if tell is not None:
        planned, within = taken or (answer, limit)
        why = "" if taken else "no plan that was found costs less within the memory"
        tell(explain_plan(question, planned, within, least, before, memory=memory, why=why))
    return best


def _solve(question: LayoutQuestion, limit: float, start: Sequence[int] | None) -> ChosenOptions:
    """The best choice found within ``limit`` bytes, or the one nearest to them; no choice where nothing is allowed."""
    merged = merge_equal(question.as_choice(limit))
    answer = solve_choice(merged.problem, None if start is None else merged.collapse(start))
    if answer.choice is None:
        return replace(answer, conflict=tuple(merged.classes.index(c) for c in answer.conflict))
    return replace(answer, choice=merged.expand(answer.choice))


def _is_better(found: Judgement, least: Judgement, before: Judgement, room: float) -> bool:
    """Does a plan cost less than the best one so far, within the memory? What fits beats what does not."""
    if found.flops > before.flops * _MORE_FLOPS:
        return False
    if least.peak > room:
        return found.peak < least.peak
    return found.peak <= room and found.cost < least.cost
