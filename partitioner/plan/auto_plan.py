"""The automatic plan (``plan="auto"``). It is searched if a program may send less than with propagated layouts, and
taken if it does. Each step of the search costs more than the previous one, and most programs end early. A program stays
unchanged if it sends nothing or has too many layouts, or if no plan can send less without more arithmetic. A plan that
changes no layout is not carried out. A plan is not judged if by the models it sends no less, computes more or takes far
more memory. All limits count work, so equal programs have equal plans.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from shardc.costs.machines.machine import Machine
from shardc.hlo.ir.ir import Module
from shardc.partitioner.free_interface import FreeInterface
from shardc.partitioner.plan.choose_plan import Finish
from shardc.partitioner.plan.explain_plan import explain_plan
from shardc.partitioner.plan.judge import MORE_FLOPS, Judge, Judgement, is_better, judge_by_bytes, judge_by_models
from shardc.partitioner.plan.memory_limits import MemoryLimits
from shardc.partitioner.plan.node_options import TIE_PER_COLLECTIVE, TIE_PER_ITERATION
from shardc.partitioner.plan.plan_budget import OverBudgetError, PlanBudget, budget_of
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.partitioner.plan.plan_reasons import PlanReasons
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.rewrite.local_cost import collectives_cost
from shardc.partitioner.strategy.decisions import ChosenSplits
from shardc.partitioner.strategy.solve.problem import ChosenOptions

__all__ = ["choose_auto_plan"]

#: The part of a device's memory that a plan may fill on a machine; without one it may take as much as without a plan.
_MEMORY = 0.8
#: A plan that models find to take more memory than there is by this factor is not judged.
_DOUBT = 1.3


@dataclass(frozen=True, slots=True)
class _Promise:
    """A ``question`` and a promising ``answer``. It costs less than ``present``, the cost of the propagated program
    ``first``, which is ``modelled`` by ``models``."""

    question: LayoutQuestion
    answer: ChosenOptions
    first: Module
    models: Judge
    modelled: Judgement
    present: float


def choose_auto_plan(
    module: Module,
    machine: Machine | None,
    finish: Finish,
    *,
    budget: PlanBudget | None = None,
    judge: Judge | None = None,
    interface: FreeInterface | None = None,
    tell: Callable[[PlanReasons], None] | None = None,
) -> Module:
    """The propagated per-device program, or that of a plan that costs less and takes no more memory. On a machine, a
    plan may also use the larger part of a device's memory. ``module``, ``finish``, ``judge``, ``interface`` and
    ``tell`` are those of `choose_plan`; ``tell`` gets the reasons of a plan that is taken.
    """
    assert module.mesh is not None
    known = Context.over(module.mesh, module, machine).shared()
    budget, first = budget or budget_of("auto"), finish(module, known)
    if machine is None and _sent(first) <= _sent(module):
        return first
    promise = _find_promise(module, machine, first, interface, budget, known)
    return first if promise is None else _carry_out(promise, finish, budget, judge or promise.models, tell) or first


def _find_promise(
    module: Module,
    machine: Machine | None,
    first: Module,
    interface: FreeInterface | None,
    budget: PlanBudget,
    known: ChosenSplits,
) -> _Promise | None:
    """The cheapest plan by the models, if it is promising; ``first`` is the program without a plan."""
    try:
        question = pose_question(module, machine, interface, check=budget.check, hiding=False, known=known)
    except OverBudgetError:
        return None
    models = judge_by_bytes() if machine is None else judge_by_models(question.context, machine)
    modelled = models(first)
    if machine is None:
        question = question.within_arithmetic(modelled.flops * MORE_FLOPS)
    answer = question.solve(math.inf, limits=budget.limits)
    present = _cost(modelled, machine) - _own_cost(module, question.context, machine)
    if answer.choice is None or not budget.is_promising(answer.bound, answer.cost, present):
        return None
    if _lies_like(question.answer(answer.choice), question.module):
        return None
    return _Promise(question, answer, first, models, modelled, present)


def _carry_out(
    promise: _Promise,
    finish: Finish,
    budget: PlanBudget,
    judge: Judge,
    tell: Callable[[PlanReasons], None] | None,
) -> Module | None:
    """The program of the plan, or of another one within the memory, if it is better than the first program; else
    None."""
    question, answer, present, modelled = promise.question, promise.answer, promise.present, promise.modelled
    floor = _MEMORY * question.context.resharder.price.memory()
    room, before = max(modelled.peak, floor), None
    again = answer.bound > present  # models do not know what becomes of some operations: these are decided again
    limits, unlimited, tried = MemoryLimits(room), answer, set[tuple[int, ...]]()
    for _ in range(budget.rounds):
        if answer.choice is not None and question.memory.peak(answer.choice) > limits.next:
            answer = question.solve(limits.next, answer.choice, budget.limits_within_memory)
        beyond = answer.excess is not None and unlimited.choice not in tried
        answer = unlimited if beyond else answer  # the model says that nothing fits: it may take too much
        if answer.choice is None or answer.choice in tried:
            return None
        if not (beyond or again or budget.is_promising_within_memory(answer.cost, present)):
            return None
        tried.add(answer.choice)
        laid_out = question.answer(answer.choice)
        if _lies_like(laid_out, question.module):
            return None
        made = finish(laid_out, question.context.shared() if again else question.splits(answer.choice))
        seen = promise.models(made)
        if not (beyond or seen.cost < modelled.cost):
            return None
        filled = seen.peak / room
        if filled <= _DOUBT and seen.flops <= modelled.flops * MORE_FLOPS:
            before = before or judge(promise.first)
            found, most = judge(made), max(before.peak, floor)
            if is_better(found, before, before, most):
                if tell is not None:
                    tell(explain_plan(question, answer, limits.next, found, before))
                return made
            filled = found.peak / most
        if filled <= 1 and not beyond:
            return None
        limits.learn(question.memory.peak(answer.choice), filled * room)
    return None


def _lies_like(laid_out: Module, module: Module) -> bool:
    """Whether the plan changed no layout. Without changes, the usual partitioning makes the same decisions."""
    pairs = zip(laid_out.instructions(), module.instructions(), strict=True)
    return all(a is b or a.sharding == b.sharding for a, b in pairs)


def _sent(module: Module) -> tuple[float, ...]:
    """The bytes that a program sends, and its collectives; for a global program, those of manual computations."""
    return judge_by_bytes(lambda _: 0.0)(module).cost


def _own_cost(module: Module, context: Context, machine: Machine | None) -> float:
    """The cost of collectives in manual computations. It is the same for every plan, so problems do not contain it."""
    sent, count = _sent(module) if machine is None else collectives_cost(context, module.entry)
    return sent + TIE_PER_COLLECTIVE * count if machine is None else sent


def _cost(found: Judgement, machine: Machine | None) -> float:
    """The cost of a program in the unit of layout problems; if the unit is bytes, arithmetic breaks ties."""
    cost, count = found.cost
    return cost if machine is not None else cost + TIE_PER_COLLECTIVE * count + TIE_PER_ITERATION * found.flops / 2
