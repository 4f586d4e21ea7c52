"""What plans are chosen by on a machine: kernels read and write what lies between them, and cut parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shardc import Mesh, P
from shardc.costs.kernels.kernel_model import busy_seconds
from shardc.costs.kernels.traffic import instruction_traffic
from shardc.costs.kernels.work import instruction_work
from shardc.costs.machines.machine import load_machine
from shardc.hlo.config import Config
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.types import array_shape
from shardc.hlo.passes import run_pipeline
from shardc.partitioner.partition import PREPARATION
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question

jax = pytest.importorskip("jax")

SIZE = 4096


def question(function: Callable[..., Any], specs: dict[str, P], rows: Sequence[int]) -> LayoutQuestion:
    import shardc

    arguments = [jax.ShapeDtypeStruct((n, SIZE), "float32") for n in rows]
    program = shardc.from_jax(jax.jit(function), *arguments).annotate(specs, mesh=Mesh({"d": 4}))
    module = run_pipeline(program.propagate().module, PREPARATION, Config())
    return pose_question(module, load_machine("h100-dgx"))


def cost(function: Callable[..., Any], count: int = 1) -> float:
    return question(function, {"*": P("d")}, [SIZE] * count).solve(math.inf).cost


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


def test_a_part_for_a_product_is_cut_by_a_kernel() -> None:
    def least(weights: P) -> float:
        specs = {"x": P(None, "d"), "w": weights}
        return question(lambda x, w: x @ w, specs, (16, SIZE)).solve(math.inf).cost

    part, device = SIZE * SIZE * 4 / 4, load_machine("h100-dgx").device
    assert least(P()) - least(P("d")) >= 2 * part / device.memory_bandwidth


def local_product(rows: int, inner: int, columns: int) -> float:
    """What a kernel for a product takes on one device."""
    b = Builder("main")
    x, w = (b.parameter(array_shape("f32", *dims)) for dims in ((rows, inner), (inner, columns)))
    made = b.add("dot", x, w, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    return busy_seconds(load_machine("h100-dgx").device, instruction_work(made, instruction_traffic(made)))


@pytest.mark.parametrize("rows", [64, SIZE])
def test_products_are_priced_as_kernels_are(rows: int) -> None:
    """Narrow ones wait for what they read, wide ones for the matrix unit; a part costs what its own sizes do."""
    asked = question(lambda x, w: x @ w, {"x": P("d")}, (rows, SIZE))
    (k,) = (k for k, c in enumerate(asked.problem.clusters) if c.members[0].op.opcode == "dot")
    local, node = asked.context.table.local_dims, asked.problem.clusters[k].members[0]
    (members,) = asked.problem.members[k]
    checked = 0
    for option, own in zip(members.options, members.own, strict=True):
        (m, inner), (_, n) = (local(x, w.dims) for x, w in zip(option.operands, node.operands, strict=True))
        if not option.results[0].unreduced:  # partial sums are added up besides
            assert own == pytest.approx(local_product(m, inner, n), rel=1e-6)
            checked += 1
    assert checked >= 3
