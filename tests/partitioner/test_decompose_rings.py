"""Permutes in a circle as two along it."""

from __future__ import annotations

import pytest
from test_optimise import same

from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.optimise.einsums.decompose_rings import DecomposeRings

MESH = Mesh({"x": 6, "y": 2}, (3, 1, 2, 0, 4, 5, 9, 8, 7, 6, 11, 10))
WHOLE = AxisRef("x")


def permuted(*pairs: tuple[int, int], axis: AxisRef = WHOLE) -> Module:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 3, 2))
    moved = b.add("collective-permute", x, source_target_pairs=AxisPairs(MESH, (axis,), pairs))
    return make_module("m", b.build(moved), mesh=MESH, num_partitions=12, partitioned=True)


def shifted(by: int, members: int = 6) -> list[tuple[int, int]]:
    return [(s, (s + by) % members) for s in range(members)]


@pytest.mark.parametrize("by", [1, -1, 2, 4, -2])
def test_rings_by_any_step(by: int) -> None:
    before = permuted(*shifted(by))
    after = DecomposeRings(wanted=True).run(before)
    same(before, after)
    halves = [i.attrs["source_target_pairs"].pairs for i in after.instructions() if i.opcode == "collective-permute"]
    assert len(halves) == 2
    assert sorted(p for half in halves for p in half) == sorted(shifted(by))
    assert all(len({s < t for s, t in half}) == 1 for half in halves)
    assert DecomposeRings(wanted=True).run(after) is after


def test_rings_over_a_part_of_an_axis() -> None:
    before = permuted(*shifted(1, 3), axis=AxisRef("x", 2, 3))
    after = DecomposeRings(wanted=True).run(before)
    assert after is not before
    same(before, after)


def test_circles_that_leave_members_out() -> None:
    before = permuted((0, 2), (2, 0))
    after = DecomposeRings(wanted=True).run(before)
    assert after is not before
    same(before, after)


@pytest.mark.parametrize("pairs", [[(0, 1), (1, 2)], [(0, 0), (1, 1)], [(0, 1), (1, 0), (2, 3), (3, 2)]], ids=str)
def test_chains_and_mixtures_stay(pairs: list[tuple[int, int]]) -> None:
    before = permuted(*pairs)
    assert DecomposeRings(wanted=True).run(before) is before


def test_a_long_chain_is_walked_once() -> None:
    """From each of its members it would be walked for minutes."""
    mesh = Mesh({"x": 1 << 15})
    b = Builder("main")
    pairs = AxisPairs(mesh, (AxisRef("x"),), tuple(shifted(1, mesh.size)[:-1]))
    b.add("collective-permute", b.parameter(array_shape("f32", 3, 2)), source_target_pairs=pairs)
    before = make_module("m", b.build(), mesh=mesh, num_partitions=mesh.size, partitioned=True)
    assert DecomposeRings(wanted=True).run(before) is before


def test_only_where_it_is_wanted() -> None:
    before = permuted(*shifted(1))
    assert DecomposeRings().run(before) is before
    assert DecomposeRings(wanted=True, least_bytes=25).run(before) is before
