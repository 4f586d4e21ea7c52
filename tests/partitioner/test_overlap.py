"""What a plan takes to be hidden: moves of weights and of gradients in loops, and not those that all else waits for."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shardc.costs.machines.machine import load_machine
from shardc.hlo.config import Config
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.passes import run_pipeline
from shardc.partitioner.partition import OPENING
from shardc.partitioner.plan.memory_limits import MemoryLimits
from shardc.partitioner.plan.overlap import BesideMoves, exposed, find_overlap
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.partitioner.regions.region_graph import Wire

jax = pytest.importorskip("jax")


def gradients_of_layers() -> LayoutQuestion:
    import shardc
    from shardc import P

    def loss(w: Any, x: Any) -> Any:
        return jax.numpy.sum(jax.lax.scan(lambda h, k: (jax.numpy.tanh(h @ k), None), x, w)[0])

    arguments = (jax.ShapeDtypeStruct((6, 1024, 1024), "float32"), jax.ShapeDtypeStruct((512, 1024), "float32"))
    program = shardc.from_jax(jax.jit(jax.grad(loss)), *arguments)
    module = program.annotate({"w": P(None, "d"), "x": P("d")}, mesh=Mesh({"d": 8})).propagate().module
    return pose_question(run_pipeline(module, OPENING, Config()), load_machine("h100-dgx"))


def overlap_of(question: LayoutQuestion) -> BesideMoves:
    return find_overlap(question.module, question.graph.nodes)


def dots(question: LayoutQuestion) -> list[Wire]:
    return [w for n in question.graph.nodes if n.op.opcode == "dot" for w in n.results]


def test_pieces_of_weights_come_beside_what_loops_compute() -> None:
    question = gradients_of_layers()
    overlap = overlap_of(question)
    pieces = [overlap.seconds_of(w)[1] for w in question.graph.wires if w.pieces is not None]
    assert pieces
    assert max(pieces) > 0


def test_gradients_go_beside_the_next_iteration_and_activations_wait() -> None:
    question = gradients_of_layers()
    overlap = overlap_of(question)
    rooms = {w.dims: overlap.seconds_of(w)[0] for w in dots(question)}
    assert rooms[1024, 1024] > 0
    forward = [overlap.seconds_of(w)[0] for w in dots(question) if w.dims == (512, 1024)]
    assert min(forward) < 0.1 * rooms[1024, 1024]


def test_large_moves_are_not_hidden_by_little_arithmetic() -> None:
    assert exposed(1.0, 0.0) == 1.0
    assert exposed(1.0, 100.0) == pytest.approx(0.1)
    assert exposed(1.0, 0.02) == pytest.approx(0.991)


def test_moves_that_are_not_hidden_cost_no_less() -> None:
    question = gradients_of_layers()
    plain = question.unhidden()
    hidden, whole = question.as_choice(math.inf), plain.as_choice(math.inf)
    assert [len(c) for c in hidden.costs] == [len(c) for c in whole.costs]
    total = [sum(float(p.table[p.table < math.inf].sum()) for p in x.pairs) for x in (hidden, whole)]
    assert total[0] < total[1]
    assert all((a.table <= b.table).all() for a, b in zip(hidden.pairs, whole.pairs, strict=True))


def test_limits_are_corrected_by_what_plans_come_to() -> None:
    limits = MemoryLimits(100.0)
    limits.learn(modelled=100.0, found=80.0)
    assert limits.next == 125.0
    assert not limits.narrow
    limits.learn(modelled=125.0, found=110.0)
    assert 100 < limits.next < 125
    limits.learn(modelled=100.5, found=100.4)
    assert limits.narrow


@pytest.mark.parametrize(("precision", "rate"), [(None, "f32_default"), ("highest", "f32")])
def test_products_are_priced_at_their_precision(precision: str | None, rate: str) -> None:
    import shardc

    machine = load_machine("h100-dgx")
    x = jax.ShapeDtypeStruct((64, 64), "float32")
    program = shardc.from_jax(lambda a, b: jax.numpy.dot(a, b, precision=precision), x, x)
    module = program.annotate({}, mesh=Mesh({"d": 4})).propagate().module
    nodes = pose_question(run_pipeline(module, OPENING, Config()), machine).graph.nodes
    assert [n.rate for n in nodes if n.op.opcode == "dot"] == [
        2 / (machine.device.flops[rate] * machine.device.matrix.share)
    ]
