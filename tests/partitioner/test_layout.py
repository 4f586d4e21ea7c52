"""Atoms of mesh axes, interned layouts, and both ways of conversion."""

from __future__ import annotations

import random

import pytest
from partition_support import axis, layout, random_sharding

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.partitioner.emit.layout import AxisTable


def test_axes_are_cut_into_primes_and_merged_again() -> None:
    table = AxisTable(Mesh({"x": 12, "y": 4, "z": 1}))
    assert table.extents == [2, 2, 3, 2, 2]
    assert table.atoms((AxisRef("y"), AxisRef("x"))) == (3, 4, 0, 1, 2)
    assert table.axes((3, 4, 0, 1)) == (AxisRef("y"), AxisRef("x", 1, 4))
    assert table.axes((2,)) == (AxisRef("x", 4, 3),)
    assert table.axes((1, 0)) == (AxisRef("x", 2, 2), AxisRef("x", 1, 2))
    assert table.atoms((AxisRef("z"),)) == ()


def test_cuts_follow_the_programs_sub_axes() -> None:
    mesh = Mesh({"x": 12})
    thirds = Sharding(mesh, (DimSharding((AxisRef("x", 1, 3),)),))
    table = AxisTable(mesh, (thirds,))
    assert table.extents == [3, 2, 2]
    assert table.from_sharding(thirds).dims == ((0,),)


def test_cuts_that_cross_are_an_error() -> None:
    mesh = Mesh({"x": 6})
    crossing = [Sharding(mesh, (DimSharding((AxisRef("x", 1, n),)),)) for n in (2, 3)]
    with pytest.raises(UnsupportedError, match="split axis 'x'"):
        AxisTable(mesh, crossing)


def test_equal_layouts_are_one_object() -> None:
    mesh = Mesh({"x": 2, "y": 2})
    table = AxisTable(mesh)
    a, b = (table.from_sharding(layout(mesh, "x", None, unreduced="y")) for _ in range(2))
    assert a is b
    assert table.reduced(a) is table.from_sharding(layout(mesh, "x", None))
    assert table.layout(a.dims, (), "max") is table.layout(a.dims)


def test_round_trip_of_random_shardings() -> None:
    rng = random.Random(0)
    mesh = Mesh({"x": 2, "y": 4, "z": 3})
    for _ in range(200):
        s = random_sharding(rng, mesh, 3)
        table = AxisTable(mesh, (s,))
        assert table.to_sharding(table.from_sharding(s)) == s.as_layout
        assert table.local_dims(table.from_sharding(s), (7, 8, 9)) == s.local_dims((7, 8, 9))


def test_other_and_maximal_meshes_are_named_in_errors() -> None:
    mesh = Mesh({"x": 2})
    table = AxisTable(mesh)
    with pytest.raises(UnsupportedError, match="one device"):
        table.from_sharding(Sharding(Mesh((), (0,)), ()), "%a")
    with pytest.raises(UnsupportedError, match="over mesh"):
        table.from_sharding(layout(Mesh({"y": 2}), "y"), "%a")
    assert table.from_sharding(Sharding(mesh, (DimSharding(),), manual=("x",))) is table.replicated(1)
    assert axis("x:(1)2") == AxisRef("x", 1, 2)
