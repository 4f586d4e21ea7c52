"""Plans that follow patterns: classes of dimensions, what they pin, what propagation makes of them, who takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from partition_support import scatter_poisoned

import shardc
from shardc import P
from shardc.costs.machines.machine import load_machine
from shardc.frontends.jax.frontend import module_from_jax
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.passes import run_pipeline
from shardc.partitioner.equivalence import gather_results
from shardc.partitioner.free_interface import FreeInterface, find_free_interface
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.partition import OPENING, partition, pipeline
from shardc.partitioner.plan.choose_plan import choose_plan
from shardc.partitioner.plan.judge import Judgement, judge_by_models
from shardc.partitioner.plan.plan_budget import PlanBudget
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.partitioner.plan.seeds.dimension_classes import DimensionClasses
from shardc.partitioner.plan.seeds.find_seeds import find_seeds, find_state_seeds
from shardc.partitioner.plan.seeds.nearest_choice import nearest_choice
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.strategy.decisions import ChosenSplits
from shardc.sharding.propagate import propagate

MESH = Mesh({"data": 4, "model": 2})
MACHINE = load_machine("h100-dgx")
_BATCH, _WIDTH, _HIDDEN = 4096, 512, 2048


def step(w: dict[str, Any], x: Any) -> Any:
    """The gradients of a perceptron with a residual connection."""

    def loss(w: dict[str, Any]) -> Any:
        return ((x + jax.nn.gelu(x @ w["up"]) @ w["down"]) ** 2).mean()

    return jax.grad(loss)(w)


def module_of(f: Callable[..., Any], *arguments: Any) -> tuple[Module, FreeInterface]:
    """A program without an annotation, its calls opened, and its free interface."""
    module = module_from_jax(jax.jit(f), *arguments).module.with_(mesh=MESH)
    free = find_free_interface(module)
    return run_pipeline(propagate(module).module, OPENING, Config()), free


def array(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, np.float32)


@pytest.fixture(scope="module")
def perceptron() -> tuple[Module, FreeInterface]:
    return module_of(step, {"up": array(_WIDTH, _HIDDEN), "down": array(_HIDDEN, _WIDTH)}, array(_BATCH, _WIDTH))


@pytest.fixture(scope="module")
def question(perceptron: tuple[Module, FreeInterface]) -> LayoutQuestion:
    return pose_question(perceptron[0], MACHINE, perceptron[1])


def test_a_perceptron_has_three_classes(question: LayoutQuestion) -> None:
    """Batch, width and hidden width, each the same wherever it occurs."""
    classes = DimensionClasses(question.graph.nodes)
    wires = {w.dims: classes.of(w) for w in question.graph.wires if len(w.dims) == 2}
    batch, width = wires[_BATCH, _WIDTH]
    hidden = wires[_BATCH, _HIDDEN][1]
    assert len({batch, width, hidden}) == 3
    for w in question.graph.wires:
        sizes = {_BATCH: batch, _WIDTH: width, _HIDDEN: hidden}
        assert classes.of(w) == [sizes[n] for n in w.dims] or len(w.dims) != 2
    assert {c for c in classes.ranked() if classes.share[c] > 0.1} == {batch, width, hidden}


def test_what_no_operation_runs_over_together_goes_together() -> None:
    """Heads of one product and hidden width of another: both may have an axis that the batch has not."""
    module, free = module_of(
        lambda x, a, b: (x @ a, x @ b), array(_BATCH, _WIDTH), array(_WIDTH, 1024), array(_WIDTH, _HIDDEN)
    )
    question = pose_question(module, MACHINE, free)
    classes = DimensionClasses(question.graph.nodes)
    of = {w.dims: classes.of(w) for w in question.graph.wires}
    first, second = of[_WIDTH, 1024][1], of[_WIDTH, _HIDDEN][1]
    assert set(classes.complete(first, classes.share.keys())) == {first, second}
    assert classes.complete(of[_BATCH, _WIDTH][0], classes.share.keys()) == (of[_BATCH, _WIDTH][0],)


def argument_specs(question: LayoutQuestion, choice: tuple[int, ...]) -> list[tuple[tuple[str, ...], ...]]:
    planned = question.answer(choice)
    return [
        tuple(tuple(a.name for a in axes) for axes in s.axes_by_dim)
        for p in planned.parameters
        for s in p.leaf_shardings()
    ]


def test_patterns_are_those_that_people_write(question: LayoutQuestion) -> None:
    """Data parallel, data and tensor parallel are among them, and each arguments' layouts are told once."""
    seeds = find_seeds(question, 1e12)
    found = [tuple(argument_specs(question, next(s.choices())[0])) for s in seeds]
    both = ("data", "model")
    assert (((), ()), ((), ()), (both, ())) in found
    assert ((("model",), ()), ((), ("model",)), (("data",), ())) in found
    costs = [s.answer.cost for s in seeds]
    assert costs == sorted(costs)
    again = find_seeds(question, 1e12)
    assert [s.answer.choice for s in again] == [s.answer.choice for s in seeds]


