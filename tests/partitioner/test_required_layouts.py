"""Choosing for what readers fix in the end, not for what propagation suggests in between."""

from __future__ import annotations

import pytest
from partition_support import check, layout

from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.partitioner.report import build_report
from shardc.partitioner.rewrite.body import partition_computation
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.rules import RULES

MESH = Mesh({"x": 4})
WHOLE = layout(MESH, None, None)
SPLIT = layout(MESH, None, "x")
SCALAR = layout(MESH)


def history(end: str, trips: int = 6) -> Module:
    """A loop that writes a split row into a whole array in every iteration; the update is told to be split.

    ``end`` tells what happens to the array afterwards: nothing, ``after`` another operation; or it is also ``read``.
    """
    shape = tuple_shape(array_shape("s32"), array_shape("f32", trips, 8), array_shape("f32", 1, 8))
    shardings = (SCALAR, WHOLE, SPLIT)
    c = Builder("condition")
    p = c.parameter(shape, sharding=shardings)
    count = c.add("get-tuple-element", p, index=0, sharding=SCALAR)
    limit = c.constant(trips, "s32")
    condition = c.add("compare", count, limit, direction="LT", sharding=SCALAR)
    b = Builder("body")
    p = b.parameter(shape, sharding=shardings)
    count, rows, row = (b.add("get-tuple-element", p, index=n, sharding=s) for n, s in enumerate(shardings))
    row = b.add("add", row, row, sharding=SPLIT)
    zero, one = b.constant(0, "s32"), b.constant(1, "s32")
    rows = b.add("dynamic-update-slice", rows, row, count, zero, sharding=SPLIT)
    if end == "after":
        rows = b.add("negate", rows, sharding=SPLIT)
    if end == "read":
        row = b.add("slice", rows, slice=((1, 2, 1), (0, 8, 1)), sharding=SPLIT)
    step = b.add("add", count, one, sharding=SCALAR)
    body = b.build(b.add("tuple", step, rows, row, sharding=shardings))
    e = Builder("main")
    start = [
        e.constant(0, "s32"),
        e.parameter(shape.elements[1], sharding=WHOLE),
        e.parameter(shape.elements[2], sharding=SPLIT),
    ]
    state = e.add("tuple", *start, sharding=shardings)
    loop = e.add("while", state, condition=c.build(condition), body=body, shape=shape, sharding=shardings)
    return make_module("history", e.build(e.add("get-tuple-element", loop, index=1, sharding=WHOLE)), mesh=MESH)


@pytest.mark.parametrize("end", ["", "after", "read"])
def test_a_carry_told_to_be_whole_is_gathered_behind_the_loop(end: str) -> None:
    """Nothing reads it whole before."""
    module = _annotated(history(end))
    local = check(module)
    (row,) = build_report(local)["collectives"]
    assert (row["op"], row["count"]) == ("all-gather", 1)
    assert row["payload_bytes"] == 8 * 4 * 6


@pytest.mark.parametrize("end", ["", "after", "read"])
def test_by_itself_a_whole_carry_gathers_the_update_and_not_itself(end: str) -> None:
    """Unless something else reads the update as well, and may want it split."""
    module = _annotated(history(end))
    assert module.mesh is not None
    context = Context.over(module.mesh, module)
    parameters = [context.layouts(p) for p in module.entry.parameters]
    partition_computation(context, RULES, module.entry, parameters, context.layouts(module.entry.root))
    (body,) = (c for s, c in context.callees.items() if s.computation.name == "body")
    (gather,) = (i for i in body if i.opcode in COLLECTIVES)
    assert gather.opcode == "all-gather"
    assert gather.shape.nbytes == 8 * 4 * (6 if end == "read" else 1)


def _annotated(module: Module) -> Module:
    """Constants are replicated, as propagation leaves them."""
    for i in module.instructions():
        if i.opcode == "constant":
            i.sharding = layout(MESH, *(None,) * i.shape.rank)
    return module
