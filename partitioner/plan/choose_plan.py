"""The best of several ways to lay out a program: as propagated, and as planned within what memory there is.

A plan is made with models; what it comes to shows when it is carried out. Where that takes more memory than there is,
the next plan is made for as much less. Models err: plans that follow patterns (`find_seeds`) are carried out, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from shardc.costs.machines.machine import Machine
from shardc.hlo.ir.ir import Module
from shardc.hlo.units import bytes_text
from shardc.partitioner.free_interface import FreeInterface
from shardc.partitioner.plan.explain_plan import explain_plan
from shardc.partitioner.plan.infeasible import describe_conflict, describe_excess
from shardc.partitioner.plan.judge import Judge, Judgement, judge_by_bytes, judge_by_models
from shardc.partitioner.plan.memory_limits import MemoryLimits
from shardc.partitioner.plan.plan_budget import OverBudgetError, PlanBudget
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.partitioner.plan.plan_reasons import PlanReasons
from shardc.partitioner.plan.seeds.find_seeds import PlanSeed, find_seeds
from shardc.partitioner.strategy.decisions import ChosenSplits
from shardc.partitioner.strategy.solve.problem import ChosenOptions

__all__ = ["Finish", "choose_plan", "is_better"]

#: Makes the per-device program of one whose layouts are chosen, its operations done as chosen, too, or as seems best.
Finish = Callable[[Module, ChosenSplits | None], Module]

#: By how much arithmetic may grow where bytes count, and memory on a machine: plans know it no finer.
_MORE_FLOPS = 1.005
_MORE_MEMORY = 1.05
#: A plan that follows a pattern is decided again where it takes no longer than the best one by this factor.
_HOPEFUL = 1.25


def choose_plan(
    module: Module,
    machine: Machine | None,
    finish: Finish,
    *,
    budget: PlanBudget | None = None,
    memory: float | None = None,
    judge: Judge | None = None,
    interface: FreeInterface | None = None,
    tell: Callable[[PlanReasons], None] | None = None,
) -> Module:
    """The per-device program that costs least.

    ``module`` is propagated, its calls opened; ``finish`` makes the per-device program of it or of a planned one, whose
    operations it does as chosen.
    ``memory``: bytes per device that it may take (None: as many as without a plan). ``judge`` says what a per-device
    program costs (default: bytes, on a machine what models say). Leaves of ``interface`` may lie in any layout. What
    goes beyond the ``budget`` stays as propagated. ``tell`` is given the reasons of a plan, also of one that was made
    and not taken. Raises `PlanError` where nothing is found within ``memory``.
    """
    budget = budget or PlanBudget()
    first = finish(module, None)
    try:
        question = pose_question(module, machine, interface, check=budget.check)
    except OverBudgetError:
        return first
    judge = judge or (judge_by_bytes() if machine is None else judge_by_models(question.context, machine))
    before = judge(first)
    room = before.peak * (1 if machine is None else _MORE_MEMORY) if memory is None else memory
    whole = question if machine is None else question.unhidden()
    answer = whole.solve(math.inf, limits=budget.limits)
    search = _PlanSearch(finish, judge, budget, room, before, first, before)
    search.run(whole, answer)
    if machine is not None:
        search.run(question, question.solve(math.inf, limits=budget.limits))
        if budget.seeds:
            search.try_seeds(whole, find_seeds(whole, room), answer)
    last = search.last
    assert last is not None
    if memory is not None and search.least.peak > memory:
        raise describe_excess(last.question, last.answer, memory, search.least.peak)
    if tell is not None:
        told = search.taken or last
        why = "" if search.taken else f"no plan that was found costs less within {bytes_text(room)} per device"
        tell(explain_plan(told.question, told.answer, told.limit, search.least, before, memory=memory, why=why))
    return search.best


@dataclass(frozen=True, slots=True)
class _CarriedPlan:
    """What a question was answered within so many bytes; ``propagated`` is the program that the choice is near to."""

    question: LayoutQuestion
    answer: ChosenOptions
    limit: float
    propagated: Module | None = None


@dataclass(slots=True)
class _PlanSearch:
    """Carries plans out, each once, and keeps the ``best`` program, which comes to ``least``; ``before`` is what the
    program without a plan comes to. ``last`` is the last plan that was carried out, ``taken`` the best program's."""

    finish: Finish
    judge: Judge
    budget: PlanBudget
    room: float
    before: Judgement
    best: Module
    least: Judgement
    last: _CarriedPlan | None = None
    taken: _CarriedPlan | None = None
    tried: set[tuple[int, ...]] = field(default_factory=set)

    def run(self, question: LayoutQuestion, answer: ChosenOptions) -> None:
        """Plans for ``question``, whose ``answer`` without limits is given, within limits of memory that are corrected
        by what each comes to."""
        limits, cheapest, unlimited = MemoryLimits(self.room), answer.choice, answer
        for _ in range(self.budget.rounds):
            limit = limits.next
            if answer.choice is None or answer.choice in self.tried or question.memory.peak(answer.choice) > limit:
                answer = question.solve(limit, answer.choice, self.budget.limits)
            if answer.excess is not None and unlimited.choice not in self.tried:
                answer = unlimited  # the model says that nothing fits: it may take too much
            if answer.choice is None:
                raise describe_conflict(question, answer)
            found = self.carry_out(_CarriedPlan(question, answer, limit))
            if found is None:
                return
            limits.learn(question.memory.peak(answer.choice), found.peak)
            if limits.narrow or (answer.choice == cheapest and found.peak <= self.room):
                return

    def try_seeds(self, question: LayoutQuestion, seeds: Sequence[PlanSeed], cheapest: ChosenOptions) -> None:
        """Plans that follow patterns; those that are faster and take too much memory again, within less of it.

        Their bounds are those of the ``question``, whose ``cheapest`` answer is given.
        """
        most = len(self.tried) + self.budget.seeds

        def attempt(choice: tuple[int, ...], limit: float, propagated: Module | None = None) -> Judgement | None:
            answer = replace(cheapest, choice=choice, cost=whole.cost(choice), method="pattern")
            return self.carry_out(_CarriedPlan(question, answer, limit, propagated), hopeful=_HOPEFUL)

        whole = question.as_choice(math.inf)
        for seed, (choice, propagated) in ((s, c) for s in seeds for c in s.choices()):
            found = attempt(choice, math.inf, propagated)
            if found is not None and found.peak > self.room and found.cost < self.least.cost:
                limit = question.memory.peak(choice) * self.room / found.peak
                less = seed.within(limit)
                if less.choice is not None and less.excess is None:
                    attempt(less.choice, limit)
            if len(self.tried) >= most:
                return

    def carry_out(self, plan: _CarriedPlan, *, hopeful: float = math.inf) -> Judgement | None:
        """What a plan comes to: done as it says, and with its layouts alone, around which operations are decided again;
        the better of the two. The second is done where the first takes no longer than the best by a factor ``hopeful``.
        None for a plan that was tried before."""
        choice = plan.answer.choice
        if choice is None or choice in self.tried:
            return None
        self.tried.add(choice)
        self.last = plan
        laid_out, least = plan.question.answer(choice), None
        for way, splits in ((laid_out, plan.question.splits(choice)), (plan.propagated or laid_out, None)):
            made = self.finish(way, splits)
            found = self.judge(made)
            if least is None or is_better(found, least, self.before, self.room):
                least = found
            if is_better(found, self.least, self.before, self.room):
                self.best, self.least, self.taken = made, found, plan
            if least.cost[0] > hopeful * self.least.cost[0]:
                break
        return least


def is_better(found: Judgement, least: Judgement, before: Judgement, room: float) -> bool:
    """Does a plan cost less than the best one so far, within the memory? What fits beats what does not."""
    if found.flops > before.flops * _MORE_FLOPS:
        return False
    if least.peak > room:
        return found.peak < least.peak
    return found.peak <= room and found.cost < least.cost
