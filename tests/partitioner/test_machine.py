"""Partitioning for the least time on a machine: other choices, the same numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from partition_programs import PROGRAMS
from partition_support import collectives, integers, layout, random_sharding, scatter_poisoned, with_shardings

from shardc.costs.machines.machine import load_machine, machine_names
from shardc.costs.network.search_mapping import mesh_of, search_mapping
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.ir.types import array_shape
from shardc.hlo.verify import verify
from shardc.partitioner.equivalence import gather_results
from shardc.partitioner.partition import partition


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_do_not_depend_on_the_machine(name: str) -> None:
    r = random.Random(f"machine {name}")
    b = Builder("main")
    mesh = r.choice((Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 2, "z": 2}), Mesh({"x": 3})))
    module = with_shardings(b.build(PROGRAMS[name](r, b)), mesh, lambda i: random_sharding(r, mesh, i.shape.rank))
    args = [integers(np.random.default_rng(0), p.shape) for p in module.parameters]
    # Three devices are no slice of a torus.
    names = [n for n in machine_names() if mesh.size % 2 == 0 or not n.startswith("tpu")]
    local = partition(module, machine=load_machine(r.choice(names)))
    verify(local)
    got = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
    for g, w in zip(got, evaluate(module, args), strict=True):
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("n", [8, 4096])
def test_copies_share_a_reduction_where_bytes_count(n: int) -> None:
    """Eight devices of a node hold the same partial value: each sends an eighth over the slow links, if it is long."""
    mesh = Mesh({"node": 4, "gpu": 8})
    b = Builder("main")
    x = b.parameter(array_shape("f32", n, n, 4), sharding=layout(mesh, None, None, "node"))
    whole = layout(mesh, None, None)
    zero = b.constant(0.0, "f32")
    total = b.add("reduce", x, zero, dimensions=(2,), to_apply=binary_computation("add", "f32"), sharding=whole)
    module = with_shardings(
        b.build(total), mesh, lambda i: x.sharding if i.shape.rank == 3 else layout(mesh, *[None] * i.shape.rank)
    )
    local = partition(module, machine=load_machine("h100-dgx"))
    assert (len(collectives(local)) == 1) == (n == 8)
    assert collectives(partition(module)) == ["all-reduce"]
    if n == 8:
        args = [integers(np.random.default_rng(0), p.shape) for p in module.parameters]
        (got,) = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
        np.testing.assert_array_equal(got, args[0].sum(2))


def test_the_best_mapping_of_a_program() -> None:
    """Sums over the outer axis are large, those over the inner one small: the outer axis belongs inside a node."""
    mesh = Mesh({"outer": 8, "inner": 8})
    b = Builder("main")
    large, small = b.parameter(array_shape("f32", 4096, 64)), b.parameter(array_shape("f32", 4))
    add = binary_computation("add", "f32")
    sums = [
        b.add("all-reduce", x, replica_groups=AxisGroups(mesh, (AxisRef(axis),)), to_apply=add, shape=x.shape)
        for x, axis in ((large, "outer"), (small, "inner"))
    ]
    module = make_module("sums", b.build(b.add("tuple", *sums)), mesh=mesh).with_(num_partitions=64)
    found = search_mapping(load_machine("h100-dgx"), module)
    assert found.describe() == {"outer": "nvlink", "inner": "infiniband"}
    assert mesh_of(module.with_(mesh=None)) == Mesh({"devices": 64})
