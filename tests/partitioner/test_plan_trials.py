"""Plans that are carried out: a pattern that takes too much memory is made for less, as often as it helps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shardc.partitioner.plan.judge import Judgement
from shardc.partitioner.plan.plan_trials import CarriedPlan, PlanTrials
from shardc.partitioner.strategy.solve.problem import ChosenOptions

ROOM = 100.0
#: By choice: what models say that it takes, and the seconds and bytes that it comes to.
CHOICES: Mapping[tuple[int, ...], tuple[float, float, float]] = {
    (0,): (80, 9.0, 60),  # the cheapest by models, which fits
    (1,): (90, 2.0, 130),  # a pattern: fast, and too large
    (2,): (69, 2.5, 115),
    (3,): (60, 3.0, 95),
}


def answer(choice: tuple[int, ...] | None) -> ChosenOptions:
    return ChosenOptions(choice, 1.0, 1.0, "elimination", excess=None if choice else 1.0)


def within(limit: float) -> ChosenOptions:
    """The pattern within so many modelled bytes."""
    return answer(next((c for c in ((1,), (2,), (3,)) if CHOICES[c][0] <= limit), None))


def carried(choices: tuple[tuple[int, ...], ...]) -> PlanTrials[tuple[int, ...]]:
    """What trials come to for the cheapest plan, then for patterns that begin with these choices."""
    memory = SimpleNamespace(peak=lambda choice: CHOICES[choice][0])
    problem = SimpleNamespace(cost=lambda choice: 1.0)
    question = cast(Any, SimpleNamespace(memory=memory, as_choice=lambda limit: problem))

    def ways(plan: CarriedPlan) -> Iterator[tuple[tuple[int, ...], Judgement]]:
        _, seconds, peak = CHOICES[plan.choice]
        yield plan.choice, Judgement((seconds,), peak)

    trials = PlanTrials(ways, ROOM, 1)
    trials.run(question, answer((0,)))
    assert trials.best == (0,)
    seeds = [SimpleNamespace(choices=lambda c=c: iter([(c, None)]), within=within) for c in choices]
    trials.try_seeds(question, cast(Any, seeds), answer((0,)), 10)
    return trials


def test_a_pattern_is_made_for_less_memory_until_it_fits() -> None:
    trials = carried(((1,),))
    assert trials.best == (3,)
    assert trials.tried == set(CHOICES)
    assert trials.taken is not None
    assert trials.taken.limit == pytest.approx(69 * ROOM / 115)


def test_a_slower_pattern_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_plan_trials.CHOICES", {**CHOICES, (1,): (90, 10.0, 130)})
    trials = carried(((1,),))
    assert trials.best == (0,)
    assert trials.tried == {(0,), (1,)}
