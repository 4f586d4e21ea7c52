"""Plans that do no more arithmetic: what is left out is what no such plan has, and the plans do what is said."""

from __future__ import annotations

import itertools
import math
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from shardc.frontends.jax.frontend import module_from_jax
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.passes import run_pipeline
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.partition import OPENING, partition, pipeline
from shardc.partitioner.plan.judge import Judgement, judge_by_bytes
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.sharding.propagate import propagate

MESH = Mesh({"x": 4})


def array(shape: tuple[int, ...], *spec: str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH.to_jax(), PartitionSpec(*spec)))


def shortest_paths() -> Module:
    """Distances by rows: each step sends a row to all, or every device has all rows and does all of it."""

    def step(k: jax.Array, d: jax.Array) -> jax.Array:
        column, row = jax.lax.dynamic_slice_in_dim(d, k, 1, 1), jax.lax.dynamic_slice_in_dim(d, k, 1, 0)
        return jnp.minimum(d, column + row)

    f = jax.jit(lambda d: jax.lax.fori_loop(0, 32, step, d), out_shardings=array((32, 32), "x").sharding)
    return propagate(module_from_jax(f, array((32, 32), "x")).module).module


def products() -> Module:
    """Three small ones, so that all choices can be gone through."""

    def chain(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.tanh(x @ w) @ v

    args = (array((8, 16), "x"), array((16, 16), None, "x"), array((16, 8), "x"))  # type: ignore[arg-type]
    return propagate(module_from_jax(jax.jit(chain), *args).module).module


def posed(module: Module) -> LayoutQuestion:
    return pose_question(run_pipeline(module, OPENING, Config()), None)


def carried_out(question: LayoutQuestion) -> Judgement:
    answer = question.solve(math.inf)
    assert answer.choice is not None
    passes = pipeline(None, PartitionOptions(), question.splits(answer.choice))
    return judge_by_bytes()(run_pipeline(question.answer(answer.choice), passes, Config()))


def test_what_is_sent_is_not_saved_by_doing_everything_everywhere() -> None:
    module = shortest_paths()
    before, question = judge_by_bytes()(partition(module)), posed(module)
    free, held = carried_out(question), carried_out(question.within_arithmetic(before.flops))
    assert free.cost < before.cost
    assert free.flops > 3 * before.flops
    assert held.flops <= 1.01 * before.flops
    assert held.cost <= before.cost


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_left_out_that_a_plan_within_the_arithmetic_has(seed: int) -> None:
    """All choices of a small problem: those within the limit have only options that are left."""
    problem, r = posed(products()).problem, random.Random(seed)
    done = problem.flops()
    least, largest = sum(d.min() for d in done), sum(d.max() for d in done)
    most = r.uniform(least, largest)
    limited = problem.within_arithmetic(most)
    left = [np.isfinite(c[: len(d)]) for c, d in zip(limited.costs, done, strict=False)]
    for k, d in enumerate(done):
        others = least - d.min()
        assert ((d + others <= most + 1e-9) == left[k]).all() or not np.isfinite(problem.costs[k]).all()
    within = 0
    for choice in itertools.islice(itertools.product(*(range(len(d)) for d in done)), 20_000):
        if sum(d[k] for d, k in zip(done, choice, strict=True)) <= most:
            within += 1
            assert all(a[k] or not np.isfinite(c[k]) for a, k, c in zip(left, choice, problem.costs, strict=False))
    assert within


def test_what_does_more_than_models_know_is_left_as_it_is() -> None:
    problem = posed(products()).problem
    assert problem.within_arithmetic(1.0) is problem
