"""The solver against trying everything: random problems with and without rows of memory."""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.errors import InputError
from shardc.partitioner.strategy.solve import eliminate
from shardc.partitioner.strategy.solve.dual import DualBound
from shardc.partitioner.strategy.solve.eliminate import CostTable, can_eliminate
from shardc.partitioner.strategy.solve.eliminate_near import eliminate_near, sharpen
from shardc.partitioner.strategy.solve.highs import make_solver
from shardc.partitioner.strategy.solve.integer import solve_integer
from shardc.partitioner.strategy.solve.linear import tighten
from shardc.partitioner.strategy.solve.marginals import find_marginals
from shardc.partitioner.strategy.solve.network import CostNetwork, ImpossibleChoiceError
from shardc.partitioner.strategy.solve.parts import improve_by_parts
from shardc.partitioner.strategy.solve.problem import ChoiceProblem, ChosenOptions, MemoryUse, PairCost
from shardc.partitioner.strategy.solve.program import LinearProgram
from shardc.partitioner.strategy.solve.reduce import drop_rows, reduce_network
from shardc.partitioner.strategy.solve.rows import MemoryRows
from shardc.partitioner.strategy.solve.search import Incumbent, improve_with_dual, measure
from shardc.partitioner.strategy.solve.solve import SolveLimits, solve_choice
from shardc.partitioner.strategy.solve.surplus import Surplus


