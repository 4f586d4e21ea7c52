"""Questions of layouts posed for generated programs: the answer is the cheapest of all choices, each of them tried.

Every choice is a program that computes the same.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from partition_programs import PROGRAMS, matmul, total
from partition_support import integers, random_sharding, scatter_poisoned, with_shardings
from test_solve import least

from shardc.costs.machines.machine import load_machine
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape
from shardc.hlo.passes import run_pipeline
from shardc.hlo.verify import verify
from shardc.partitioner.equivalence import agree, gather_results
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.partition import OPENING, pipeline, write_program
from shardc.partitioner.plan.merge_equal import merge_equal
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.partitioner.regions.region import make_plan
from shardc.partitioner.regions.region_graph import GraphCosts
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.rewrite.local_cost import collectives_cost
from shardc.partitioner.rules import RULES
from shardc.partitioner.strategy.solve.problem import ChoiceProblem
from shardc.partitioner.strategy.solve.solve import solve_choice

MESHES = (Mesh({"d": 4}), Mesh({"d": 8}), Mesh({"d": 2, "m": 2}), Mesh({"d": 2, "m": 4}))
#: So many decisions with so many strategies are tried one by one.
DECISIONS, CHOICES = 8, 6**8


def generated(r: random.Random) -> Computation:
    """Products, transposes, sums and what is done by element, of square matrices; some inside a loop."""
    n = r.choice((16, 24, 64))
    b = Builder("main")
    values = [b.parameter(array_shape("f32", n, n), name=f"p{k}") for k in range(r.randint(1, 3))]
    for _ in range(r.randint(1, 4)):
        values.append(one_more(r, b, values))
    if r.random() < 0.3:
        values.append(loop(r, b, values[-1]))
    return b.build(values[-1] if r.random() < 0.7 else b.add("tuple", *values[-2:]))


def one_more(r: random.Random, b: Builder, values: list[Instruction]) -> Instruction:
    x, y = values[-1], r.choice(values)
    kind = r.choice(("dot", "dot", "add", "tanh", "transpose", "sum"))
    if kind == "dot":
        return matmul(b, x, y)
    if kind == "add":
        return b.add("add", x, y)
    if kind == "transpose":
        return b.add("transpose", x, dimensions=(1, 0))
    if kind == "sum":
        return b.add("broadcast", total(b, x, (r.randrange(2),)), shape=x.shape, dimensions=(r.randrange(2),))
    return b.add("negate", x)


def loop(r: random.Random, b: Builder, start: Instruction) -> Instruction:
    """One operation, three times over."""
    inner = Builder("body")
    n, x = counter_and_value(inner, start.shape)
    values = [x, one_more(r, inner, [x])]
    body = inner.build(inner.add("tuple", inner.add("add", n, inner.constant(1, "s32")), values[-1]))
    test = Builder("condition")
    n, _ = counter_and_value(test, start.shape)
    condition = test.build(test.add("compare", n, test.constant(3, "s32"), direction="LT"))
    init = b.add("tuple", b.constant(0, "s32"), start)
    return b.add("get-tuple-element", b.add("while", init, condition=condition, body=body), index=1)


def counter_and_value(b: Builder, shape: Shape) -> tuple[Instruction, Instruction]:
    state = b.parameter(tuple_shape(array_shape("s32"), shape))
    return b.add("get-tuple-element", state, index=0), b.add("get-tuple-element", state, index=1)


def question_of(r: random.Random, computation: Computation, mesh: Mesh, machine: str) -> tuple[Module, LayoutQuestion]:
    module = with_shardings(computation, mesh, lambda i: random_sharding(r, mesh, i.shape.rank))
    opened = run_pipeline(module, OPENING, Config())
    return opened, pose_question(opened, load_machine(machine) if machine else None)


def free(problem: ChoiceProblem) -> list[int]:
    """Variables with something to decide."""
    return [v for v, c in enumerate(problem.costs) if len(c) > 1]


def random_choice(r: random.Random, problem: ChoiceProblem) -> tuple[int, ...]:
    return tuple(r.randrange(len(c)) for c in problem.costs)


def small_questions(machine: str, count: int, most: int = CHOICES) -> list[tuple[str, LayoutQuestion]]:
    """Questions with few enough choices to try them all, and what they were made from."""
    found: list[tuple[str, LayoutQuestion]] = []
    seed = 0
    while len(found) < count:
        r = random.Random(f"small question {machine} {seed}")
        mesh = r.choice(MESHES)
        _, question = question_of(r, generated(r), mesh, machine)
        problem = question.as_choice(math.inf)
        choices = math.prod(len(c) for c in problem.costs)
        if 30 < choices <= most and 2 <= len(free(problem)) <= DECISIONS:
            found.append((f"seed {seed}, {mesh}, {choices} choices", question))
        seed += 1
    return found


# -- the answer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", ["", "h100-dgx"])
def test_the_answer_is_the_cheapest_of_all_choices(machine: str) -> None:
    decided = 0
    for name, question in small_questions(machine, 40):
        problem = question.as_choice(math.inf)
        cheapest = least(problem)
        answer = solve_choice(problem)
        assert answer.choice is not None, name
        assert problem.cost(answer.choice) == pytest.approx(cheapest, rel=1e-9, abs=1e-18), name
        assert answer.gap <= 1e-9, name
        merged = merge_equal(problem)
        once = solve_choice(merged.problem)
        assert once.choice is not None, name
        assert problem.cost(merged.expand(once.choice)) == pytest.approx(cheapest, rel=1e-9, abs=1e-18), name
        decided = max(decided, len(free(problem)))
    assert decided >= 5


@pytest.mark.parametrize("machine", ["", "h100-dgx"])
def test_the_answer_within_a_memory_is_the_cheapest_that_fits(machine: str) -> None:
    """Between the least memory and what the cheapest choice takes without a limit; below it says what is missing."""
    fitted = refused = dearer = 0
    for name, question in small_questions(machine, 20, most=20_000):
        problem = question.as_choice(math.inf)
        cheapest = solve_choice(problem)
        assert cheapest.choice is not None, name
        low, high = least_peak(question), question.memory.peak(cheapest.choice)
        for limit in (low * 0.99, low, (low + high) / 2):
            within = question.as_choice(limit)
            expected, answer = least(within), solve_choice(within)
            if math.isinf(expected):
                assert answer.excess is not None, (name, limit)
                assert 0 <= answer.excess.at_least <= answer.excess.found, (name, limit)
                assert low - limit <= answer.excess.found * 1.0001, (name, limit)
                refused += 1
                continue
            assert answer.choice is not None and answer.excess is None, (name, limit)
            assert question.memory.peak(answer.choice) <= limit * (1 + 1e-12), (name, limit)
            assert answer.bound <= expected * (1 + 1e-9), (name, limit)
            assert expected <= answer.cost * (1 + 1e-9) and answer.cost <= expected * 1.0002, (name, limit)
            fitted += 1
            dearer += answer.cost > cheapest.cost
    assert min(fitted, refused) >= 20 and dearer


def test_the_answer_within_an_arithmetic_is_the_cheapest_that_does_no_more() -> None:
    """Between the least arithmetic and that of the cheapest choice, which does more where repeating it saves bytes."""
    held = 0
    for name, question in small_questions("", 30, most=20_000):
        flops, cheapest = question.problem.flops(), question.solve(math.inf)
        assert cheapest.choice is not None, name
        low = math.fsum(float(f.min()) for f in flops)
        high = math.fsum(float(f[k]) for f, k in zip(flops, cheapest.choice, strict=False))
        for most in (low, (low + high) / 2, high):
            limited = question.within_arithmetic(most)
            expected = least(limited.as_choice(math.inf, arithmetic=True))
            if math.isinf(expected):
                continue
            answer = limited.solve(math.inf)
            assert answer.choice is not None and limited.problem.limit is not None, (name, most)
            assert limited.problem.limit.is_met(answer.choice), (name, most)
            assert answer.bound <= expected * (1 + 1e-9), (name, most)
            assert expected <= answer.cost * (1 + 1e-9) and answer.cost <= expected * 1.0002, (name, most)
            held += answer.cost > cheapest.cost
    assert held >= 5


def least_peak(question: LayoutQuestion) -> float:
    """The least memory of all choices, each of them tried."""
    problem, memory = question.as_choice(1.0), question.memory
    count = len(problem.costs)
    peak: np.ndarray = np.zeros([1] * count)
    for row in range(memory.places):
        used: np.ndarray = np.zeros([1] * count)
        for u in problem.uses:
            if u.start <= row < u.stop:
                used = used + u.amounts.reshape([-1 if k == u.variable else 1 for k in range(count)])
        peak = np.maximum(peak, used)
    return memory.given + float(peak.min())


# -- what a choice means -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PROGRAMS, *(f"generated {k}" for k in range(20))])
def test_every_choice_computes_the_same(name: str) -> None:
    """Done as it says, and with its layouts alone."""
    r = random.Random(f"choices of {name}")
    b = Builder("main")
    computation = b.build(PROGRAMS[name](r, b)) if name in PROGRAMS else generated(r)
    mesh = r.choice((Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 2, "z": 2}), Mesh({"x": 3})))
    machine = r.choice(("", "h100-dgx"))
    module, question = question_of(r, computation, mesh, machine)
    described = load_machine(machine) if machine else None
    args = [integers(np.random.default_rng(0), p.shape, -1, 2) for p in module.parameters]
    want = evaluate(module, args)
    for k in range(4):
        choice = random_choice(r, question.as_choice(math.inf))
        passes = pipeline(described, PartitionOptions(), question.splits(choice) if k % 2 else None)
        local = run_pipeline(question.answer(choice), passes, Config())
        verify(local)
        for g, w in zip(gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args))), want, strict=True):
            assert agree(g, w), (str(mesh), machine, choice)


def test_a_choice_is_written_as_it_says() -> None:
    """What is sent is what the choice's options send, each move by its path: nothing is decided again."""
    moved = 0
    for seed in range(60):
        r = random.Random(f"written {seed}")
        _, question = question_of(r, generated(r), r.choice(MESHES), "")
        choice = random_choice(r, question.as_choice(math.inf))
        planned, graph = question.answer(choice), question.graph
        for node, option in question.problem.options(choice).items():
            node.option = option
        costs = GraphCosts(question.context.resharder)
        says = costs.total(graph.nodes, graph.wires)[0]
        assert planned.mesh is not None
        context = Context.over(planned.mesh, planned, None, question.splits(choice))
        parameters = [context.layouts(p) for p in planned.entry.parameters]
        context = context.following(make_plan(context, RULES, planned, parameters))
        local = write_program(planned, context)
        assert collectives_cost(context, local.entry)[0] == pytest.approx(says), seed
        moved += says > 0
    assert moved >= 20
