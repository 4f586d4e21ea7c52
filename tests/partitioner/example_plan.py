"""A plan made by hand, as one for a small training step would be: what reports and pictures are tested with."""

from __future__ import annotations

from dataclasses import replace

from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, Sharding
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.plan.judge import Judgement
from shardc.partitioner.plan.plan_reasons import LayoutDecision, MemoryRow, PlanReasons

__all__ = ["example_plan"]

MESH = Mesh({"data": 4, "model": 2})


def example_plan() -> PlanReasons:
    """Two layers' weights, an activation that propagation splits otherwise, a partial sum; memory is full once."""
    both = Sharding.of(MESH, ("data", "model"), None)
    split = Sharding.of(MESH, None, ("data", "model"))
    batch, columns, whole = (Sharding.of(MESH, *d) for d in (("data", None), ("data", "model"), (None, None)))
    partial = replace(batch, unreduced=(AxisRef("model"),))
    weights = array_shape("f32", 4096, 14336)
    rows = array_shape("bf16", 2048, 4096)
    decisions = (
        LayoutDecision(("params['w1']", "params['w2']"), "argument", 0, "parameter", "", "", weights, both, both,
                       0.0, split, 0.012, 1.0, (0,)),
        LayoutDecision(("carry.7",), "loop", 2, "while", "/home/me/train.py:31", "jit(step)/while", rows, split, batch,
                       13.9, columns, 0.21, 1.0, (0,)),
        LayoutDecision(("dot.12", "dot.31"), "value", 0, "dot", "/home/me/train.py:34", "jit(step)/mlp/dot_general",
                       rows, split, partial, 6.5, batch, 0.0004, 100.0),
        LayoutDecision(("tanh.1",), "value", 0, "tanh", "/home/me/train.py:35", "jit(step)/mlp/tanh", rows, whole,
                       columns, None, None, None, 100.0),
        LayoutDecision(("grads",), "result", 0, "tuple", "/home/me/train.py:40", "", weights, both, both, 0.0, None,
                       None),
    )  # fmt: skip
    full = MemoryRow(
        "dot.12", "/home/me/train.py:34", 31.4e9, 32e9, 2.5e-10, (("params['w1']", 12e9), ("carry.7", 9e9))
    )
    usage = tuple(1e9 * x for x in (12, 12, 18, 25, 31.4, 30, 26, 20, 14, 12))
    return PlanReasons(
        MESH, "h100-dgx", "s", True, "", 1.41, 15.4, 1.40, "integer program", Judgement((1.45, 30.0), 31.4e9),
        Judgement((15.43, 60.0), 44.3e9), 32e9, decisions, (full,), usage, tuple(1.4 * x for x in usage),
    )  # fmt: skip
