"""Deciding over regions: never dearer than one operation at a time, on small programs the cheapest there is."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from partition_support import check, collectives, layout, random_sharding, with_shardings

from shardc.costs.machines.machine import load_machine
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.hlo.text.printer import print_module
from shardc.partitioner.partition import partition
from shardc.partitioner.regions.decision_graph import DecisionGraph
from shardc.partitioner.regions.dry_run import build_decision_graph
from shardc.partitioner.regions.region import Search, make_plan
from shardc.partitioner.regions.region_graph import Region
from shardc.partitioner.report import build_report
from shardc.partitioner.rewrite.body import partition_computation
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.rewrite.local_cost import collectives_cost
from shardc.partitioner.rules import RULES
from shardc.partitioner.strategy.decisions import LayoutPlan

GRID = Mesh({"x": 2, "y": 2})
LINE = Mesh({"x": 8})
N = 8


def grown(r: random.Random, count: int, *, tree: bool) -> Computation:
    """A random program of square matrices; in a tree every value is read once."""
    b = Builder("main")
    values: list[Instruction] = []

    def take() -> Instruction:
        if not values or r.random() < 0.3:
            return b.parameter(array_shape("f32", N, N))
        return values.pop(r.randrange(len(values))) if tree else r.choice(values)

    for _ in range(count):
        opcode = r.choice(["add", "multiply", "dot", "dot", "transpose", "abs", "reduce"])
        x = take()
        if opcode in ("add", "multiply"):
            values.append(b.add(opcode, x, take()))
        elif opcode == "dot":
            values.append(b.add("dot", x, take(), lhs_contracting_dims=(1,), rhs_contracting_dims=(r.randint(0, 1),)))
        elif opcode == "transpose":
            values.append(b.add("transpose", x, dimensions=(1, 0)))
        elif opcode == "abs":
            values.append(b.add("abs", x))
        else:
            d = r.randint(0, 1)
            total = b.add(
                "reduce", x, b.constant(0.0, "f32"), dimensions=(d,), to_apply=binary_computation("add", "f32")
            )
            values.append(b.add("broadcast", total, shape=array_shape("f32", N, N), dimensions=(1 - d,)))
    return b.build(b.add("tuple", *(values if tree else values[-2:])))


def annotated(seed: int, count: int, *, tree: bool) -> Module:
    r = random.Random(f"region {seed}")
    mesh = r.choice([GRID, LINE, Mesh({"x": 2, "y": 4})])
    made = grown(r, count, tree=tree)
    known: dict[str, object] = {}

    def choose(i: Instruction) -> object:
        return known.setdefault(f"{i.name}{i.shape}", random_sharding(r, mesh, i.shape.rank))

    return with_shardings(made, mesh, choose)  # type: ignore[arg-type]


def rehearsed(module: Module) -> tuple[Context, DecisionGraph]:
    assert module.mesh is not None
    context = Context.over(module.mesh, module)
    return context, build_decision_graph(context, RULES, module, [context.layouts(p) for p in module.entry.parameters])


def written(module: Module, context: Context) -> float:
    """Bytes that the program sends as a context writes it."""
    parameters = [context.layouts(p) for p in module.entry.parameters]
    local = partition_computation(context, RULES, module.entry, parameters, context.layouts(module.entry.root))
    return collectives_cost(context, local)[0]


def op_by_op(monkeypatch: pytest.MonkeyPatch, module: Module) -> Module:
    with monkeypatch.context() as m:
        m.setattr("shardc.partitioner.partition.make_plan", lambda *_: LayoutPlan())
        return partition(module)


def sent(local: Module) -> float:
    return float(build_report(local)["wire_bytes"])


# -- properties over random programs -----------------------------------------------------------------------------


def test_the_model_counts_what_is_written() -> None:
    """Both before and after regions have decided."""
    for seed in range(20):
        module = annotated(seed, 6, tree=False)
        context, graph = rehearsed(module)
        search = Search(context, graph.nodes, graph.wires)
        before = search.costs.total(graph.nodes, graph.wires)[0]
        assert before == written(module, context.following(search.plan(graph))), seed
        search.run()
        after = search.costs.total(graph.nodes, graph.wires)[0]
        context = rehearsed(module)[0]
        plan = make_plan(context, RULES, module, [context.layouts(p) for p in module.entry.parameters])
        assert after == written(module, context.following(plan)) <= before, seed


def test_a_region_that_is_a_tree_gets_the_cheapest_decisions() -> None:
    better = 0
    for seed in range(24):
        context, graph = rehearsed(annotated(seed, 3, tree=True))
        search = Search(context, graph.nodes, graph.wires)
        nodes = [n for n in graph.nodes if n.strategies]
        options = search.options.of_region(Region(nodes))
        present = tuple(n.option for n in nodes)
        if math.prod(map(len, options)) > 4000:
            continue
        costs = []
        for chosen in itertools.product(*options):
            for n, o in zip(nodes, chosen, strict=True):
                n.option = o
            costs.append(search.costs.total(graph.nodes, graph.wires))
        for n, o in zip(nodes, present, strict=True):
            n.option = o
        before = search.costs.total(graph.nodes, graph.wires)
        best = search.decided(Region(nodes), 0.0)
        assert (best is None) == (min(costs)[0] == before[0] and min(costs) == before), seed
        for n, o in zip(nodes, best or present, strict=True):
            n.option = o
        assert search.costs.total(graph.nodes, graph.wires) == min(costs), seed
        better += best is not None
    assert better >= 6


def test_numbers_stay_right() -> None:
    for seed in range(12):
        check(annotated(1000 + seed, 8, tree=False), seed=seed)


# -- programs in which one operation at a time loses -------------------------------------------------------------


def loop(mesh: Mesh, trips: int) -> Module:
    """A state that propagation has split by rows, and that every iteration works on split by columns."""
    shape = tuple_shape(array_shape("s32"), array_shape("f32", 16, 16))
    scalar, rows, columns = layout(mesh), layout(mesh, "x", None), layout(mesh, None, "x")
    c = Builder("condition")
    p = c.parameter(shape, sharding=(scalar, rows))
    count = c.add("get-tuple-element", p, index=0, sharding=scalar)
    limit = c.constant(trips, "s32")
    condition = c.add("compare", count, limit, direction="LT", sharding=scalar)
    b = Builder("body")
    p = b.parameter(shape, sharding=(scalar, rows))
    count, state = (b.add("get-tuple-element", p, index=n, sharding=s) for n, s in enumerate((scalar, rows)))
    total = b.add(
        "reduce",
        state,
        b.constant(0.0, "f32"),
        dimensions=(0,),
        to_apply=binary_computation("maximum", "f32"),
        sharding=layout(mesh, "x"),
    )
    spread = b.add("broadcast", total, shape=shape.elements[1], dimensions=(1,), sharding=columns)
    state = b.add("subtract", spread, state, sharding=columns)
    body = b.build(
        b.add("tuple", b.add("add", count, b.constant(1, "s32"), sharding=scalar), state, sharding=(scalar, rows))
    )
    e = Builder("main")
    start = e.add("tuple", e.constant(0, "s32"), e.parameter(shape.elements[1], sharding=rows), sharding=(scalar, rows))
    made = e.add("while", start, condition=c.build(condition), body=body, shape=shape, sharding=(scalar, rows))
    module = make_module("loop", e.build(e.add("get-tuple-element", made, index=1, sharding=rows)), mesh=mesh)
    for i in module.instructions():
        if i.opcode == "constant":
            i.sharding = scalar
    return module


def test_a_loop_carries_its_state_as_its_body_works_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One exchange before the loop and one behind it, instead of some in every iteration."""
    module = loop(Mesh({"x": 4}), 10)
    local = check(module)
    assert collectives(local) == ["all-to-all", "all-to-all"]
    assert all(c["count"] == 1 for c in build_report(local)["collectives"])
    assert sent(op_by_op(monkeypatch, module)) >= 5 * sent(local)
    # What one iteration needs is not worth changing the carry twice.
    assert sent(check(loop(Mesh({"x": 4}), 1))) <= sent(local)


