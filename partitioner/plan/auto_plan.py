"""The automatic plan (``plan="auto"``). It is searched if a program may send less than with propagated layouts, and
taken if it does. Each step of the search costs more than the previous one, and most programs end early. A program stays
unchanged if it sends nothing or has too many layouts, or if no plan can send less without more arithmetic. A plan that
changes no layout is not carried out. A plan is not judged if by the models it sends no less, computes more or takes far
more memory. All limits count work, so equal programs have equal plans.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from shardc.costs.machines.machine import Machine
from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.ir.ir import Module
from shardc.hlo.units import bytes_text, seconds_text
from shardc.partitioner.free_interface import FreeInterface
from shardc.partitioner.plan.choose_plan import Finish
from shardc.partitioner.plan.explain_plan import explain_plan, wanted_choice
from shardc.partitioner.plan.judge import MORE_FLOPS, Judge, Judgement, is_better, judge_by_bytes, judge_by_models
from shardc.partitioner.plan.memory_limits import MemoryLimits, room_of_plan
from shardc.partitioner.plan.node_options import TIE_PER_COLLECTIVE, TIE_PER_ITERATION
from shardc.partitioner.plan.plan_budget import OverBudgetError, PlanBudget, budget_of
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question, ways_of_transforms
from shardc.partitioner.plan.plan_reasons import PlanReasons
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.rewrite.local_cost import collectives_cost
from shardc.partitioner.strategy.decisions import ChosenSplits
from shardc.partitioner.strategy.solve.problem import ChosenOptions

__all__ = ["choose_auto_plan"]

#: A plan that models find to take more memory than there is by this factor is not judged.
_DOUBT = 1.3
_AS_PROPAGATED = "the best plan has the propagated layouts"


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
    text: Callable[[float], str]


def choose_auto_plan(
    module: Module,
    machine: Machine | None,
    finish: Finish,
    *,
    fewest: Finish | None = None,
    budget: PlanBudget | None = None,
    judge: Judge | None = None,
    interface: FreeInterface | None = None,
    tell: Callable[[PlanReasons | str], None] | None = None,
) -> Module:
    """The propagated per-device program, or that of a plan that costs less and takes no more memory. On a machine, a
    plan may also use the larger part of a device's memory.

    ``module``, ``finish``, ``judge``, ``interface`` and ``tell`` are those of `choose_plan`; ``tell`` gets the reasons
    of a plan that is taken, or the sentence why none is. Models of a machine may err: where the program of the
    ``fewest`` bytes differs, the judge decides which of the two is the propagated one.
    """
    assert module.mesh is not None
    context = Context.over(module.mesh, module, machine)
    known, before = context.shared(), None
    budget, first = budget or budget_of("auto"), finish(module, known)
    if fewest is not None and judge is not None:
        first, before = _faster(first, fewest(module, None), judge, context.resharder.price.memory())
    if machine is None and _sent(first) <= _sent(module):
        found: _Promise | str = "with propagated layouts, only manual computations send data"
    else:
        found = _find_promise(module, machine, first, interface, budget, known)
    made = found if isinstance(found, str) else _carry_out(found, finish, budget, judge or found.models, tell, before)
    if isinstance(made, Module):
        return made
    if tell is not None:
        tell(made)
    return first


def _faster(first: Module, other: Module, judge: Judge, memory: float) -> tuple[Module, Judgement | None]:
    """The better one of two programs that do not send the same, within a device's ``memory``, and its judgement. The
    first one if they cannot be judged."""
    if _sent(first) == _sent(other):
        return first, None
    try:
        before, found = judge(first), judge(other)
    except (InputError, UnsupportedError):
        return first, None  # the mesh does not fit the machine, or nothing can lower a call
    better = is_better(found, before, before, room_of_plan(before.peak, memory))
    return (other, found) if better else (first, before)


def _find_promise(
    module: Module,
    machine: Machine | None,
    first: Module,
    interface: FreeInterface | None,
    budget: PlanBudget,
    known: ChosenSplits,
) -> _Promise | str:
    """The cheapest plan by the models, or why it is not promising; ``first`` is the program without a plan."""
    try:
        pose = partial(pose_question, module, machine, interface, check=budget.check, hiding=False, known=known)
        questions = [pose(whole_transforms=way) for way in ways_of_transforms(module, machine)]
    except OverBudgetError as error:
        return error.what
    models = judge_by_bytes() if machine is None else judge_by_models(questions[0].context, machine)
    modelled = models(first)
    if machine is None:
        questions = [q.within_arithmetic(modelled.flops * MORE_FLOPS) for q in questions]
    asked = [(q, q.solve(math.inf, limits=budget.limits)) for q in questions]
    question, answer = min(asked, key=lambda way: way[1].cost)
    text = bytes_text if machine is None else seconds_text
    present = _cost(modelled, machine) - _own_cost(module, question.context, machine)
    if answer.choice is None:
        return "the solver found no plan within its limits"
    if not budget.is_promising(answer.bound, answer.cost, present):
        return _gain_text(answer.cost, present, budget.gain)
    if _lies_like(question.answer(answer.choice), question.module):
        return _AS_PROPAGATED
    return _Promise(question, answer, first, models, modelled, present, text)


def _carry_out(
    promise: _Promise,
    finish: Finish,
    budget: PlanBudget,
    judge: Judge,
    tell: Callable[[PlanReasons | str], None] | None,
    before: Judgement | None,
) -> Module | str:
    """The program of the plan, or of another one within the memory, if it is better than the first program; else
    the reason why not."""
    question, present = promise.question, promise.modelled.peak
    trials = _Trials(promise, finish, budget, judge, tell, before)
    room = trials.memory_limit
    made = trials.within(MemoryLimits(room))
    if isinstance(made, Module) or question.memory.peak(promise.answer.choice or ()) <= room:
        return made
    # The model may find too much memory for the propagated layouts, too: then plans may take as much more.
    wider = room * question.memory.peak(wanted_choice(question)) / present
    found = trials.within(MemoryLimits(room, wider)) if wider > room else made
    return found if isinstance(found, Module) else made


@dataclass(slots=True)
class _Trials:
    """Carries out plans within memory limits, each plan once. ``before`` is the judgement of the first program, once it
    is known."""

    promise: _Promise
    finish: Finish
    budget: PlanBudget
    judge: Judge
    tell: Callable[[PlanReasons | str], None] | None
    before: Judgement | None = None
    tried: set[tuple[int, ...]] = field(default_factory=set)

    def limit_beside(self, peak: float) -> float:
        """The bytes that a plan may fill where the first program fills ``peak``."""
        return room_of_plan(peak, self.promise.question.context.resharder.price.memory())

    @property
    def memory_limit(self) -> float:
        """The bytes that a plan may fill by the models."""
        return self.limit_beside(self.promise.modelled.peak)

    def within(self, limits: MemoryLimits) -> Module | str:
        """The program of a plan that is better than the first program, or why there is none."""
        promise, budget, tried = self.promise, self.budget, self.tried
        question, present = promise.question, promise.present
        again = promise.answer.bound > present  # models do not know what becomes of some operations: decided again
        answer = unlimited = promise.answer
        for _ in range(budget.rounds):
            if answer.choice is not None and question.memory.peak(answer.choice) > limits.next:
                answer = question.solve(limits.next, answer.choice, budget.limits_within_memory)
            beyond = answer.excess is not None and unlimited.choice not in tried
            answer = unlimited if beyond else answer  # the model says that nothing fits: it may take too much
            if answer.choice is None or answer.choice in tried:
                return "no other plan was found that takes less memory"
            if not (beyond or again or budget.is_promising_within_memory(answer.cost, present)):
                return "by the cost model, the best plan within the memory costs more than the propagated layouts"
            tried.add(answer.choice)
            laid_out = question.answer(answer.choice)
            if _lies_like(laid_out, question.module):
                return _AS_PROPAGATED
            made = self.finish(laid_out, question.context.shared() if again else question.splits(answer.choice))
            seen = promise.models(made)
            if not (beyond or seen.cost < promise.modelled.cost):
                return "by the cost model, the program of the best plan costs no less"
            why, filled = self._compare(made, seen, answer, limits.next)
            if not why:
                return made
            if filled <= 1 and not beyond:
                return why
            limits.learn(question.memory.peak(answer.choice), filled * self.memory_limit)
        return f"the plans that were tried take more memory than {bytes_text(self.memory_limit)}, or cost no less"

    def _compare(self, made: Module, seen: Judgement, answer: ChosenOptions, limit: float) -> tuple[str, float]:
        """Why a plan's program, as models have ``seen`` it, is not better, or "", and the share of the memory that it
        fills. A better one is told."""
        promise, filled = self.promise, seen.peak / self.memory_limit
        if filled > _DOUBT or seen.flops > promise.modelled.flops * MORE_FLOPS:
            return "the program of the best plan does more arithmetic, or takes too much memory", filled
        before = self.before = self.before or self.judge(promise.first)
        found, most = self.judge(made), self.limit_beside(before.peak)
        if not is_better(found, before, before, most):
            return _judged_text(found, before, promise.text), found.peak / most
        if self.tell is not None:
            self.tell(explain_plan(promise.question, answer, limit, found, before))
        return "", found.peak / most


def _judged_text(found: Judgement, before: Judgement, text: Callable[[float], str]) -> str:
    """What the program of a plan costs beside the propagated one, where that decides."""
    costs = [text(j.cost[0] if j.cost else 0.0) for j in (found, before)]
    return f"the program of the best plan costs {costs[0]}, with propagated layouts {costs[1]}"


def _gain_text(planned: float, present: float, gain: float) -> str:
    """What a plan that costs ``planned`` promises, beside the least ``gain`` that would do."""
    if planned > present or not present:
        return "by the cost model, the best plan costs no less than the propagated layouts"
    share = 1 - planned / present
    least = f"a plan must save {gain:.0%}"
    return f"by the cost model, the best plan costs {share:.1%} less than the propagated layouts: {least}"


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
