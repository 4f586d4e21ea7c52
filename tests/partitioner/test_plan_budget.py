"""Plans within a budget: never worse than without, made only where there is something to win, of counted work."""

from __future__ import annotations

import random
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from partition_programs import PROGRAMS
from partition_support import layout, random_sharding, with_shardings
from test_layers_under_scan import training_module
from test_plan import judged, products

from shardc.analysis.simulate.judge_by_simulation import judge_by_simulation
from shardc.compiler.lower.judge_by_lowering import judge_by_lowering
from shardc.costs.machines.machine import load_machine
from shardc.frontends.jax.frontend import module_from_jax
from shardc.hlo.config import Config
from shardc.hlo.errors import PlanError
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape
from shardc.hlo.passes import run_pipeline
from shardc.hlo.text.printer import print_module
from shardc.hlo.verify import verify
from shardc.partitioner.options import PLANS, PartitionOptions
from shardc.partitioner.partition import OPENING, partition, pipeline
from shardc.partitioner.plan.auto_plan import choose_auto_plan
from shardc.partitioner.plan.choose_plan import choose_plan
from shardc.partitioner.plan.judge import Judgement, judge_by_bytes
from shardc.partitioner.plan.plan_budget import OverBudgetError, PlanBudget, budget_of
from shardc.partitioner.plan.plan_layouts import pose_question
from shardc.partitioner.strategy.decisions import ChosenSplits
from shardc.sharding.propagate import propagate

AUTO = PartitionOptions(plan="auto")


@pytest.mark.parametrize("name", list(PROGRAMS)[::3])
def test_plans_that_nobody_asked_for_are_never_worse(name: str) -> None:
    r = random.Random(f"budget {name}")
    b = Builder("main")
    mesh = r.choice((Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 2, "z": 2}), Mesh({"x": 3})))
    module = with_shardings(b.build(PROGRAMS[name](r, b)), mesh, lambda i: random_sharding(r, mesh, i.shape.rank))
    before, after = (judged(module, partition(module, options=o), None) for o in (None, AUTO))
    assert after.cost <= before.cost
    assert after.peak <= before.peak


def scattered(mesh: Mesh) -> Module:
    """Products whose values between lie as badly as can be."""
    whole = layout(mesh, None, None)
    return products(mesh, {"first": whole, "between": whole})


def array(mesh: Mesh, shape: tuple[int, ...], *spec: str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh.to_jax(), PartitionSpec(*spec)))


def gradients() -> Module:
    """Of a perceptron whose large batch is split, its small weights are not: their sums are all that has to move."""
    mesh = Mesh({"x": 8})

    def loss(w: list[jax.Array], x: jax.Array) -> jax.Array:
        for layer in w:
            x = jax.nn.relu(x @ layer)
        return (x**2).mean()

    step = jax.jit(jax.value_and_grad(loss))
    return propagate(module_from_jax(step, [array(mesh, (64, 64))] * 3, array(mesh, (1024, 64), "x")).module).module


def transforms() -> Module:
    """There and back over two split dimensions: between them the middle may lie in another way."""
    mesh = Mesh({"x": 2, "y": 4})
    u = array(mesh, (32, 32, 32), "x", "y")
    f = jax.jit(lambda u: jax.numpy.fft.ifftn(jax.numpy.fft.fftn(u) * 0.5).real, out_shardings=u.sharding)
    return propagate(module_from_jax(f, u).module).module


def test_what_a_plan_wins_is_won_within_the_budget() -> None:
    module = transforms()
    before, after, best = (
        partition(module, options=PartitionOptions(plan=p), judge=judge_by_lowering(Config())) for p in PLANS
    )
    judge = judge_by_lowering(Config())
    assert judge(after).cost < judge(before).cost
    assert judge(after).peak <= judge(before).peak
    assert print_module(after) == print_module(best)