def state_of(module: Module, free: FreeInterface, count: int) -> LayoutQuestion:
    """The first arguments are a step's state, which it gives back."""
    return pose_question(module, MACHINE, replace(free, ties=tuple((n, n) for n in range(count))))


def test_state_is_spread_where_arithmetic_is_not_split(perceptron: tuple[Module, FreeInterface]) -> None:
    """The batch over one axis, the hidden width over the other, and weights over both; the batch is no state."""
    seeds = find_seeds(state_of(*perceptron, 2), 1e12, spread=True)
    both = [{"data", "model"}, set()]
    found = [[[set(axes) for axes in s] for s in argument_specs(s.question, next(s.choices())[0])] for s in seeds]
    assert [both, both[::-1], [{"data"}, set()]] in found


def test_rows_of_a_table_are_spread() -> None:
    """No product runs over them; whole they take more memory than there is."""

    def loss(w: dict[str, Any], ids: Any) -> Any:
        return (jax.nn.gelu(w["table"][ids] @ w["up"]) ** 2).mean()

    w = {"table": array(4_000_000, 64), "up": array(64, 512)}
    question = state_of(*module_of(jax.grad(loss), w, jax.ShapeDtypeStruct((_BATCH,), np.int32)), 2)
    table, _, _ = argument_specs(question, next(find_seeds(question, 5e8, spread=True)[0].choices())[0])
    assert table == (("data", "model"), ())


def test_state_lies_over_each_set_of_axes(perceptron: tuple[Module, FreeInterface]) -> None:
    """Over both, over either one and whole; the batch lies as is cheapest, and nothing else is cheaper by the model."""
    question = state_of(*perceptron, 2)
    seeds = find_state_seeds(question, 1e12)
    found: dict[frozenset[str], float] = {}
    for s in seeds:
        assert s.answer.choice is not None
        up, down, _ = ({a for axes in spec for a in axes} for spec in argument_specs(question, s.answer.choice))
        assert up == down
        found[frozenset(up)] = s.answer.cost
    assert set(found) <= {frozenset(axes) for axes in ([], ["data"], ["model"], ["data", "model"])}
    assert len(found) >= 3
    assert min(found.values()) <= min(s.answer.cost for s in find_seeds(question, 1e12)) * (1 + 1e-9)
    assert [s.answer.cost for s in seeds] == sorted(found.values())
    known = {s.answer.choice for spread in (False, True) for s in find_seeds(question, 1e12, spread=spread)}
    assert {s.answer.choice for s in seeds} - known, "what no pattern has"


def test_within_memory_first(question: LayoutQuestion) -> None:
    peaks = [question.memory.peak(s.answer.choice or ()) for s in find_seeds(question, 1e12)]
    room = sorted(peaks)[1] / 1.2
    found = [question.memory.peak(s.answer.choice or ()) for s in find_seeds(question, room)]
    assert found[0] <= room * 1.2 < found[-1]


def test_the_nearest_choice_lies_as_propagation_says(question: LayoutQuestion) -> None:
    """Arguments as chosen; what is written onto the program is what propagation gives."""
    for seed in find_seeds(question, 1e12):
        for choice, _ in seed.choices():
            planned = question.answer(choice)
            assert argument_specs(question, choice) == argument_specs(question, next(seed.choices())[0])
            table = question.context.table
            layouts = {i.name: table.from_sharding(i.leaf_shardings()[0]) for i in planned.instructions()}
            again = nearest_choice(
                question,
                lambda w: w.preferred if w.producer is None else layouts[w.producer.op.name],  # noqa: B023
            )
            assert question.answer(again).entry.root.sharding == planned.entry.root.sharding


class Carried:
    """Carries plans out, and counts them."""

    def __init__(self) -> None:
        self.modules: list[Module] = []

    def __call__(self, opened: Module, splits: ChosenSplits | None) -> Module:
        self.modules.append(run_pipeline(opened, pipeline(MACHINE, PartitionOptions(), splits), Config()))
        return self.modules[-1]


@pytest.mark.parametrize("seeds", [0, 3, 6])
def test_the_judge_has_the_last_word(perceptron: tuple[Module, FreeInterface], seeds: int) -> None:
    """The best of all that were carried out is taken, no more than there may be."""
    module, free = perceptron
    finish, judge = Carried(), judge_by_models(Context.over(MESH, module, MACHINE), MACHINE)
    budget = PlanBudget(rounds=1, seeds=seeds)
    made = choose_plan(module, MACHINE, finish, budget=budget, memory=1e12, judge=judge, interface=free)
    assert len(finish.modules) <= 1 + 2 * (2 + seeds + 1 + (6 if seeds else 0))
    assert judge(made).cost == min(judge(m).cost for m in finish.modules)


