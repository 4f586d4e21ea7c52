"""Plans are chosen for the program as it is folded once its values are split, though none of them is split yet."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from shardc.analysis.simulate.judge_of import judge_of
from shardc.costs.machines.machine import load_machine
from shardc.frontends.jax.frontend import module_from_jax
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.passes import run_pipeline
from shardc.partitioner.free_interface import FreeInterface
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.partition import OPENING, partition
from shardc.partitioner.plan.plan_layouts import pose_question
from shardc.sharding.propagate import propagate

MACHINE = "h100-dgx"
AXES = {"data": 8, "model": 8}


def neighbours(u: Any) -> Any:
    p = jnp.pad(u, 1)
    return 4 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]


def wrapped(u: Any) -> Any:
    p = jnp.pad(u, 2, mode="wrap")
    return p[2:-2, 3:-1] + p[1:-3, 2:-2]


def distance(u: Any) -> Any:
    return jnp.vdot(u, u + 1) + jnp.argmax(jnp.abs(u))


def gradients(b: Any) -> Any:
    """Conjugate gradients."""

    def one(_: Any, state: Any) -> Any:
        x, r, p, rr = state
        q = neighbours(p)
        a = rr / jnp.vdot(p, q)
        x, r = x + a * p, r - a * q
        new = jnp.vdot(r, r)
        return x, r, r + new / rr * p, new

    return jax.lax.fori_loop(0, 10, one, (jnp.zeros_like(b), b, b, jnp.vdot(b, b)))[0]


def module_of(step: Any, n: int, spec: PartitionSpec | None = None) -> Module:
    mesh = Mesh(AXES)
    grid = jax.ShapeDtypeStruct((n, n), jnp.float32)
    if spec is not None:
        devices = AbstractMesh(tuple(AXES.values()), tuple(AXES))
        grid = jax.ShapeDtypeStruct((n, n), jnp.float32, sharding=NamedSharding(devices, spec))
    module = module_from_jax(jax.jit(step), grid).module
    return propagate(module if module.mesh is not None else module.with_(mesh=mesh)).module


@pytest.mark.parametrize("step", [neighbours, wrapped, distance])
def test_the_question_is_posed_on_the_folded_program(step: Any) -> None:
    module = run_pipeline(module_of(step, 64), OPENING, Config())
    question = pose_question(module, load_machine(MACHINE), FreeInterface(frozenset((0,)), frozenset((0,))))
    assert longest(module) > longest(question.module) == 64
    u = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)
    for mine, given in zip(evaluate(question.module, [u]), evaluate(module, [u]), strict=True):
        np.testing.assert_allclose(mine, given, rtol=1e-5)


def longest(module: Module) -> int:
    """The longest dimension of what is made of values: longer than the grid's where it is padded or flattened."""
    return max(d for i in module.instructions() if i.operands and i.shape.is_array for d in (1, *i.shape.dims))


@pytest.mark.parametrize("spec", [PartitionSpec(("data", "model")), PartitionSpec("data", "model")], ids=str)
def test_a_stencil_with_products_is_laid_out_as_well_as_by_hand(spec: PartitionSpec) -> None:
    judge, machine = judge_of(MACHINE, Config()), load_machine(MACHINE)
    hand = judge(partition(module_of(gradients, 4096, spec), machine=machine))
    options = PartitionOptions(
        plan="global", memory=hand.peak, interface=FreeInterface(frozenset((0,)), frozenset((0,)))
    )
    found = judge(partition(module_of(gradients, 4096), machine=machine, options=options, judge=judge))
    assert found.peak <= hand.peak
    assert found.cost <= hand.cost