class Counted:
    """Carries plans out, and counts them."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, opened: Module, chosen: ChosenSplits | None = None) -> Module:
        self.times += 1
        return run_pipeline(opened, pipeline(None, PartitionOptions(), chosen), Config())


def planned(module: Module, budget: PlanBudget | None = None) -> tuple[Module, int]:
    opened, finish = run_pipeline(module, OPENING, Config()), Counted()
    return choose_auto_plan(opened, None, finish, budget=budget), finish.times


def test_nothing_is_carried_out_where_there_is_nothing_to_win() -> None:
    """The bound of the problem says so, or the plan is the layouts as they are."""
    assert planned(gradients())[1] == 1
    assert planned(gradients(), budget_of("global"))[1] == 1
    assert planned(transforms())[1] > 1


def test_what_sends_nothing_is_not_looked_at() -> None:
    mesh = Mesh({"x": 2})
    b = Builder("main")
    p = b.parameter(array_shape("f32", 8, 8))
    module = with_shardings(b.build(b.add("negate", p)), mesh, lambda i: layout(mesh, "x", None))
    asked = replace(budget_of("auto"), options=-1)
    assert planned(module, asked)[1] == 1


def turning(mesh: Mesh, products: int) -> Module:
    """Parts that go around in a manual computation, between ``products`` that send nothing."""
    spec = PartitionSpec("x")

    def turn(u: jax.Array) -> jax.Array:
        return jax.lax.ppermute(u, "x", [(k, (k + 1) % mesh.size) for k in range(mesh.size)])

    def step(u: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(products):
            u = u @ w
        return jax.shard_map(turn, mesh=mesh.to_jax(), in_specs=spec, out_specs=spec)(u)

    return propagate(module_from_jax(jax.jit(step), array(mesh, (64, 8), "x"), array(mesh, (8, 8))).module).module


def test_what_manual_computations_send_is_nothing_to_win() -> None:
    module = turning(Mesh({"x": 4}), 2)
    assert judge_by_bytes()(partition(module)).cost[0] == 64 * 8 * 4 / 4

    def judge(local: Module) -> Judgement:
        raise AssertionError("a plan was judged")

    opened = run_pipeline(module, OPENING, Config())
    assert print_module(choose_auto_plan(opened, None, Counted(), judge=judge)) == print_module(partition(module))


def test_within_memory_a_plan_takes_less_work_and_may_seem_a_little_worse() -> None:
    auto, asked = budget_of("auto"), budget_of("global")
    assert auto.limits_within_memory.rounds < auto.limits.rounds
    assert asked.limits_within_memory == asked.limits
    assert not auto.is_promising(0.5, 1.05, 1.0)
    assert auto.is_promising_within_memory(1.05, 1.0)
    assert not auto.is_promising_within_memory(1.2, 1.0)


def test_what_is_beyond_the_budget_stays_as_propagated() -> None:
    module = scattered(Mesh({"d": 4, "m": 2}))
    small = PlanBudget(options=10)
    made, times = planned(module, small)
    assert times == 1
    assert print_module(made) == print_module(partition(run_pipeline(module, OPENING, Config())))
    with pytest.raises(OverBudgetError, match=r"among \d+ layouts for \d+ decisions, but its limit is 10"):
        pose_question(run_pipeline(module, OPENING, Config()), None, check=small.check)


def test_the_count_is_about_that_of_the_options() -> None:
    """And never far below: that is what the budget is there for."""
    counted: list[tuple[int, int]] = []
    for module in (scattered(Mesh({"d": 4, "m": 2})), training_module()):
        opened = run_pipeline(module, OPENING, Config())
        question = pose_question(opened, None, check=lambda n, options: counted.append((n, options)))
        made = sum(len(c) for c in question.problem.costs[: len(question.problem.clusters)])
        assert counted[-1][0] == len(question.problem.clusters)
        assert made <= 2 * counted[-1][1] <= 40 * made


def test_an_equal_plan_is_not_carried_out_again() -> None:
    """Where no plan fits, those that come nearest soon are the same."""
    module = scattered(Mesh({"d": 4, "m": 2}))
    opened, finish = run_pipeline(module, OPENING, Config()), Counted()
    found = judge_by_bytes()

    def judge(local: Module) -> Judgement:
        return replace(found(local), peak=1e9)

    with pytest.raises(PlanError):
        choose_plan(opened, None, finish, budget=PlanBudget(rounds=50), memory=1.0, judge=judge)
    assert finish.times < 8


def test_machines_have_plans_within_a_budget() -> None:
    machine = load_machine("h100-dgx")
    module = training_module()
    before, after = (partition(module, machine=machine, options=o) for o in (None, AUTO))
    assert judged(module, after, machine).cost <= judged(module, before, machine).cost


def test_a_loop_in_a_computation_that_runs_twice_lies_as_it_did() -> None:
    """Only loops that are called once are decided; random numbers are drawn in one of another kind."""
    mesh = Mesh({"x": 2, "y": 4})

    def draw(s: jax.Array, key: jax.Array) -> jax.Array:
        for k in (0, 1):
            s = jax.numpy.roll(s, 1, 0) * jax.random.uniform(jax.random.fold_in(key, k), s.shape)
        return s

    key = jax.ShapeDtypeStruct((2,), np.uint32)
    step = jax.jit(lambda s, key: jax.lax.fori_loop(0, 3, lambda _, s: draw(s, key), s))
    module = propagate(module_from_jax(step, array(mesh, (32, 32), "x", "y"), key).module).module
    planned = partition(module, options=PartitionOptions(plan="global"), judge=lambda local: Judgement((0.0, 0.0), 1.0))
    verify(planned)


def convolved_grid() -> Module:
    """A grid with periodic borders, convolved: models of a processor gather it, the simulated step does not."""

    def step(u: jax.Array) -> jax.Array:
        kernel = jax.numpy.array([[0.05, 0.2, 0.05], [0.2, 0.0, 0.2], [0.05, 0.2, 0.05]])[None, None]

        def turn(_: int, u: jax.Array) -> jax.Array:
            wrapped = jax.numpy.pad(u, 1, mode="wrap")
            return jax.lax.conv_general_dilated(wrapped[None, None], kernel, (1, 1), "VALID")[0, 0]

        return jax.lax.fori_loop(0, 4, turn, u)

    mesh = Mesh({"x": 4, "y": 2})
    out = NamedSharding(mesh.to_jax(), PartitionSpec("x", "y"))
    given = module_from_jax(jax.jit(step, out_shardings=out), array(mesh, (64, 64), "x", "y"))
    return propagate(given.module).module


def test_no_plan_for_a_machine_is_slower_than_the_fewest_bytes() -> None:
    machine, judge = load_machine("host"), judge_by_simulation("host", Config())
    module = convolved_grid()
    modelled = partition(module, machine=machine)
    fewest, auto = partition(module), partition(module, machine=machine, options=AUTO, judge=judge)
    assert judge(fewest).cost < judge(modelled).cost
    assert judge(auto).cost <= judge(fewest).cost
