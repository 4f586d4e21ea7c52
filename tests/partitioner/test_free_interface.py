"""Arguments and results that nobody annotated lie where a plan wants them; what was annotated stays."""

from __future__ import annotations

import random

import numpy as np
import pytest
from partition_programs import PROGRAMS
from partition_support import integers, layout, random_sharding, scatter_poisoned, with_shardings

from shardc.costs.machines.machine import load_machine
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Alias, Instruction, Module, Rebuilt, rebuild_computation
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import array_shape
from shardc.hlo.verify import verify
from shardc.partitioner.equivalence import gather_results
from shardc.partitioner.free_interface import FreeInterface, find_free_interface, find_free_results
from shardc.partitioner.options import PartitionOptions, Plan
from shardc.partitioner.partition import partition
from shardc.partitioner.program import SourceProgram
from shardc.sharding.propagate import propagate

MESH = Mesh({"d": 2, "m": 4})
ROWS = layout(MESH, "m", None)
WHOLE = Sharding(MESH, (DimSharding(()),) * 2)


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_do_not_depend_on_free_arguments(name: str) -> None:
    r = random.Random(f"free {name}")
    b = Builder("main")
    mesh = r.choice((Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 2, "z": 2}), Mesh({"x": 3})))
    module = with_shardings(b.build(PROGRAMS[name](r, b)), mesh, lambda i: random_sharding(r, mesh, i.shape.rank))
    arguments = sum(1 for p in module.parameters for _ in p.shape.leaves())
    results = sum(1 for _ in module.entry.root.shape.leaves())
    some = frozenset(n for n in range(arguments) if r.random() < 0.8)
    interface = FreeInterface(some, frozenset(n for n in range(results) if r.random() < 0.8))
    local = partition(module, options=PartitionOptions(plan="global", memory=1e12, interface=interface))
    verify(local)
    args = [integers(np.random.default_rng(0), p.shape) for p in module.parameters]
    got = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
    for g, w in zip(got, evaluate(module, args), strict=True):
        np.testing.assert_array_equal(g, w)
    before = [s for p in module.parameters for s in p.leaf_shardings()]
    after = [s for p in local.entry.parameters for s in p.leaf_shardings()]
    assert all(b == a for n, (b, a) in enumerate(zip(before, after, strict=True)) if n not in some)


def update(annotated: Sharding | None, result: Sharding | None = None) -> Module:
    """(w, x) -> (w - x @ w, x @ w), ``w`` donated; annotations of ``w`` and of what it becomes."""
    b = Builder("main")
    w = b.parameter(array_shape("f32", 1024, 1024), name="w")
    x = b.parameter(array_shape("f32", 1024, 1024), name="x")
    y = b.add("dot", x, w, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    root = b.add("tuple", b.add("subtract", w, y), y)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old is w and annotated:
            return old.replace(sharding=annotated)
        if old is root and result:
            return old.replace(operands=operands, sharding=(result, None))
        return None

    entry = rebuild_computation(b.build(root), change, Rebuilt())
    module = Module("m", (entry,), entry, mesh=MESH, num_partitions=MESH.size)
    return module.with_(aliases=(Alias((0,), 0),))


def laid_out(module: Module) -> tuple[list[Sharding], list[Sharding]]:
    """The layouts of arguments and results of the plan for a machine."""
    interface = find_free_interface(module)
    options = PartitionOptions(plan="global", memory=8 * 2**20, interface=interface)
    local = partition(propagate(module).module, machine=load_machine("h100-dgx"), options=options)
    return [p.leaf_shardings()[0] for p in local.entry.parameters], list(local.entry.root.leaf_shardings())


def test_donated_arguments_lie_like_their_results() -> None:
    module = update(None)
    interface = find_free_interface(module)
    assert interface == FreeInterface(frozenset((0, 1)), frozenset((0, 1)), ((0, 0),))
    (w, x), (new, _) = laid_out(module)
    assert w == new
    assert any(d.axes for s in (w, x) for d in s.dims), "nothing is split"


def test_annotations_stay_and_donated_results_follow_them() -> None:
    given = layout(MESH, "m", None)
    module = update(given)
    assert find_free_interface(module).arguments == {1}
    (w, _), (new, _) = laid_out(module)
    assert w == new == given


def test_donated_arguments_follow_annotated_results() -> None:
    given = layout(MESH, None, "m")
    module = update(None, given)
    assert find_free_interface(module).results == {1}
    (w, _), (new, _) = laid_out(module)
    assert w == new == given


def test_open_annotations_say_nothing() -> None:
    said = Sharding(MESH, (DimSharding((), closed=False),) * 2)
    assert find_free_interface(update(said)).arguments == {0, 1}
    half = Sharding(MESH, (DimSharding((), closed=True), DimSharding((), closed=False)))
    assert find_free_interface(update(half)).arguments == {1}


def test_unread_arguments_and_results_that_are_arguments() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 64), name="x")
    b.parameter(array_shape("f32", 64), name="unread")
    for root in (x, b.add("tuple", x, x)):
        module = with_shardings(b.build(root), MESH, lambda i: layout(MESH, *(None,) * i.shape.rank))
        count = 1 if root is x else 2
        interface = FreeInterface(frozenset((0, 1)), frozenset(range(count)))
        local = partition(module, options=PartitionOptions(plan="global", memory=1e9, interface=interface))
        verify(local)
        args = [np.arange(64, dtype=np.float32), np.zeros(64, np.float32)]
        for g in gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args))):
            np.testing.assert_array_equal(g, args[0])