def test_a_seed_is_taken_where_models_are_wrong(perceptron: tuple[Module, FreeInterface]) -> None:
    """A judge that only likes weights in two parts: they are what a pattern gives, not what is cheapest."""
    module, free = perceptron
    finish = Carried()

    def judge(local: Module) -> Judgement:
        return Judgement((abs(local.parameters[0].shape.size - _WIDTH * _HIDDEN // 2),), 1.0)

    made = choose_plan(module, MACHINE, finish, memory=1e12, judge=judge, interface=free)
    assert made.parameters[0].shape.size == _WIDTH * _HIDDEN // 2


def test_seeds_compute_the_same() -> None:
    """Each pattern's programs, against the whole program."""
    module, free = module_of(lambda x, a, b: jax.numpy.maximum(x @ a, 0) @ b, array(16, 8), array(8, 32), array(32, 8))
    question = pose_question(module, MACHINE, free)
    rng = np.random.default_rng(0)
    args = [rng.integers(-2, 3, p.shape.dims).astype(np.float32) for p in module.parameters]
    (want,) = evaluate(module, args)
    done = 0
    for seed in find_seeds(question, 1e12):
        for choice, _ in seed.choices():
            local = partition(question.answer(choice), machine=MACHINE)
            (got,) = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
            np.testing.assert_array_equal(got, want)
            done += 1
    assert done >= 2


def test_stacks_of_layers_are_whole_and_split() -> None:
    """No product runs over the layers of a scan: weights lie with all of them on a device, and with some."""

    def loss(w: Any, x: Any) -> Any:
        h = jax.lax.scan(lambda h, k: (jax.numpy.tanh(h @ k), None), x, w)[0]
        return (h**2).mean()

    def train(w: Any, x: Any) -> Any:
        return w - 0.1 * jax.grad(loss)(w, x)

    module, free = module_of(train, array(8, _WIDTH, _WIDTH), array(_BATCH, _WIDTH))
    question = pose_question(module, MACHINE, free)
    classes = DimensionClasses(question.graph.nodes)
    of = {w.dims: classes.of(w) for w in question.graph.wires}
    layers, batch = of[8, _WIDTH, _WIDTH][0], of[_BATCH, _WIDTH][0]
    assert layers in classes.share
    assert layers not in classes.contracted
    assert batch in classes.contracted
    found = [argument_specs(question, next(s.choices())[0]) for s in find_seeds(question, 1e12)]
    both = ("data", "model")
    assert [((), (), ()), (both, ())] in found
    assert [(both, (), ()), (both, ())] in found


def test_propagated_patterns_are_carried_out_as_they_are(perceptron: tuple[Module, FreeInterface]) -> None:
    """A pattern comes to no more than the same program with its arguments annotated by hand."""
    module, free = perceptron
    judge = judge_by_models(Context.over(MESH, module, MACHINE), MACHINE)
    budget = PlanBudget(rounds=1, seeds=8)
    made = choose_plan(module, MACHINE, Carried(), budget=budget, memory=1e12, judge=judge, interface=free)
    by_hand = {"w['up']": P(None, "model"), "w['down']": P("model"), "x": P("data")}
    weights = {"up": array(_WIDTH, _HIDDEN), "down": array(_HIDDEN, _WIDTH)}
    hand = shardc.from_jax(jax.jit(step), weights, array(_BATCH, _WIDTH)).annotate(by_hand, mesh=MESH)
    local = partition(hand.propagate().module, machine=MACHINE)
    assert judge(made).cost <= judge(local).cost


def test_an_axis_that_no_pattern_uses_leaves_values_whole(question: LayoutQuestion) -> None:
    """The batch over one axis alone is a pattern: it costs what the problem says, and holds the other axis's parts
    everywhere."""
    seeds = find_seeds(question, 1e12)
    used = [
        {a for specs in argument_specs(s.question, next(s.choices())[0]) for axes in specs for a in axes} for s in seeds
    ]
    alone = [s for s, axes in zip(seeds, used, strict=True) if len(axes) == 1]
    both = [s for s, axes in zip(seeds, used, strict=True) if len(axes) == 2]
    assert both
    assert alone
    whole = question.as_choice(np.inf)
    for s in (*alone, *both):
        choice = next(s.choices())[0]
        assert s.answer.cost == pytest.approx(whole.cost(choice), rel=1e-9)
        assert s.answer.cost >= question.solve(np.inf).cost * (1 - 1e-9)
