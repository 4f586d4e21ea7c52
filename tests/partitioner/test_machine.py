"""Partitioning for the least time on a machine: other choices, the same numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from partition_programs import PROGRAMS
from partition_support import collectives, integers, layout, random_sharding, scatter_poisoned, with_shardings

from shardc.collectives.machine import load_machine, machine_names
from shardc.hlo.build import Builder, make_module
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.mesh import Mesh
from shardc.hlo.types import array_shape
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
    local = partition(module, machine=load_machine(r.choice(machine_names())))
    verify(local)
    got = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
    for g, w in zip(got, evaluate(module, args), strict=True):
        np.testing.assert_array_equal(g, w)


def test_latency_decides_where_there_is_little_to_send() -> None:
    """A gather and an exchange send more bytes than an exchange, a permute and a gather, but sooner."""
    mesh = Mesh({"node": 4, "gpu": 8})
    b = Builder("main")
    x = b.parameter(array_shape("f32", 64, 64), sharding=layout(mesh, "node", "gpu"))
    module = make_module("m", b.build(b.add("copy", x, sharding=layout(mesh, None, "node"))), mesh=mesh)
    by_bytes, by_time = partition(module), partition(module, machine=load_machine("h100-dgx"))
    args = [integers(np.random.default_rng(0), p.shape) for p in module.parameters]
    for local in (by_bytes, by_time):
        (got,) = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
        np.testing.assert_array_equal(got, args[0])
    assert collectives(by_bytes) == ["all-to-all", "collective-permute", "all-gather"]
    assert collectives(by_time) == ["all-gather", "all-to-all"]
