"""Passes over collectives: the same numbers with fewer of them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from partition_programs import PROGRAMS
from partition_support import collectives, integers, random_sharding, scatter_poisoned, with_shardings

from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.groups import AxisGroups, AxisPairs
from shardc.hlo.ir.ir import Module, Origin
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.ir.types import array_shape
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.transforms.separate_collectives import SeparateCollectives
from shardc.hlo.verify import verify
from shardc.partitioner.equivalence import gather_results
from shardc.partitioner.optimise.combine_collectives import CombineCollectives
from shardc.partitioner.optimise.deduplicate_collectives import DeduplicateCollectives
from shardc.partitioner.options import PartitionOptions
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


def gathers(*dims: int, chained: bool = False) -> Module:
    """All-gathers of parameters along ``dims``, each reduced to a scalar; ``chained``: one after the other."""
    b = Builder("main")
    groups = AxisGroups(MESH, (AxisRef("x"),))
    body, zero = binary_computation("add", "f32"), b.constant(0, "f32")
    total = zero
    parameters = [b.parameter(array_shape("f32", 8, 8)) for _ in dims]
    for p, dim in zip(parameters, dims, strict=True):
        if chained:
            p = b.add("add", p, b.add("broadcast", total, shape=p.shape, dimensions=()))
        shape = array_shape("f32", *(16 if d == dim else 8 for d in range(2)))
        whole = b.add("all-gather", p, replica_groups=groups, dimensions=(dim,), shape=shape)
        total = b.add("add", total, b.add("reduce", whole, zero, dimensions=(0, 1), to_apply=body))
    return make_module("m", b.build(total), mesh=MESH, num_partitions=4, partitioned=True)


def test_gathers_are_joined_while_the_peak_allows() -> None:
    """Each of the gathered arrays is read at once and dropped: two of them at a time would be the new peak."""
    alone = gathers(0, 0)
    assert CombineCollectives().run(alone) is alone
    b = Builder("main")
    groups = AxisGroups(MESH, (AxisRef("x"),))
    parts = [b.parameter(array_shape("f32", 4, n)) for n in (4, 6)]
    wide = [
        b.add("all-gather", p, replica_groups=groups, dimensions=(0,), shape=array_shape("f32", 8, n))
        for p, n in zip(parts, (4, 6), strict=True)
    ]
    before = make_module("m", b.build(b.add("tuple", *wide)), mesh=MESH, num_partitions=4, partitioned=True)
    after = CombineCollectives().run(before)
    assert collectives(after) == ["all-gather"]
    same(before, after)


@pytest.mark.parametrize(("opcode", "other", "left"), [("all-gather", {}, 1), ("all-gather", {"dimensions": (1,)}, 2)])
def test_only_equal_kinds_are_joined(opcode: str, other: dict[str, tuple[int, ...]], left: int) -> None:
    b = Builder("main")
    groups = AxisGroups(MESH, (AxisRef("x"),))
    results = []
    for attrs in ({"dimensions": (0,)}, {"dimensions": (0,), **other}):
        (dim,) = attrs["dimensions"]
        shape = array_shape("f32", *(8 if d == dim else 4 for d in range(2)))
        x = b.parameter(array_shape("f32", 4, 4))
        results.append(b.add(opcode, x, replica_groups=groups, shape=shape, **attrs))
    before = make_module("m", b.build(b.add("tuple", *results)), mesh=MESH, num_partitions=4, partitioned=True)
    after = CombineCollectives().run(before)
    assert len(collectives(after)) == left
    same(before, after)


@pytest.mark.parametrize(("waits", "left"), [(False, 1), (True, 2)])
def test_permutes_are_joined_where_nobody_waits(waits: bool, left: int) -> None:
    """The second operand is computed after the first result is read, or before."""
    b = Builder("main")
    pairs = AxisPairs(MESH, (AxisRef("x"),), ((0, 1), (1, 0)))
    x, y = (b.parameter(array_shape("f32", 4)) for _ in "xy")
    made = None if waits else b.add("multiply", y, y)
    first = b.add("collective-permute", x, source_target_pairs=pairs)
    read = b.add("negate", first) if waits else None
    made = made or b.add("multiply", y, y)
    second = b.add("collective-permute", made, source_target_pairs=pairs)
    root = b.add("tuple", read or b.add("negate", first), second)
    before = make_module("m", b.build(root), mesh=MESH, num_partitions=4, partitioned=True)
    after = CombineCollectives().run(before)
    assert len(collectives(after)) == left
    same(before, after)


def test_chains_stay_in_order() -> None:
    before = gathers(0, 0, 0, chained=True)
    assert CombineCollectives().run(before) is before


def test_text_has_one_operand_each() -> None:
    """In manual programs XLA takes no collectives of several operands; what is read back computes the same."""
    after = CombineCollectives().run(program("x", "x", "y"))
    assert len(collectives(after)) == 2
    text = print_module(after)
    read = read_hlo(text)
    assert collectives(read) == ["all-reduce"] * 3
    assert all(len(i.operands) == 1 for i in read.instructions() if i.opcode == "all-reduce")
    same(after, read)
    assert print_module(SeparateCollectives().run(after)) == text


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
def test_random_programs_with_everything_on(name: str) -> None:
    """Combined, windowed, pipelined and without circles: what the evaluator says of the whole program."""
    r = random.Random(f"everything {name}")
    b = Builder("main")
    mesh = r.choice((MESH, Mesh({"x": 2, "y": 4}), Mesh({"x": 3})))
    module = with_shardings(b.build(PROGRAMS[name](r, b)), mesh, lambda i: random_sharding(r, mesh, i.shape.rank))
    local = partition(module, options=PartitionOptions("always", "always", decomposed_rings=True))
    verify(local)
    args = [integers(np.random.default_rng(1), p.shape) for p in module.parameters]
    got = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
    for g, w in zip(got, evaluate(module, args), strict=True):
        np.testing.assert_array_equal(g, w)
