"""Compares the propagated program with plans within the memory, and returns the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from shardc.costs.machines.machine import Machine
from shardc.hlo.ir.ir import Module
from shardc.hlo.units import bytes_text
from shardc.partitioner.free_interface import FreeInterface
from shardc.partitioner.plan.explain_plan import explain_plan, wanted_choice
from shardc.partitioner.plan.infeasible import describe_conflict, describe_excess
from shardc.partitioner.plan.judge import MORE_FLOPS, Judge, Judgement, judge_by_bytes, judge_by_models
from shardc.partitioner.plan.memory_limits import room_of_plan
from shardc.partitioner.plan.plan_budget import OverBudgetError, PlanBudget
from shardc.partitioner.plan.plan_layouts import pose_question, ways_of_transforms
from shardc.partitioner.plan.plan_reasons import PlanReasons
from shardc.partitioner.plan.plan_trials import CarriedPlan, PlanTrials
from shardc.partitioner.plan.seeds.find_seeds import find_seeds, find_state_seeds
from shardc.partitioner.strategy.decisions import ChosenSplits

__all__ = ["Finish", "choose_plan"]

#: Makes the per-device program of one whose layouts are chosen, its operations done as chosen, too, or as seems best.
Finish = Callable[[Module, ChosenSplits | None], Module]

#: How many plans that follow patterns are carried out besides with their state spread, and how many that say only which
#: axes split the state.
_SPREAD, _KEPT = 2, 2


def choose_plan(
    module: Module,
    machine: Machine | None,
    finish: Finish,
    *,
    within: Callable[[float], Finish] | None = None,
    budget: PlanBudget | None = None,
    memory: float | None = None,
    judge: Judge | None = None,
    interface: FreeInterface | None = None,
    tell: Callable[[PlanReasons], None] | None = None,
) -> Module:
    """The per-device program of least cost. ``module`` is propagated, with its calls inlined. ``finish`` makes the
    per-device program of a module; operations of a planned one are done as chosen. With ``within`` bytes, its loops
    keep less if nothing fits otherwise. ``memory``: limit in bytes per device (None: the memory without a plan; on a
    machine also the larger part of a device's). ``judge`` returns the cost of a per-device program (default: bytes; on
    a machine, the models' cost). Leaves of ``interface`` may have any layout. Programs beyond the ``budget`` keep the
    propagated layouts. ``tell`` gets the reasons of a plan, also of one that is not taken. Raises `PlanError` if no
    plan is found within ``memory``.
    """
    budget = budget or PlanBudget()
    first = finish(module, None)
    try:
        question = pose_question(module, machine, interface, check=budget.check)
    except OverBudgetError:
        return first
    judge = judge or (judge_by_bytes() if machine is None else judge_by_models(question.context, machine))
    before = judge(first)
    room = room_of_plan(before.peak, question.context.resharder.price.memory()) if memory is None else memory
    whole = question.within_arithmetic(before.flops * MORE_FLOPS) if machine is None else question.unhidden()
    answer = whole.solve(math.inf, limits=budget.limits)
    if answer.choice is None and machine is None:
        whole, answer = question, question.solve(math.inf, limits=budget.limits)
    if answer.choice is None:
        raise describe_conflict(whole, answer)

    make = finish

    def ways(plan: CarriedPlan) -> Iterator[tuple[Module, Judgement]]:
        """Two ways to carry out a plan: with its operations, and with only its layouts, around which operations are
        decided again."""
        laid_out = plan.question.answer(plan.choice)
        for way, splits in ((laid_out, plan.question.splits(plan.choice)), (plan.propagated or laid_out, None)):
            made = make(way, splits)
            yield made, judge(made)

    trials = PlanTrials(ways, room, budget.rounds, before, first, before)
    trials.run(whole, answer, budget.limits)
    if machine is not None:
        trials.run(question, question.solve(math.inf, limits=budget.limits), budget.limits)
        if budget.seeds:
            trials.try_seeds(whole, find_seeds(whole, room), answer, budget.seeds)
            trials.try_seeds(whole, find_seeds(whole, room, spread=True), answer, _SPREAD)
            trials.try_seeds(whole, find_state_seeds(whole, room), answer, _KEPT)
        for way in ways_of_transforms(module, machine)[1:]:
            other = pose_question(module, machine, interface, hiding=False, whole_transforms=way)
            trials.tried.clear()  # its choices are others
            trials.run(other, other.solve(math.inf, limits=budget.limits), budget.limits)
    if within is not None and not trials.fits and any(i.opcode == "while" for i in module.instructions()):
        make = within(room)
        trials.tried.clear()
        trials.run(whole, answer, budget.limits)
    if memory is not None and not trials.fits and machine is None:  # more arithmetic, rather than too much memory
        whole = question
        trials.run(whole, whole.solve(memory, limits=budget.limits), budget.limits)
    if memory is not None and not trials.fits:  # the least that the solver finds, whatever the limit is
        smallest_answer = whole.solve(0.0, limits=budget.limits)
        if smallest_answer.choice is not None:
            trials.carry_out(CarriedPlan(whole, smallest_answer, 0.0))
    last, best, least = trials.last, trials.best, trials.least
    assert last is not None and best is not None and least is not None
    if memory is not None and least.peak > memory:
        # Where no plan takes less than the propagated program, the message is about that one.
        choice = wanted_choice(question) if trials.taken is None else trials.taken.choice
        smallest = question if trials.taken is None else trials.taken.question
        raise describe_excess(smallest, choice, memory, least.peak)
    if tell is not None:
        told = trials.taken or last
        why = "" if trials.taken else f"no plan found costs less within {bytes_text(room)} per device"
        tell(explain_plan(told.question, told.answer, told.limit, least, before, memory=memory, why=why))
    return best