def product(split: Sharding | None, result: Sharding | None = None, *, first: str = "x") -> Module:
    """(x, w) -> w @ x, or (w, x): ``w`` is whole, and ``x`` is ``split`` along what is added up."""
    b, shape = Builder("main"), array_shape("f32", 64, 64)
    made = {name: b.parameter(shape, name=name) for name in sorted("xw", key=lambda name: name != first)}
    root = b.add("dot", made["w"], made["x"], lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    layouts = {made["x"]: split, made["w"]: WHOLE, root: result}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        said = layouts.get(old)
        return old.replace(operands=operands, sharding=said) if said else None

    entry = rebuild_computation(b.build(root), change, Rebuilt())
    return Module("m", (entry,), entry, mesh=MESH, num_partitions=MESH.size)


@pytest.mark.parametrize("plan", ["auto", "global"])
@pytest.mark.parametrize(
    ("module", "lies"),
    [
        pytest.param(product(ROWS), ROWS, id="as its argument"),
        pytest.param(product(ROWS, WHOLE), WHOLE, id="annotated as whole"),
        pytest.param(product(ROWS, first="w"), WHOLE, id="its argument is whole"),
    ],
)
def test_a_whole_result_that_nobody_annotated_lies_as_its_argument_where_that_costs_less(
    module: Module, lies: Sharding, plan: Plan
) -> None:
    propagated = SourceProgram(module).propagate()
    made, before = propagated.partition(plan=plan), propagated.partition(plan="propagated")
    assert made.module.entry.root.axis_sharding == lies
    assert made.report()["wire_bytes"] <= before.report()["wire_bytes"] * (1 / 2 if lies == ROWS else 1)
    args = [integers(np.random.default_rng(0), p.shape) for p in module.parameters]
    (found,) = gather_results(made.module, evaluate_spmd(made.module, scatter_poisoned(made.module, args)))
    np.testing.assert_array_equal(found, evaluate(module, args)[0])


def test_results_lie_as_propagated_where_nobody_asks_for_a_plan_or_it_costs_no_less() -> None:
    propagated = SourceProgram(product(ROWS)).propagate()
    assert find_free_results(product(ROWS), propagated.module) == FreeInterface(results=frozenset((0,)), like=((0, 0),))
    assert propagated.partition(plan="propagated").module.entry.root.axis_sharding == WHOLE
    b, shape = Builder("main"), array_shape("f32", 64, 64)
    x, w = b.parameter(shape, name="x"), b.parameter(shape, name="w")
    x.sharding, w.sharding = ROWS, WHOLE
    kept = b.build(b.add("tuple", x, b.add("negate", w)))
    module = Module("m", (kept,), kept, mesh=MESH, num_partitions=MESH.size)
    assert find_free_results(module, SourceProgram(module).propagate().module) is None


def test_donated_results_lie_as_what_they_take_the_memory_of() -> None:
    module = product(ROWS, first="w").with_(aliases=(Alias((), 1),))
    found = find_free_results(module, SourceProgram(module).propagate().module)
    assert found == FreeInterface(results=frozenset((0,)), like=((1, 0),))
