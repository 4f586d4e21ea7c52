"""What a plan says of itself: true costs of other layouts, full rows, names that people know."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from partition_support import layout as spec
from test_plan import products

from shardc.costs.machines.machine import load_machine
from shardc.hlo.config import Config
from shardc.hlo.errors import PlanError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.passes import run_pipeline
from shardc.hlo.units import bytes_text
from shardc.partitioner.free_interface import FreeInterface
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.partition import OPENING, partition
from shardc.partitioner.plan.alternatives import Alternatives
from shardc.partitioner.plan.explain_plan import explain_plan
from shardc.partitioner.plan.judge import Judgement
from shardc.partitioner.plan.merge_equal import merge_equal
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.partitioner.plan.plan_reasons import PlanReasons
from shardc.partitioner.strategy.solve.problem import ChoiceProblem, ChosenOptions, MemoryUse, PairCost
from shardc.partitioner.strategy.solve.solve import solve_choice

MESH = Mesh({"d": 2, "m": 2})
NOTHING = Judgement((0.0,), 0.0)


def random_problem(rng: np.random.Generator, rows: bool, star: bool = False) -> ChoiceProblem:
    sizes = rng.integers(2, 4, 6)
    costs = tuple(rng.integers(0, 20, n).astype(float) for n in sizes)
    ends = [(0, v) for v in range(1, 6)] if star else [(u, v) for u, v in itertools.combinations(range(6), 2)]
    ends = ends if star else [e for e in ends if rng.random() < 0.5]
    tables = [rng.integers(0, 30, (sizes[u], sizes[v])).astype(float) for u, v in ends]
    for t in tables:
        t[rng.random(t.shape) < 0.1] = math.inf
    pairs = tuple(PairCost(u, v, t) for (u, v), t in zip(ends, tables, strict=True))
    if not rows:
        return ChoiceProblem(costs, pairs)
    uses = tuple(
        MemoryUse(v, int(low), int(low) + 2, rng.integers(0, 9, sizes[v]).astype(float))
        for v, low in enumerate(rng.integers(0, 3, 6))
    )
    return ChoiceProblem(costs, pairs, np.full(5, 12.0), uses)


def least(problem: ChoiceProblem, variable: int, option: int) -> float:
    """The least cost of all choices with an option, by trying all."""
    found = math.inf
    for choice in itertools.product(*(range(len(c)) for c in problem.costs)):
        if choice[variable] == option and not (problem.usage(choice) > problem.limits).any():
            found = min(found, problem.cost(choice))
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rows", [False, True], ids=["free", "within memory"])
def test_other_options_never_cost_less_than_the_truth(seed: int, rows: bool) -> None:
    problem = random_problem(np.random.default_rng(seed), rows)
    answer = solve_choice(problem)
    if answer.choice is None or answer.excess is not None or not math.isfinite(answer.cost):
        pytest.skip("this problem has no answer")
    others, told = Alternatives(problem, answer.choice), 0
    for v, cost in enumerate(problem.costs):
        for option in range(len(cost)):
            more = others.more(v, [option])
            if more is not None:
                told += 1
                assert more >= least(problem, v, option) - answer.cost - 1e-9
        assert others.more(v, [answer.choice[v]]) == 0
    assert told > len(problem.costs)


@pytest.mark.parametrize("seed", range(8))
def test_what_surroundings_follow_alone_is_exact(seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed), rows=False, star=True)
    answer = solve_choice(problem)
    assert answer.choice is not None
    others = Alternatives(problem, answer.choice)
    for option in range(len(problem.costs[0])):
        more = others.more(0, [option])
        assert (math.inf if more is None else more) == pytest.approx(least(problem, 0, option) - answer.cost)
        assert others.hopes(0)[option] == pytest.approx(least(problem, 0, option))


def asked(machine: str, interface: FreeInterface | None = None) -> LayoutQuestion:
    whole = spec(MESH, None, None)
    opened = run_pipeline(products(MESH, {"first": whole, "between": whole}), OPENING, Config())
    return pose_question(opened, load_machine(machine) if machine else None, interface)


def told(question: LayoutQuestion, limit: float) -> tuple[PlanReasons, ChosenOptions]:
    merged = merge_equal(question.as_choice(limit))
    found = solve_choice(merged.problem)
    assert found.choice is not None
    found = replace(found, choice=merged.expand(found.choice))
    return explain_plan(question, found, limit, NOTHING, NOTHING, memory=limit), found


@pytest.mark.parametrize("machine", ["", "h100-dgx"])
def test_costs_of_other_layouts_are_those_of_all_choices(machine: str) -> None:
    question = asked(machine)
    reasons, found = told(question, math.inf)
    assert [d.names for d in reasons.decisions] == [("first",), ("between",), ("second",)]
    assert reasons.taken and reasons.unit == ("s" if machine else "B") and reasons.machine == machine
    assert reasons.cost == found.cost <= reasons.wanted_cost
    choice, table = question.as_choice(math.inf), question.context.table
    sizes = [range(len(c)) for c in choice.costs]
    everything = [(choice.cost(c), c) for c in itertools.product(*sizes)]
    for k, d in enumerate(reasons.decisions):
        layouts = [table.to_sharding(o.results[0]) for o in question.problem.members[k][0].options]
        best = {x: min(cost for cost, c in everything if layouts[c[k]] == x) for x in set(layouts)}
        assert best[d.chosen] == pytest.approx(reasons.cost)
        if d.wanted_more is not None:
            assert d.wanted_more >= (best[d.wanted] - reasons.cost) * (1 - 1e-9)
        assert d.next_best is not None and d.next_best != d.chosen and d.next_more is not None
        assert d.next_more >= (best[d.next_best] - reasons.cost) * (1 - 1e-9)
    assert max(reasons.usage) == pytest.approx(question.memory.peak(found.choice or ()))


def test_arguments_and_results_have_their_names_and_full_memory_is_told() -> None:
    interface = FreeInterface(frozenset((0, 1, 2)), frozenset((0,)))
    question = asked("h100-dgx", interface)
    free, _ = told(question, math.inf)
    roles = {d.role: d.names for d in free.decisions}
    assert roles["argument"] and roles["result"] == ("result0",)
    assert {n for d in free.decisions if d.role == "argument" for n in d.names} == {"x", "a", "b"}
    peak = max(free.usage)
    tight, found = told(question, 0.6 * peak)
    assert found.excess is None and max(tight.usage) <= 0.6 * peak < peak
    for row in tight.rows:
        assert row.usage <= row.limit == 0.6 * peak and row.saves > 0
        assert sum(nbytes for _, nbytes in row.heaviest) <= row.usage * (1 + 1e-9)
    numbers = {n for d in tight.decisions for n in d.binds}
    assert numbers <= set(range(len(tight.rows)))


def test_a_plan_that_was_not_taken_says_why_and_no_more() -> None:
    question = asked("")
    _, found = told(question, math.inf)
    reasons = explain_plan(question, found, math.inf, NOTHING, NOTHING, why="it costs more")
    assert not reasons.taken and reasons.why == "it costs more"
    assert not reasons.decisions and not reasons.rows and reasons.wanted_cost >= reasons.cost


def test_memory_that_nothing_fits_into_is_told() -> None:
    module = products(MESH, dict.fromkeys(("first", "between"), spec(MESH, "d", "m")))
    needed = 4 * (64 * 128 // 2 + 2 * 128 * 256 // 4)
    with pytest.raises(PlanError) as raised:
        partition(module, options=PartitionOptions(plan="global", memory=40_000))
    text = str(raised.value)
    assert "no plan was found within 39.1 KiB of memory per device" in text
    assert "by any" not in text, "the model of memory bounds nothing"
    assert f"arguments with given layouts {bytes_text(needed)}" in text
    assert "x 16.0 KiB" in text
    assert "leave their layouts to the plan" in text
    interface = FreeInterface(frozenset((0, 1, 2)), frozenset((0,)))
    with pytest.raises(PlanError, match="give more memory or devices") as free:
        partition(module, options=PartitionOptions(plan="global", memory=60_000, interface=interface))
    assert "arguments with given" not in str(free.value)
    kept = partition(module, options=PartitionOptions(plan="global", memory=500_000, interface=interface))
    assert kept.partitioned


def test_reasons_travel_with_the_partitioned_program() -> None:
    module = products(MESH, dict.fromkeys(("first", "between"), spec(MESH, None, None)))
    told: list[PlanReasons | str] = []
    partition(module, machine=load_machine("h100-dgx"), options=PartitionOptions(plan="global"), tell=told.append)
    (reasons,) = told
    assert isinstance(reasons, PlanReasons)
    assert reasons.judged.cost <= reasons.judged_wanted.cost
    assert reasons.taken == bool(reasons.decisions)
    partition(module, options=PartitionOptions(plan="propagated"), tell=told.append)
    assert len(told) == 1


def test_an_auto_plan_that_is_not_taken_says_why() -> None:
    module = products(MESH, dict.fromkeys(("first", "between"), spec(MESH, None, None)))
    told: list[PlanReasons | str] = []
    partition(module, options=PartitionOptions(plan="auto"), tell=told.append)
    assert told == ["by the cost model, the program of the best plan costs no less"]
