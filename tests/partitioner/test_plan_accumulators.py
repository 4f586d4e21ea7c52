"""Plans count what loops add up as the program does it: one reduction behind the loop, and not one per iteration."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from partition_support import integers, scatter_poisoned
from test_accumulate import GRAD, MESH, ONCE, STEPS, both_ways, loss, scanned, stopping

from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.passes import run_pipeline
from shardc.partitioner.equivalence import agree, gather_results
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.partition import PREPARATION, partition
from shardc.partitioner.plan.judge import judge_by_bytes
from shardc.partitioner.plan.plan_layouts import pose_question
from shardc.partitioner.rules import RULES
from shardc.partitioner.unreduced.accumulators import count_reductions, find_accumulators
from shardc.partitioner.unreduced.linear import Spread
from shardc.sharding.propagate import propagate

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
P = jax.sharding.PartitionSpec

Function = Callable[[Any, Any], Any]
#: Branches in a loop add up what the loop does, which plans do not know.
BRANCHES = ("branches", "one branch")
#: Rows of a microbatch: so many that gathering them costs more than any reduction.
ROWS = 160


def propagated(function: Function, rows: int = ROWS, width: int = 8, spec: tuple[Any, ...] = (None, "x")) -> Module:
    from shardc.frontends.jax.frontend import module_from_jax

    def at(shape: tuple[int, ...], *spec: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, "float32", sharding=jax.sharding.NamedSharding(MESH, P(*spec)))

    jitted = jax.jit(function, out_shardings=jax.sharding.NamedSharding(MESH, P()))
    module = module_from_jax(jitted, at((width, width)), at((STEPS, rows, width), *spec)).module
    return run_pipeline(propagate(module).module, PREPARATION, Config())


def sent(local: Module) -> float:
    """The bytes that one device sends in a step."""
    return judge_by_bytes()(local).cost[0]


def counted(function: Function) -> dict[Instruction, float]:
    return count_reductions(propagated(function), Spread.of_any_layouts(RULES))


def of_products(function: Function) -> list[float]:
    """How often each product of a loop's body is reduced in a step, where that is less often than it is made."""
    return sorted(times for i, times in counted(function).items() if i.opcode == "dot")


@pytest.mark.parametrize("name", [n for n in ONCE if n not in BRANCHES])
def test_the_best_plan_is_modelled_at_what_its_program_sends(name: str) -> None:
    """By bytes, ties are broken by work: less than a quarter here, where one more reduction is a third at least."""
    module = propagated(ONCE[name][0])
    question = pose_question(module, None)
    answer = question.solve(math.inf)
    assert answer.choice is not None
    least = sent(partition(question.answer(answer.choice)))
    assert least <= answer.cost <= 1.25 * least


@pytest.mark.parametrize("function", [both_ways, stopping])
def test_what_reads_the_sum_so_far_needs_it_in_each_iteration(function: Function) -> None:
    assert not of_products(function)


def test_one_reduction_behind_the_loop() -> None:
    assert of_products(ONCE["sum"][0]) == [1]


def test_an_outer_loop_adds_up_what_an_inner_one_does() -> None:
    assert of_products(ONCE["nested"][0]) == [1]


def test_layers_are_reduced_one_by_one_behind_all_microbatches() -> None:
    """Three layers in each of five microbatches: three reductions, and not fifteen."""
    assert of_products(ONCE["by layers"][0]) == [3]


def test_a_larger_accumulator_counts_by_its_size() -> None:
    """Each iteration adds to one of two halves; both are reduced."""
    assert of_products(ONCE["in place"][0]) == [2]


def test_an_accumulator_that_leads_to_another_counts_for_both() -> None:
    assert of_products(ONCE["momenta"][0]) == [2]


def test_pieces_are_reduced_as_often_as_they_are_written() -> None:
    assert not of_products(ONCE["stacked"][0])


def test_what_a_product_reads_is_no_addend() -> None:
    """A product of partial values would be computed whole on every device: the gradient of the inner layer leads to
    nothing but the sum, and yet it is reduced before the product reads it."""

    def two_layers(w: Any, x: Any) -> Any:
        return scanned(lambda t, w, x: t + jax.grad(lambda v: loss(w, jnp.tanh(x @ v)))(w))(w, x)

    module = propagated(two_layers)
    found = count_reductions(module, Spread.of_any_layouts(RULES))
    read = {o for i in module.instructions() if i.opcode == "dot" for o in i.operands}
    assert [i for i in found if i.opcode == "dot"]
    assert not [i for i in found if i in read]


def test_products_in_any_layouts_pass_nothing_on() -> None:
    """A state that a product makes of itself is no accumulator for plans, since no layout of it is known."""

    def power(w: Any, x: Any) -> Any:
        return lax.scan(lambda t, x: (t @ w + GRAD(w, x), None), w, x)[0]

    module = propagated(power)
    (loop,) = [i for i in module.instructions() if i.opcode == "while"]
    assert not find_accumulators(Spread.of_any_layouts(RULES), loop)
    assert not count_reductions(module, Spread.of_any_layouts(RULES))


def test_a_plan_exchanges_rows_to_add_up_once() -> None:
    """Rows come split by columns. To gather each microbatch sends ``15 R F`` bytes and ``3 F F`` for the result; to
    exchange it ``3.75 R F``, and ``6 F F`` for one reduction. One in each iteration costs more than to gather does."""
    rows = width = 320

    def gram(w: Any, x: Any) -> Any:
        return lax.scan(lambda t, x: (t + x.T @ x, None), w, x)[0]

    module = propagated(gram, rows, width, (None, None, "x"))
    assert sent(partition(module)) == 15 * rows * width + 3 * width * width
    planned = partition(module, options=PartitionOptions(plan="global", memory=1e9))
    assert sent(planned) == 3.75 * rows * width + 6 * width * width
    args = [integers(np.random.default_rng(0), p.shape) for p in module.parameters]
    got = gather_results(planned, evaluate_spmd(planned, scatter_poisoned(planned, args)))
    assert all(agree(g, w) for g, w in zip(got, evaluate(module, args), strict=True))
