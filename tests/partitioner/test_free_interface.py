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
from shardc.partitioner.free_interface import FreeInterface, find_free_interface
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.partition import partition
from shardc.sharding.propagate import propagate

MESH = Mesh({"d": 2, "m": 4})


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
