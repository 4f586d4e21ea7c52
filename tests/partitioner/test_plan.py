"""Layouts chosen for a whole program at once: the same numbers, never dearer, as cheap as the best of all there are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from partition_programs import PROGRAMS
from partition_support import integers, layout, random_sharding, scatter_poisoned, with_shardings
from test_layers_under_scan import training_module

from shardc.costs.machines.machine import Machine, load_machine, machine_names
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.hlo.passes import run_pipeline
from shardc.hlo.verify import verify
from shardc.partitioner.equivalence import agree, gather_results
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.partition import OPENING, partition
from shardc.partitioner.plan.axis_blocks import assignments, axis_blocks
from shardc.partitioner.plan.judge import Judgement, judge_by_bytes, judge_by_models
from shardc.partitioner.plan.plan_layouts import pose_question
from shardc.partitioner.plan.write_shardings import write_shardings
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.strategy.solve.solve import solve_choice

GLOBAL = PartitionOptions(plan="global")


def judged(module: Module, local: Module, machine: Machine | None) -> Judgement:
    assert module.mesh is not None
    if machine is None:
        return judge_by_bytes()(local)
    return judge_by_models(Context.over(module.mesh, module, machine), machine)(local)


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_do_not_depend_on_the_plan(name: str) -> None:
    r = random.Random(f"plan {name}")
    b = Builder("main")
    mesh = r.choice((Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 2, "z": 2}), Mesh({"x": 3})))
    module = with_shardings(b.build(PROGRAMS[name](r, b)), mesh, lambda i: random_sharding(r, mesh, i.shape.rank))
    args = [integers(np.random.default_rng(0), p.shape) for p in module.parameters]
    names = [n for n in machine_names() if mesh.size % 2 == 0 or not n.startswith("tpu")]
    machine = r.choice([None, load_machine(r.choice(names))])
    local = partition(module, machine=machine, options=GLOBAL)
    verify(local)
    got = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
    for g, w in zip(got, evaluate(module, args), strict=True):
        np.testing.assert_array_equal(g, w)
    before = partition(module, machine=machine)
    assert judged(module, local, machine).cost <= judged(module, before, machine).cost
    if machine is None:
        assert judged(module, local, machine).peak <= judged(module, before, machine).peak


@pytest.mark.parametrize("machine", ["", "h100-dgx"])
def test_layers_under_scan_compute_the_same(machine: str) -> None:
    module = training_module()
    described = load_machine(machine) if machine else None
    local = partition(module, machine=described, options=GLOBAL)
    verify(local)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(p.shape.dims).astype(np.float32) / 8 for p in module.parameters]
    got = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
    for g, w in zip(got, evaluate(module, args), strict=True):
        assert agree(g, w)
    before = partition(module, machine=described)
    assert judged(module, local, described).cost <= judged(module, before, described).cost


# -- brute force -------------------------------------------------------------------------------------------------


def products(mesh: Mesh, shardings: dict[str, Sharding]) -> Module:
    """tanh(x @ a) @ b, the result split like x; ``shardings`` of the values between."""
    b = Builder("main")
    given = {"x": layout(mesh, "d", None), "a": layout(mesh, "d", "m"), "b": layout(mesh, "m", "d")}
    x = b.parameter(array_shape("f32", 64, 128), name="x")
    left = b.parameter(array_shape("f32", 128, 256), name="a")
    right = b.parameter(array_shape("f32", 256, 128), name="b")
    contract: dict[str, Any] = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
    first = b.add("dot", x, left, name="first", **contract)
    second = b.add("dot", b.add("tanh", first, name="between"), right, name="second", **contract)
    whole = {**shardings, **given, "second": given["x"]}
    return with_shardings(b.build(second), mesh, lambda i: whole[i.name])


def layouts_of_matrices(mesh: Mesh) -> Iterator[Sharding]:
    table = Context.over(mesh, products(mesh, dict.fromkeys(("first", "between"), layout(mesh, None, None)))).table
    for factors in assignments(axis_blocks(table, []), 2, lambda place, atoms: True):
        yield table.to_sharding(table.layout(factors))


@pytest.mark.parametrize("machine", ["", "h100-dgx"])
@pytest.mark.parametrize("mesh", [Mesh({"d": 2, "m": 2}), Mesh({"d": 4, "m": 2})], ids=str)
def test_no_layouts_between_two_products_are_cheaper(mesh: Mesh, machine: str) -> None:
    described = load_machine(machine) if machine else None
    found = {}
    for first, between in itertools.product(layouts_of_matrices(mesh), repeat=2):
        module = products(mesh, {"first": first, "between": between})
        found[first, between] = judged(module, partition(module, machine=described), described).cost
    dearest = max(found, key=found.__getitem__)
    module = products(mesh, {"first": dearest[0], "between": dearest[1]})
    planned = partition(module, machine=described, options=PartitionOptions(plan="global", memory=1e12))
    least = min(found.values())
    assert judged(module, planned, described).cost[0] <= least[0] * 1.0001


def test_the_answer_is_the_cheapest_of_all_choices() -> None:
    mesh = Mesh({"d": 2, "m": 2})
    whole = layout(mesh, None, None)
    opened = run_pipeline(products(mesh, {"first": whole, "between": whole}), OPENING, Config())
    choice = pose_question(opened, load_machine("h100-dgx")).as_choice(np.inf)
    sizes = [range(len(c)) for c in choice.costs]
    assert 1000 < np.prod([len(s) for s in sizes]) < 100_000
    answer = solve_choice(choice)
    assert answer.choice is not None
    assert choice.cost(answer.choice) == pytest.approx(min(map(choice.cost, itertools.product(*sizes))))


# -- parts -------------------------------------------------------------------------------------------------------


def test_blocks_are_cut_where_the_program_cuts_axes() -> None:
    mesh = Mesh({"x": 8, "y": 4})
    b = Builder("main")
    p = b.parameter(array_shape("f32", 8, 8))
    module = with_shardings(b.build(b.add("negate", p)), mesh, lambda i: layout(mesh, "x:(1)2", "y"))
    table = Context.over(mesh, module).table
    assert [table.axis_names(x) for x in axis_blocks(table, [])] == [("x",), ("y",)]
    cut = [table.from_sharding(layout(mesh, "x:(1)2", None))]
    assert [table.axis_names(x) for x in axis_blocks(table, cut)] == [("x:(1)2",), ("x:(2)4",), ("y",)]


def test_two_blocks_go_to_one_place_in_both_orders() -> None:
    found = list(assignments(((0,), (1,)), 1, lambda place, atoms: True))
    assert found == [((0, 1),), ((1, 0),), ((0,),), ((1,),), ((),)]


def test_shardings_reach_tuples_and_loops() -> None:
    mesh = Mesh({"x": 2})
    inner = Builder("body")
    pair = inner.parameter(array_shape("f32", 4))
    body = inner.build(inner.add("negate", pair))
    test = Builder("condition")
    test.parameter(array_shape("f32", 4))
    condition = test.build(test.constant(False, "pred"))
    b = Builder("main")
    p = b.parameter(array_shape("f32", 4))
    loop = b.add("while", p, condition=condition, body=body)
    root = b.add("tuple", loop, p)
    split, whole = layout(mesh, "x"), layout(mesh, None)
    module = with_shardings(b.build(root), mesh, lambda i: whole if i.shape.rank else layout(mesh))
    (old,) = (i for i in module.entry if i.opcode == "while")
    out = write_shardings(module, {old: (split,)})
    (new,) = (i for i in out.entry if i.opcode == "while")
    assert new.sharding == new.attrs["body"].root.sharding == new.attrs["body"].parameters[0].sharding == split
    assert new.attrs["condition"].parameters[0].sharding == split
    assert out.entry.root.sharding == module.entry.root.sharding
    assert write_shardings(module, {}).entry is module.entry


def test_words_and_memory_are_checked() -> None:
    with pytest.raises(InputError, match="unknown value 'best'"):
        PartitionOptions(plan="best")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="memory is 0"):
        PartitionOptions(memory=0)


@pytest.mark.parametrize(("columns", "split"), [(1000, True), (1003, True), (12, True), (9, False), (4, False)])
def test_what_is_nearly_even_is_split(columns: int, split: bool) -> None:
    """As a vocabulary of 50,257 words is; parts that were mostly padding are not asked about."""
    mesh = Mesh({"d": 8})
    b = Builder("main")
    x = b.parameter(array_shape("f32", 64, 32), sharding=layout(mesh, "d", None))
    w = b.parameter(array_shape("f32", 32, columns), sharding=layout(mesh, None, None))
    logits = b.add("dot", x, w, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    module = with_shardings(b.build(b.add("tanh", logits)), mesh, lambda i: i.sharding or layout(mesh, None, None))
    question = pose_question(module, None)
    problem = question.problem
    members = [
        x for c, ms in zip(problem.clusters, problem.members, strict=True) for x in zip(c.members, ms, strict=True)
    ]
    (options,) = (m for n, m in members if n.op.opcode == "dot")
    assert any(x.dims[1] for x in options.starts(0)) is split
