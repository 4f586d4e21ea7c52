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
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.partitioner.free_interface import FreeInterface
from shardc.partitioner.plan.explain_plan import explain_plan
from shardc.partitioner.plan.infeasible import describe_conflict, describe_excess
from shardc.partitioner.plan.judge import Judge, Judgement, judge_by_bytes, judge_by_models
from shardc.partitioner.plan.merge_equal import merge_equal
from shardc.partitioner.plan.node_options import TIE_PER_COLLECTIVE, TIE_PER_ITERATION
from shardc.partitioner.plan.plan_budget import OverBudgetError, PlanBudget
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.partitioner.plan.plan_reasons import PlanReasons
from shardc.partitioner.strategy.solve.problem import ChosenOptions
from shardc.partitioner.strategy.solve.solve import solve_choice

__all__ = ["choose_plan"]

#: By how much arithmetic may grow where bytes count, and memory on a machine: plans know it no finer.
_MORE_FLOPS = 1.005
_MORE_MEMORY = 1.05


def choose_plan(
    module: Module,
    machine: Machine | None,
    finish: Callable[[Module], Module],
    *,
    budget: PlanBudget | None = None,
    memory: float | None = None,
    judge: Judge | None = None,
    interface: FreeInterface | None = None,
    tell: Callable[[PlanReasons], None] | None = None,
) -> Module:
    """The per-device program that costs least.

    ``module`` is propagated, its calls opened; ``finish`` makes the per-device program of it or of a planned one.
    ``memory``: bytes per device that it may take (None: as many as without a plan). ``judge`` says what a per-device
    program costs (default: bytes, on a machine what models say). Leaves of ``interface`` may lie in any layout. What
    goes beyond the ``budget`` stays as propagated. ``tell`` is given the reasons of a plan, also of one that was made
    and not taken. Raises `PlanError` where nothing is found within ``memory``.
    """
    budget = budget or PlanBudget()
    best = finish(module)
    if budget.gain is not None and machine is None and memory is None and not _sends(best):
        return best
    try:
        question = pose_question(module, machine, interface, check=budget.check)
    except OverBudgetError:
        return best
    models = judge_by_bytes() if machine is None else judge_by_models(question.context, machine)
    judge = judge or models
    least = before = judge(best)
    room = before.peak * (1 if machine is None else _MORE_MEMORY) if memory is None else memory
    limit, answer = room, _solve(question, math.inf, None, budget)
    if before.peak <= room and budget.is_met(answer.bound, _modelled(models(best), machine)):
        return best
    taken: tuple[ChosenOptions, float] | None = None
    carried_out: tuple[int, ...] | None = None
    for _ in range(budget.rounds):
        if answer.choice is None or question.memory.peak(answer.choice) > limit:
            answer = _solve(question, limit, answer.choice, budget)
        if answer.choice is None:
            raise describe_conflict(question, answer)
        if answer.choice == carried_out:
            break
        carried_out = answer.choice
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


def _sends(module: Module) -> bool:
    return any(i.opcode in COLLECTIVES for i in module.instructions())


def _modelled(found: Judgement, machine: Machine | None) -> float:
    """The cost of a program as problems of layouts have it: where bytes count, arithmetic decides ties."""
    cost, count = found.cost
    return cost if machine is not None else cost + TIE_PER_COLLECTIVE * count + TIE_PER_ITERATION * found.flops / 2


def _solve(question: LayoutQuestion, limit: float, start: Sequence[int] | None, budget: PlanBudget) -> ChosenOptions:
    """The best choice found within ``limit`` bytes, or the one nearest to them; no choice where nothing is allowed."""
    merged = merge_equal(question.as_choice(limit))
    answer = solve_choice(merged.problem, None if start is None else merged.collapse(start), budget.limits)
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
