"""Passes over collectives: the same numbers with fewer of them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from partition_programs import PROGRAMS
from partition_support import collectives, integers, random_sharding, scatter_poisoned, with_shardings

from shardc.hlo.build import Builder, binary_computation, make_module
from shardc.hlo.evaluate import evaluate_spmd
from shardc.hlo.groups import AxisGroups
from shardc.hlo.ir import Module, Origin
from shardc.hlo.mesh import Mesh
from shardc.hlo.sharding import AxisRef
from shardc.hlo.types import array_shape
from shardc.hlo.verify import verify
from shardc.partitioner.optimise.combine import CombineCollectives
from shardc.partitioner.optimise.deduplicate import DeduplicateCollectives
from shardc.partitioner.partition import partition

MESH = Mesh({"x": 2, "y": 2})


def program(*chains: str) -> Module:
    """One result per chain; each letter is an all-reduce over that axis of a scaled value."""
    b = Builder("main")
    out = []
    body = binary_computation("add", "f32")
    for n, chain in enumerate(chains):
        value = b.parameter(array_shape("f32", 4))
        for axis in chain:
            scaled = b.add("multiply", value, value)
            groups = AxisGroups(MESH, (AxisRef(axis),))
            value = b.add("all-reduce", scaled, replica_groups=groups, to_apply=body, origin=Origin(f"chain {n}"))
        out.append(value)
    root = b.add("tuple", *out)
    return make_module("m", b.build(root), mesh=MESH, num_partitions=4, partitioned=True)


def same(before: Module, after: Module) -> None:
    verify(after)
    rng = np.random.default_rng(0)
    args = [[integers(rng, p.shape) for p in before.parameters] for _ in range(before.num_partitions)]
    for a, b in zip(evaluate_spmd(before, args), evaluate_spmd(after, args), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    ("chains", "left"),
    [(("x", "x", "x"), 1), (("x", "y"), 2), (("xx", "x"), 2), (("xy", "yx"), 3), (("xyx", "yxy", "x"), 5), (("x",), 1)],
)
def test_independent_all_reduces_are_joined(chains: tuple[str, ...], left: int) -> None:
    before = program(*chains)
    after = CombineCollectives().run(before)
    assert len(collectives(after)) <= left
    same(before, after)


def test_the_size_limit_holds() -> None:
    assert len(collectives(CombineCollectives(max_bytes=32).run(program("x", "x", "x", "x")))) == 2


def test_reasons_of_all_members_are_kept() -> None:
    (joined,) = [i for i in CombineCollectives().run(program("x", "x")).instructions() if i.opcode == "all-reduce"]
    assert joined.origin is not None
    assert joined.origin.reason == "chain 0; chain 1"


def test_equal_collectives_travel_once() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 4))
    groups = AxisGroups(MESH, (AxisRef("x"),))
    twice = [b.add("all-gather", x, replica_groups=groups, dimensions=(0,), shape=array_shape("f32", 8)) for _ in "ab"]
    before = make_module("m", b.build(b.add("add", *twice)), mesh=MESH, num_partitions=4, partitioned=True)
    after = DeduplicateCollectives().run(before)
    assert collectives(after) == ["all-gather"]
    same(before, after)


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_programs_stay_the_same(name: str) -> None:
    r = random.Random(f"combine {name}")
    b = Builder("main")
    mesh = r.choice((MESH, Mesh({"x": 2, "y": 4}), Mesh({"x": 3})))
    module = with_shardings(b.build(PROGRAMS[name](r, b)), mesh, lambda i: random_sharding(r, mesh, i.shape.rank))
    before = partition(module)
    after = CombineCollectives().run(before)
    verify(after)
    args = scatter_poisoned(before, [integers(np.random.default_rng(1), p.shape) for p in module.parameters])
    for x, y in zip(evaluate_spmd(before, args), evaluate_spmd(after, args), strict=True):
        for p, q in zip(x, y, strict=True):
            np.testing.assert_array_equal(p, q)
