"""Carries out plans, each once, and keeps the best program. A plan is made with models, and its real cost is known only
when it is carried out. If it exceeds the memory, the next plan is made for that much less. Models have errors, so plans
that follow patterns (`find_seeds`) are carried out too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from shardc.hlo.ir.ir import Module
from shardc.partitioner.plan.judge import Judgement, is_better
from shardc.partitioner.plan.memory_limits import MemoryLimits
from shardc.partitioner.plan.plan_layouts import LayoutQuestion
from shardc.partitioner.plan.seeds.find_seeds import PlanSeed
from shardc.partitioner.strategy.solve.problem import ChosenOptions
from shardc.partitioner.strategy.solve.solve import SolveLimits

__all__ = ["CarriedPlan", "PlanTrials"]

#: A plan that follows a pattern is made in another way, too, where it takes no longer than the best by this factor.
_HOPEFUL = 1.25
#: The cheapest plan is carried out first where models say that it takes no more than the memory by this factor: what it
#: comes to tells what they are off by.
_DOUBT = 2.0
#: A plan that follows a pattern, is faster than the best and takes too much memory is made for less so many times.
_LESS_MEMORY = 3
#: So many times the rounds there are while nothing fits.
_MORE_ROUNDS = 2

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class CarriedPlan:
    """The answer to a question within a number of bytes; ``propagated`` is the propagated program that the choice is
    near to."""

    question: LayoutQuestion
    answer: ChosenOptions
    limit: float
    propagated: Module | None = None

    @property
    def choice(self) -> tuple[int, ...]:
        assert self.answer.choice is not None
        return self.answer.choice


@dataclass(slots=True)
class PlanTrials(Generic[Made]):
    """Keeps the ``best`` program of all plans within ``room`` bytes, its cost ``least``, and its plan ``taken``.

    ``ways`` are the ways to carry out a plan, each with its judgement. ``before`` is the judgement of the program
    without a plan, ``rounds`` the number of memory limits to try. ``last`` is the last plan that was carried out.
    """

    ways: Callable[[CarriedPlan], Iterator[tuple[Made, Judgement]]]
    room: float
    rounds: int
    before: Judgement | None = None
    best: Made | None = None
    least: Judgement | None = None
    last: CarriedPlan | None = None
    taken: CarriedPlan | None = None
    tried: set[tuple[int, ...]] = field(default_factory=set)

    def run(self, question: LayoutQuestion, answer: ChosenOptions, limits: SolveLimits | None = None) -> None:
        """Carry out plans for ``question``, whose ``answer`` is the first, within memory limits that each result
        corrects."""
        corrected, first = MemoryLimits(self.room), answer
        for count in range(_MORE_ROUNDS * self.rounds):
            if count >= self.rounds and self.fits:
                return
            limit = corrected.next
            most = limit if count else _DOUBT * limit
            if answer.choice is None or answer.choice in self.tried or question.memory.peak(answer.choice) > most:
                answer = question.solve(limit, answer.choice, limits)
            if answer.excess is not None and first.choice not in self.tried:
                answer = first  # the model says that nothing fits: it may take too much
            if answer.choice is None:
                return
            found = self.carry_out(CarriedPlan(question, answer, limit))
            if found is None:
                return
            corrected.learn(question.memory.peak(answer.choice), found.peak)
            if corrected.narrow or (answer.choice == first.choice and found.peak <= self.room):
                return

    @property
    def fits(self) -> bool:
        """Whether the best program is within the memory."""
        return self.least is not None and self.least.peak <= self.room

    def try_seeds(
        self, question: LayoutQuestion, seeds: Sequence[PlanSeed], cheapest: ChosenOptions, most: int
    ) -> None:
        """Carry out at most this many plans that follow patterns. Plans that are faster but exceed the memory are made
        again for less memory. Their bounds are those of the ``question``, whose ``cheapest`` answer is given."""
        most += len(self.tried)

        whole = question.as_choice(math.inf)

        def attempt(choice: tuple[int, ...], limit: float, propagated: Module | None = None) -> Judgement | None:
            answer = replace(cheapest, choice=choice, cost=whole.cost(choice), method="pattern")
            return self.carry_out(CarriedPlan(question, answer, limit, propagated), hopeful=_HOPEFUL)

        for seed, (choice, propagated) in ((s, c) for s in seeds for c in s.choices()):
            found, corrected = attempt(choice, math.inf, propagated), MemoryLimits(self.room)
            for _ in range(_LESS_MEMORY):
                if found is None or found.peak <= self.room or not self._is_faster(found):
                    break
                corrected.learn(question.memory.peak(choice), found.peak)
                less = seed.within(corrected.next)
                if less.choice is None or less.excess is not None:
                    break
                choice = less.choice
                found = attempt(choice, corrected.next)
            if len(self.tried) >= most:
                return

    def _is_faster(self, found: Judgement) -> bool:
        """Whether the plan is faster than the best program within the memory, if there is one."""
        return self.least is None or not self.fits or found.cost < self.least.cost

    def carry_out(self, plan: CarriedPlan, *, hopeful: float = math.inf) -> Judgement | None:
        """The judgement of a plan in the best of its ways. The next way is tried only if the earlier ones are within a
        factor ``hopeful`` of the best plan. None for a plan that was tried before."""
        if plan.choice in self.tried:
            return None
        self.tried.add(plan.choice)
        self.last, least = plan, None
        for made, found in self.ways(plan):
            if least is None or is_better(found, least, self.before, self.room):
                least = found
            if self.least is None or is_better(found, self.least, self.before, self.room):
                self.best, self.least, self.taken = made, found, plan
            if least.cost[0] > hopeful * self.least.cost[0]:
                break
        return least
