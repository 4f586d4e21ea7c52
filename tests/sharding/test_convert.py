"""Tile assignments to axes and back, judged by which device holds which tile."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.build import Builder, make_module
from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir import Module
from shardc.hlo.mesh import Mesh
from shardc.hlo.sharding import AxisRef, DimSharding, Sharding, TileSharding
from shardc.hlo.types import array_shape
from shardc.sharding.axes import axis_range
from shardc.sharding.convert import from_tile, to_tile, with_axis_shardings
from shardc.sharding.tiles import device_list


def tiles_by_device(s: Sharding) -> list[tuple[int, ...]]:
    """For each device its tile index along every dimension."""
    out = []
    for device in range(s.mesh.size):
        at = s.mesh.coordinates(device)
        index = []
        for d in s.dims:
            n = 0
            for a in d.axes:
                low, high = axis_range(a, s.mesh)
                n = n * (high // low) + at[a.name] // (s.mesh.axis_size(a.name) // high) % (high // low)
            index.append(n)
        out.append(tuple(index))
    return out


def tiles_by_device_of_tile(t: TileSharding, rank: int) -> list[tuple[int, ...]]:
    if t.kind == "replicated":
        return []
    grid = device_list(t).reshape(t.tile)
    out: dict[int, tuple[int, ...]] = {}
    for index in itertools.product(*(range(n) for n in t.tile)):
        out[int(grid[index])] = index[:rank]
    return [out[d] for d in range(len(out))]


MESHES = [
    Mesh({"a": 2, "b": 4}),
    Mesh({"a": 4, "b": 2, "c": 3}),
    Mesh({"a": 8}),
    Mesh({"a": 2, "one": 1, "b": 2}),
    Mesh({"a": 2, "b": 2}, device_ids=(0, 3, 1, 2)),
]


@st.composite
def shardings(draw: st.DrawFn) -> Sharding:
    mesh = draw(st.sampled_from(MESHES))
    atoms: list[AxisRef] = []
    for name, size in mesh.axes:
        if size == 8 and draw(st.booleans()):
            atoms += [AxisRef(name, 1, 2), AxisRef(name, 2, 4)]
        elif size > 1:
            atoms.append(AxisRef(name))
    order = draw(st.permutations(atoms))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), min_size=3, max_size=3)))
    parts = [order[: cuts[0]], order[cuts[0] : cuts[1]], order[cuts[1] : cuts[2]]]
    return Sharding(mesh, tuple(DimSharding(tuple(p)) for p in parts))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(shardings())
def test_to_tile_and_back(s: Sharding) -> None:
    tile = to_tile(s)
    if tile.kind == "replicated":
        assert s.is_replicated
    else:
        assert tiles_by_device_of_tile(tile, s.rank) == tiles_by_device(s)
    back = from_tile(tile, s.mesh, s.rank)
    assert back is not None
    assert tiles_by_device(back) == tiles_by_device(s)
    assert (tile.devices != ()) == (s.mesh.device_ids is not None and tile.kind == "tiled")


@settings(max_examples=100, deadline=None, derandomize=True)
@given(shardings())
def test_explicit_lists_are_recognised(s: Sharding) -> None:
    tile = to_tile(s)
    if tile.kind != "tiled" or s.mesh.device_ids is not None:
        return
    listed = TileSharding(
        "tiled", tile.tile, tuple(int(d) for d in device_list(tile)), subgroups=tile.subgroups,
        last_tile_dim_replicate=tile.last_tile_dim_replicate,
    )  # fmt: skip
    back = from_tile(listed, s.mesh, s.rank)
    assert back is not None
    assert tiles_by_device(back) == tiles_by_device(s)


def program(*written: Any, num_partitions: int = 1, dims: tuple[int, ...] = (8, 8)) -> Module:
    b = Builder("main")
    values = [b.parameter(array_shape("f32", *dims), f"p{n}", sharding=s) for n, s in enumerate(written)]
    root = values[0]
    for v in values[1:]:
        root = b.add("add", root, v)
    return make_module("m", b.build(root), num_partitions=num_partitions)


def v2(tile: tuple[int, ...], reshape: tuple[int, ...], transpose: tuple[int, ...] = (), last: bool = False) -> Any:
    groups = ("replicated",) if last else ()
    return TileSharding("tiled", tile, (), reshape, transpose, groups, last)


def test_one_mesh_for_all_shardings_of_a_module() -> None:
    m = with_axis_shardings(
        program(
            v2((2, 4), (8,)), v2((8, 1), (8,)), v2((4, 1, 2), (2, 4), (1, 0), last=True), TileSharding("replicated")
        )
    )
    assert m.mesh == Mesh({"axis_0": 2, "axis_1": 4})
    assert m.num_partitions == 8
    shown = [str(p.sharding) for p in m.parameters]
    assert shown == ["[{axis_0}, {axis_1}]", "[{axis_0, axis_1}, {}]", "[{axis_1}, {}]", "[{}, {}]"]


def test_explicit_list_in_another_order_becomes_device_ids() -> None:
    tile = TileSharding("tiled", (4, 1), (0, 1, 3, 2))
    m = with_axis_shardings(program(tile))
    assert m.mesh is not None
    assert m.mesh.device_ids == (0, 1, 3, 2)
    assert tiles_by_device(m.parameters[0].axis_sharding) == tiles_by_device_of_tile(tile, 2)


def test_shardings_that_no_mesh_has_are_named() -> None:
    with pytest.raises(AnnotationError, match="no mesh can express both") as caught:
        with_axis_shardings(program(v2((2, 1, 3), (6,), last=True), v2((3, 1, 2), (6,), last=True)))
    assert "%p0" in str(caught.value)
    assert "%p1" in str(caught.value)


@pytest.mark.parametrize(
    ("tile", "message"),
    [
        (v2((2, 2, 2), (8,)), "3 dimensions"),
        (TileSharding("tiled", (2, 1), (0, 1)), "2 devices, but num_partitions is 8"),
    ],
)
def test_misfits(tile: TileSharding, message: str) -> None:
    with pytest.raises(AnnotationError, match=message):
        with_axis_shardings(program(tile, num_partitions=8))


def test_kinds_without_tiles() -> None:
    mesh = Mesh({"a": 2, "b": 2})
    assert from_tile(TileSharding("unknown"), mesh, 2) is None
    manual = from_tile(TileSharding("manual"), mesh, 2)
    assert manual is not None
    assert manual.manual == ("a", "b")
    assert to_tile(manual) == TileSharding("manual")
    maximal = from_tile(TileSharding("maximal", devices=(3,)), mesh, 1)
    assert maximal is not None
    assert to_tile(maximal) == TileSharding("maximal", devices=(3,))


def test_subgroups_convert_both_ways() -> None:
    mesh = Mesh({"a": 2, "b": 2, "c": 2})
    s = Sharding(mesh, (DimSharding((AxisRef("b"),)), DimSharding()), (), (AxisRef("a"),))
    tile = to_tile(s)
    assert tile.subgroups == ("unreduced", "replicated")
    assert math.prod(tile.tile) == 8
    back = from_tile(tile, mesh, 2)
    assert back is not None
    assert (back.dims, back.unreduced) == (s.dims, s.unreduced)


def test_unspecified_dimensions_of_a_constraint_are_open() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 8, 8), "x")
    c = b.add("custom-call", x, shape=x.shape, custom_call_target="Sharding", sharding=v2((2, 1), (2,)),
              backend_config="unspecified_dims=[1]")  # fmt: skip
    m = with_axis_shardings(make_module("m", b.build(c), num_partitions=2))
    assert [d.closed for d in m.entry.root.axis_sharding.dims] == [True, False]


def test_large_iota_stays_small() -> None:
    m = with_axis_shardings(program(v2((256, 16), (4096,)), dims=(512, 512)))
    assert m.mesh == Mesh({"axis_0": 256, "axis_1": 16})
    assert np.prod([s for _, s in m.mesh.axes]) == 4096