def random_problem(seed: int, variables: int, options: int, *, rows: bool) -> ChoiceProblem:
    """Costs that are whole numbers, so that sums are exact; some tables make one variable follow another."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, options + 1, variables)
    costs = [rng.integers(0, 20, n).astype(float) for n in sizes]
    for cost in costs:
        cost[1:][rng.random(len(cost) - 1) < 0.1] = np.inf
    pairs = []
    for _ in range(int(rng.integers(0, 2 * variables + 1))):
        a, b = (int(x) for x in rng.integers(0, variables, 2))
        if a == b:
            continue
        table = rng.integers(0, 20, (sizes[a], sizes[b])).astype(float)
        if rng.random() < 0.3:
            table[:] = np.inf
            table[np.arange(sizes[a]), rng.integers(0, sizes[b], sizes[a])] = 0
        else:
            table[rng.random(table.shape) < 0.2] = np.inf
        pairs.append(PairCost(a, b, table))
    if not rows:
        return ChoiceProblem(tuple(costs), tuple(pairs))
    times = int(rng.integers(1, 6))
    uses = []
    for v in range(variables):
        for _ in range(int(rng.integers(0, 3))):
            start, stop = sorted(int(x) for x in rng.integers(0, times + 1, 2))
            uses.append(MemoryUse(v, start, stop, rng.integers(0, 10, sizes[v]).astype(float)))
    return ChoiceProblem(tuple(costs), tuple(pairs), rng.integers(5, 30, times).astype(float), tuple(uses))


def least(problem: ChoiceProblem) -> float:
    """The least cost of all choices, each of them tried."""
    total: np.ndarray = np.zeros([len(c) for c in problem.costs])
    count = total.ndim
    for v, cost in enumerate(problem.costs):
        total = total + cost.reshape([-1 if k == v else 1 for k in range(count)])
    for p in problem.pairs:
        table = p.table if p.first < p.second else p.table.T
        total = total + table.reshape([len(c) if k in (p.first, p.second) else 1 for k, c in enumerate(problem.costs)])
    for row, limit in enumerate(problem.limits):
        used: np.ndarray = np.zeros_like(total)
        for u in problem.uses:
            if u.start <= row < u.stop:
                used = used + u.amounts.reshape([-1 if k == u.variable else 1 for k in range(count)])
        total = np.where(used <= limit, total, np.inf)
    return float(total.min())


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 10**6), variables=st.integers(1, 8), options=st.integers(1, 6), rows=st.booleans())
def test_the_answer_is_that_of_trying_everything(seed: int, variables: int, options: int, rows: bool) -> None:
    problem = random_problem(seed, variables, options, rows=rows)
    expected = least(problem)
    answer = solve_choice(problem)
    if np.isinf(expected):
        assert answer.choice is None or answer.excess is not None or np.isinf(answer.cost)
        return
    assert answer.choice is not None
    assert problem.cost(answer.choice) == answer.cost >= expected
    assert answer.bound <= expected + 1e-6
    assert (problem.usage(answer.choice) <= problem.limits).all()
    if answer.method != "dual and search":
        assert answer.cost <= expected * (1 + 2e-4)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.booleans())
def test_the_dual_and_the_search_never_claim_too_much(seed: int, rows: bool) -> None:
    """Without elimination and integer programs: the bound is below, the choice allowed and no worse than the start."""
    problem = random_problem(seed, 6, 4, rows=rows)
    expected = least(problem)
    start = next(
        (
            c
            for c in itertools.product(*(range(len(c)) for c in problem.costs))
            if np.isfinite(problem.cost(c)) and (problem.usage(c) <= problem.limits).all()
        ),
        None,
    )
    answer = solve_choice(problem, start, SolveLimits(table=0, columns=0))
    assert answer.bound <= expected + 1e-6
    if start is not None:
        assert answer.choice is not None and answer.excess is None
        assert expected <= answer.cost <= problem.cost(start)
        assert (problem.usage(answer.choice) <= problem.limits).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.booleans(),
    columns=st.integers(0, 400),
    near=st.sampled_from((0, 1 << 12, 1 << 17)),
)
def test_programs_of_a_part_of_the_options_never_claim_too_much(seed: int, rows: bool, columns: int, near: int) -> None:
    problem = random_problem(seed, 6, 4, rows=rows)
    expected = least(problem)
    answer = solve_choice(problem, None, SolveLimits(table=0, near=near, columns=columns, rounds=3))
    if np.isinf(expected):
        assert answer.choice is None or answer.excess is not None or np.isinf(answer.cost)
        return
    assert answer.bound <= expected + 1e-6
    if answer.excess is None and answer.choice is not None:
        assert answer.cost >= expected


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.booleans(), near=st.sampled_from((1 << 11, 1 << 13, 1 << 24)))
def test_eliminations_of_what_is_near_never_claim_too_much(seed: int, rows: bool, near: int) -> None:
    """Elimination alone, in parts of 16 entries: the bound holds, and is the least cost where tables have all of it."""
    problem = random_problem(seed, 7, 6, rows=rows)
    expected = least(problem)
    network = CostNetwork(problem)
    try:
        reduce_network(network)
    except ImpossibleChoiceError:
        assert np.isinf(expected)
        return
    drop_rows(network)
    memory = MemoryRows.of(network)
    dual = DualBound(network, memory)
    best = improve_with_dual(dual, None, 2, 0.0)
    dual.return_to_best()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eliminate, "_PART", 16)
        bound = eliminate_near(dual, Surplus.of(dual), best, near)
    assert bound <= expected + 1e-6
    if best.excess <= 0 and np.isfinite(best.cost) and (network.spent <= network.limits).all():
        assert best.cost >= expected - 1e-6
        if near == 1 << 24 and not len(memory.rows):
            assert bound == pytest.approx(expected) == best.cost


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_marginals_are_those_of_trying_everything(seed: int) -> None:
    problem = random_problem(seed, 5, 4, rows=False)
    costs = [CostTable((v,), c) for v, c in enumerate(problem.costs)]
    pairs = [CostTable((p.first, p.second), p.table) for p in problem.pairs]
    sizes = {v: len(c) for v, c in enumerate(problem.costs)}
    found = find_marginals(sizes, [*costs, *pairs], 1 << 20)
    assert found is not None
    for v, cost in enumerate(problem.costs):
        for k in range(len(cost)):
            only = np.where(np.arange(len(cost)) == k, cost, np.inf)
            fixed = (*problem.costs[:v], only, *problem.costs[v + 1 :])
            assert found[v][k] == least(replace(problem, costs=fixed))


def test_marginals_leave_out_options_that_memory_makes_dear() -> None:
    """At the prices of memory no better choice has what `sharpen` leaves out; its bound holds."""
    dropped = 0
    for seed in range(60):
        problem = random_problem(seed, 7, 5, rows=True)
        network = CostNetwork(problem)
        try:
            reduce_network(network)
        except ImpossibleChoiceError:
            continue
        drop_rows(network)
        dual = DualBound(network, MemoryRows.of(network))
        best = improve_with_dual(dual, None, 2, 0.0)
        dual.return_to_best()
        before = Surplus.of(dual)
        after = sharpen(dual, before, best, 1 << 20)
        if best.excess > 0 or not np.isfinite(best.cost):
            assert after is before
            continue
        assert min(dual.bound + after.least, best.cost) <= least(problem) + 1e-6
        for v, surplus in after.options.items():
            assert (surplus >= before.options[v] - 1e-9).all()
            for k in network.options[v][surplus > best.cost - dual.bound + 1e-6].tolist():
                only = np.where(np.arange(len(problem.costs[v])) == k, problem.costs[v], np.inf)
                fixed = (*problem.costs[:v], only, *problem.costs[v + 1 :])
                assert least(replace(problem, costs=fixed)) >= best.cost - 1e-6
                dropped += 1
    assert dropped > 20


def test_tables_of_an_elimination_are_limited_together() -> None:
    """A chain of 10 variables of 4 values: nine joint tables of two, and one of the last."""
    sizes, pairs = dict.fromkeys(range(10), 4), [(v, v + 1) for v in range(9)]
    assert can_eliminate(sizes, pairs, 9 * 16 + 4)
    assert not can_eliminate(sizes, pairs, 9 * 16 + 3)


def test_equal_problems_have_equal_answers() -> None:
    for seed in range(20):
        problem = random_problem(seed, 8, 6, rows=True)
        assert solve_choice(problem) == solve_choice(problem), seed


def test_what_memory_lacks_is_said_with_who_uses_it() -> None:
    cost = np.array([1.0, 2.0])
    uses = (MemoryUse(0, 0, 2, np.array([5.0, 4.0])), MemoryUse(1, 1, 3, np.array([9.0, 8.0])))
    answer = solve_choice(ChoiceProblem((cost, cost), (), np.array([10.0, 10.0, 10.0]), uses))
    assert answer.excess is not None
    assert (answer.excess.row, answer.excess.at_least, answer.excess.found) == (1, 2.0, 2.0)
    assert answer.excess.heaviest == ((1, 8.0), (0, 4.0))


def test_variables_that_contradict_each_other_are_named() -> None:
    table = np.full((2, 2), np.inf)
    answer = solve_choice(ChoiceProblem((np.zeros(2), np.zeros(2), np.zeros(1)), (PairCost(0, 1, table),)))
    assert answer.choice is None
    assert set(answer.conflict) == {0, 1}


def test_a_chain_of_many_equal_layers_is_decided_without_a_search() -> None:
    rng = np.random.default_rng(7)
    costs = [rng.integers(0, 9, 6).astype(float) for _ in range(5)]
    tables = [rng.integers(0, 9, (6, 6)).astype(float) for _ in range(5)]
    count = 2_000
    problem = ChoiceProblem(
        tuple(costs[v % 5] for v in range(count)), tuple(PairCost(v, v + 1, tables[v % 5]) for v in range(count - 1))
    )
    best = costs[0]
    for v in range(count - 1):
        best = costs[(v + 1) % 5] + (best[:, None] + tables[v % 5]).min(axis=0)
    answer = solve_choice(problem)
    assert answer.cost == answer.bound == best.min()


@pytest.mark.parametrize(
    "change",
    [
        {"costs": (np.zeros(0),)},
        {"costs": (np.array([np.nan]),)},
        {"pairs": (PairCost(0, 0, np.zeros((2, 2))),)},
        {"uses": (MemoryUse(0, 0, 1, np.zeros(2)),)},
    ],
)
def test_a_problem_whose_parts_do_not_fit_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError):
        solve_choice(replace(ChoiceProblem((np.zeros(2),)), **change))


def test_a_contest_file_is_read_with_its_rows(tmp_path: Path, repository: Path) -> None:
    """Two nodes that share times: the cheap options of both do not fit together."""
    text = {
        "problem": {
            "name": "two",
            "nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[1, 4], [2, 9]], "usages": [[6, 2], [7, 1]]},
            "edges": {"nodes": [[0, 1]], "costs": [[0, 5, 1000000000000000000, 0]]},
            "usage_limit": 10,
        }
    }
    file = tmp_path / "asplos-2025-iopddl-Z.json.gz"
    file.write_bytes(gzip.compress(json.dumps(text).encode()))
    spec = importlib.util.spec_from_file_location("choices", repository / "benchmarks" / "choices.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answer = solve_choice(module.read_instance(file))
    assert (answer.choice, answer.cost) == ((1, 1), 13.0)


def ring_within_memory(count: int) -> ChoiceProblem:
    """A ring of variables with memory rows that each share with some neighbours."""
    rng = np.random.default_rng(3)
    costs = tuple(rng.integers(0, 20, 5).astype(float) for _ in range(count))
    pairs = tuple(PairCost(v, (v + 1) % count, rng.integers(0, 20, (5, 5)).astype(float)) for v in range(count))
    uses = tuple(MemoryUse(v, max(v - 6, 0), v + 1, np.arange(5.0) * 3) for v in range(count))
    return ChoiceProblem(costs, pairs, np.full(count, 40.0), uses)


def improved_by_parts(problem: ChoiceProblem, parts: float) -> tuple[float, Incumbent, list[int]]:
    """The cost of the worst choice that fits, what at most so many ``parts`` make of it, and their sizes."""
    network = CostNetwork(problem)
    rows = MemoryRows.of(network)
    best = Incumbent(dict.fromkeys(range(len(problem.costs)), 0))
    best.excess, best.cost = measure(network, rows, best.positions)
    begun = best.cost
    asked: list[int] = []

    def solve(part: ChoiceProblem, present: Sequence[int]) -> ChosenOptions:
        asked.append(len(part.costs))
        assert (part.usage(present) <= part.limits).all()
        return solve_choice(part, present, SolveLimits(near=0, rounds=10, parts=0))

    improve_by_parts(network, rows, best, 0, 8_000, 240, solve, lambda: len(asked) >= parts)
    return begun, best, asked


def test_parts_of_a_choice_are_made_better_within_memory() -> None:
    """From the worst choice of a long ring that fits: parts find what one program finds."""
    problem = ring_within_memory(24)
    begun, best, asked = improved_by_parts(problem, np.inf)
    choice = [best.positions[v] for v in range(24)]
    assert (problem.usage(choice) <= problem.limits).all()
    assert problem.cost(choice) == best.cost
    optimum = solve_choice(problem)
    assert optimum.bound <= best.cost <= 1.02 * optimum.cost < begun
    assert 1 < max(asked) < 24


def test_a_search_of_parts_ends_when_its_work_is_spent() -> None:
    problem = ring_within_memory(24)
    begun, best, asked = improved_by_parts(problem, 3)
    assert len(asked) == 3
    assert best.cost < begun
    assert (problem.usage([best.positions[v] for v in range(24)]) <= problem.limits).all()


def test_work_on_parts_is_limited() -> None:
    """Programs of one node leave a gap, so that parts are searched: as far as their work goes. A program like the first
    one closes the search."""
    problem = ring_within_memory(20)
    limits = SolveLimits(near=0, nodes=1, rounds=1, gap=0.0, enough=0.0, columns=400)
    alone = solve_choice(problem, limits=replace(limits, parts=0))
    short, long = (solve_choice(problem, limits=replace(limits, iterations=n)) for n in (300, 900))
    assert alone.work + 300 <= short.work <= 2 * alone.work + 600
    assert alone.work + 900 <= long.work <= 2 * alone.work + 1200
    assert alone.cost >= short.cost >= long.cost


def test_rows_that_are_exceeded_most_come_first() -> None:
    rows = MemoryRows.of(CostNetwork(ring_within_memory(40)))
    assert len(rows.find_exceeded(rows.limits + 1)) == 20 < len(rows.limits)
    used = rows.limits.copy()
    used[[3, 5, 7]] += [1.0, 4.0, 2.0]
    assert rows.find_exceeded(used) == [5, 7, 3]
    assert rows.find_exceeded(used, tolerance=1.5 / 40, known={5}) == [7]


def test_programs_begin_with_rows_of_memory_that_relaxed_answers_exceeded() -> None:
    """Three variables want 10 each in the second row, where 12 are left; the first row is never full."""
    costs = tuple(np.array([5.0, 0.0]) for _ in range(3))
    uses = [MemoryUse(v, 1, 2, np.array([0.0, 10.0])) for v in range(3)]
    uses += [MemoryUse(v, 0, 1, np.array([5.0, 0.0])) for v in range(3)]
    network = CostNetwork(ChoiceProblem(costs, (), np.array([16.0, 12.0]), tuple(uses)))
    dual = DualBound(network, MemoryRows.of(network))
    surplus = Surplus.of(dual)
    program = LinearProgram(dual, surplus, np.inf)
    assert dual.pressed == frozenset()
    assert tighten(program, 1000) == pytest.approx(9.0)
    assert dual.pressed == {1}
    dual.return_to_best()
    best = Incumbent(dict.fromkeys(range(3), 0), 0.0, 15.0)
    eliminate_near(dual, Surplus.of(dual), best, 1 << 10)
    result = solve_integer(LinearProgram(dual, Surplus.of(dual), np.inf), None, 100, 0.0, dual.pressed)
    assert result.bound == pytest.approx(10.0)
    assert result.active >= {1}


def test_the_solver_of_programs_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    make_solver(solver="simplex").run()
    assert capfd.readouterr() == ("", "")
