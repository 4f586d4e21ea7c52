"""Random plans of the benchmark about ranking: carried out as chosen they compute the same, and cost about as posed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.analysis.simulate.judge_by_simulation import judge_by_simulation
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.partitioner.equivalence import agree, gather_results, scatter_arguments
from shardc.partitioner.plan.judge import judge_by_bytes


@pytest.fixture(scope="module")
def benchmark(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("random_plans", repository / "benchmarks" / "random_plans.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def training_step() -> shardc.Program:
    """Two layers, the batch over ``data``, the hidden dimension over ``model``."""

    def loss(w: Any, x: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ w["up"]) @ w["down"]) ** 2)

    def step(w: Any, x: Any) -> Any:
        return jax.tree.map(lambda a, b: a - 0.1 * b, w, jax.grad(loss)(w, x))

    def shape(*dims: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dims, jnp.float32)

    program = shardc.from_jax(step, {"up": shape(32, 128), "down": shape(128, 32)}, shape(64, 32))
    specs = {"w['up']": P(None, "model"), "w['down']": P("model"), "x": P("data")}
    return program.annotate(specs, mesh=Mesh({"data": 2, "model": 2}))


@pytest.mark.parametrize("machine", [None, "h100-dgx"])
def test_plans_compute_the_same_and_rank_as_posed(benchmark: ModuleType, machine: str | None) -> None:
    program = training_step()
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(p.shape.dims).astype(np.float32) / 8 for p in program.module.parameters]
    want = evaluate(program.module, args)
    judge = judge_by_bytes() if machine is None else judge_by_simulation(machine, Config())
    plans = list(benchmark.random_plans(program, machine, 10))
    for plan in plans:
        for local in (plan.chosen.module, plan.written.module):
            got = gather_results(local, evaluate_spmd(local, scatter_arguments(local, args)))
            for g, w in zip(got, want, strict=True):
                assert agree(g, w)
    costs = [judge(p.chosen.module).cost[0] for p in plans]
    assert len({p.cost for p in plans}) == len(plans) == 10
    assert benchmark.rank_correlation([p.cost for p in plans], costs) > 0.6
    assert costs[0] <= sorted(costs)[2]


def test_ranks_are_compared_with_ties_in_the_middle(benchmark: ModuleType) -> None:
    correlation = benchmark.rank_correlation
    assert correlation([1, 2, 3, 4], [10, 20, 30, 1000]) == pytest.approx(1)
    assert correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert correlation([1, 1, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486833)
    assert np.isnan(correlation([1, 1], [1, 2]))
