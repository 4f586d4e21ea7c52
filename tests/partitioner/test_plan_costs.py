"""What plans are chosen by on a machine: kernels read and write what lies between them, and cut parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shardc import Mesh, P
from shardc.costs.machines.machine import load_machine
from shardc.hlo.config import Config
from shardc.hlo.passes import run_pipeline
from shardc.partitioner.free_interface import FreeInterface, find_free_interface
from shardc.partitioner.partition import PREPARATION
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question

jax = pytest.importorskip("jax")

SIZE = 4096


def question(function: Callable[..., Any], specs: dict[str, P], rows: Sequence[int], *, free: bool) -> LayoutQuestion:
    import shardc

    arguments = [jax.ShapeDtypeStruct((n, SIZE), "float32") for n in rows]
    program = shardc.from_jax(jax.jit(function), *arguments).annotate(specs, mesh=Mesh({"d": 4}))
    module = run_pipeline(program.propagate().module, PREPARATION, Config())
    interface = find_free_interface(program.module) if free else FreeInterface()
    return pose_question(module, load_machine("h100-dgx"), interface)


def cost(function: Callable[..., Any], count: int = 1) -> float:
    return question(function, {"*": P("d")}, [SIZE] * count, free=False).solve(math.inf).cost


def test_a_chain_is_one_kernel() -> None:
    def chain(x: Any) -> Any:
        for _ in range(6):
            x = jax.numpy.tanh(x)
        return x

    one = cost(jax.numpy.tanh)
    device = load_machine("h100-dgx").device
    assert one >= 2 * SIZE * SIZE * 4 / 4 / device.memory_bandwidth
    assert cost(chain) == pytest.approx(one, rel=1e-6)


def test_what_follows_a_product_reads_nothing_again() -> None:
    product = cost(lambda x, w: x @ w, 2)
    fused = cost(lambda x, w: jax.numpy.tanh(x @ w), 2)
    assert fused - product <= 1.01 * cost(jax.numpy.tanh) / 2


def test_arguments_that_are_sliced_on_use_lie_split() -> None:
    asked = question(lambda x, w: x @ w, {"x": P(None, "d")}, (16, SIZE), free=True)
    choice = asked.solve(math.inf).choice
    assert choice is not None
    options = asked.problem.options(choice)
    (product,) = (n for n in options if n.op.opcode == "dot")
    weights, want = product.operands[1], options[product].operands[1]
    assert want.used and weights.producer is not None
    assert options[weights.producer].results[weights.slot] is want