def test_what_is_whole_stays_whole_for_a_later_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Propagation has split a transposed whole matrix; to split the product's columns it is read whole."""
    b = Builder("main")
    x = b.parameter(array_shape("f32", 32, 16), sharding=layout(LINE, None, None))
    y = b.parameter(array_shape("f32", 32, 512), sharding=layout(LINE, None, "x"))
    x = b.add("transpose", x, dimensions=(1, 0), sharding=layout(LINE, "x", None))
    product = b.add(
        "dot", x, y, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,), sharding=layout(LINE, None, None)
    )
    module = make_module("product", b.build(product), mesh=LINE)
    (gather,) = build_report(check(module))["collectives"]
    assert (gather["op"], gather["payload_bytes"]) == ("all-gather", 16 * 512 * 4)
    assert sent(op_by_op(monkeypatch, module)) > gather["wire_bytes"]


# -- what a region may not do ------------------------------------------------------------------------------------


def test_arithmetic_is_not_repeated_everywhere_to_send_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long elementwise work on a split value would send nothing if every device did all of it."""
    b = Builder("main")
    x = b.parameter(array_shape("f32", 64, 64), sharding=layout(LINE, None, None))
    y = x
    for _ in range(12):
        y = b.add("add", b.add("tanh", y, sharding=layout(LINE, "x", None)), x, sharding=layout(LINE, "x", None))
    module = make_module("work", b.build(b.add("copy", y, sharding=layout(LINE, None, None))), mesh=LINE)
    local = partition(module)
    assert build_report(local)["flops"] <= 1.001 * build_report(op_by_op(monkeypatch, module))["flops"]
    assert collectives(local) == ["all-gather"]


def test_on_a_machine_arithmetic_is_repeated_where_that_is_sooner() -> None:
    """A microsecond of arithmetic everywhere is less than the latency of a gather; much of it is more."""
    for size, expected in ((64, []), (8192, ["all-gather"])):
        b = Builder("main")
        x = b.parameter(array_shape("f32", size, size), sharding=layout(LINE, None, None))
        y = b.add("dot", x, x, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,), sharding=layout(LINE, "x", None))
        module = make_module("work", b.build(b.add("copy", y, sharding=layout(LINE, None, None))), mesh=LINE)
        assert collectives(partition(module, machine=load_machine("h100-dgx"))) == expected
        assert collectives(partition(module)) == ["all-gather"]


@pytest.mark.parametrize("seed", range(6))
def test_neither_bytes_nor_arithmetic_grow(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = annotated(2000 + seed, 10, tree=False)
    after, before = build_report(partition(module)), build_report(op_by_op(monkeypatch, module))
    assert after["wire_bytes"] <= before["wire_bytes"]
    assert after["flops"] <= 1.001 * before["flops"] + N


# -- telling -----------------------------------------------------------------------------------------------------


def test_the_report_tells_what_a_region_decided() -> None:
    reasons = [c["reason"] for c in build_report(partition(loop(Mesh({"x": 4}), 10)))["collectives"]]
    assert any("operations at once" in reason and "instead of" in reason for reason in reasons)


def test_equal_programs_get_equal_plans() -> None:
    for seed in range(3):
        first, second = (print_module(partition(annotated(3000 + seed, 9, tree=False))) for _ in range(2))
        assert first == second


def test_a_callback_without_results_is_part_of_a_region() -> None:
    mesh = Mesh({"x": 2})
    b = Builder("main")
    x = b.parameter(array_shape("f32", 8))
    b.add("custom-call", x, shape=tuple_shape(), custom_call_target="callback", custom_call_has_side_effect=True)
    module = with_shardings(b.build(b.add("negate", x)), mesh, lambda i: layout(mesh, *[None] * i.shape.rank))
    assert "custom-call" in {i.opcode for i in partition(module).instructions()}
