"""Tile assignments to axes and back, judged by which device holds which tile."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding, TileSharding
from shardc.hlo.ir.types import array_shape
from shardc.hlo.text.notations.tiles import parse_sharding, print_sharding
from shardc.sharding.axes.device_orders import DEVICE_ORDERS
from shardc.sharding.axes.sub_axes import axis_range, minus
from shardc.sharding.axes.tile_ranges import device_list
from shardc.sharding.notations.tile_assignments import convert_to_axes, derive_mesh, from_tile, to_tile
from shardc.sharding.propagate import propagate


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


@dataclass(frozen=True)
class Meaning:
    """Per device its tile; and which devices hold parts of one sum, or differ in manual coordinates alone."""

    tiles: tuple[tuple[int, ...], ...]
    partial: frozenset[frozenset[int]]
    manual: frozenset[frozenset[int]]


def _digit(a: AxisRef, mesh: Mesh, at: Mapping[str, int]) -> int:
    low, high = axis_range(a, mesh)
    return at[a.name] // (mesh.axis_size(a.name) // high) % (high // low)


def meaning(s: Sharding) -> Meaning:
    mesh = s.mesh
    coordinates = [mesh.coordinates(d) for d in range(mesh.size)]

    def sets(axes: Sequence[AxisRef]) -> frozenset[frozenset[int]]:
        free = [tuple(_digit(a, mesh, at) for a in _rest(mesh, axes)) for at in coordinates]
        return frozenset(frozenset(d for d, f in enumerate(free) if f == one) for one in set(free))

    return Meaning(tuple(tiles_by_device(s)), sets(s.unreduced), sets([AxisRef(n) for n in s.manual]))


def _rest(mesh: Mesh, axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
    return minus(tuple(AxisRef(n) for n in mesh.axis_names), axes, mesh)


def meaning_of_tile(t: TileSharding, rank: int) -> Meaning:
    grid = device_list(t).reshape(t.tile)
    at = {int(grid[index]): index for index in itertools.product(*(range(n) for n in t.tile))}
    kinds = ("",) * rank + t.subgroups

    def sets(kind: str) -> frozenset[frozenset[int]]:
        free = {d: tuple(n for n, k in zip(i, kinds, strict=True) if k != kind) for d, i in at.items()}
        return frozenset(frozenset(d for d, f in free.items() if f == one) for one in set(free.values()))

    return Meaning(tuple(at[d][:rank] for d in range(len(at))), sets("unreduced"), sets("manual"))


@st.composite
def tile_assignments(draw: st.DrawFn) -> tuple[TileSharding, int]:
    """V2 assignments with any transposed iota, subgroups of every kind, often with uneven cuts of the iota."""
    reshape = tuple(draw(st.lists(st.sampled_from([1, 2, 2, 3, 4]), min_size=1, max_size=4)))
    total = math.prod(reshape)
    transpose = tuple(draw(st.permutations(range(len(reshape))))) if len(reshape) > 1 else ()
    groups = tuple(draw(st.lists(st.sampled_from(["manual", "unreduced", "replicated"]), max_size=3, unique=True)))
    order = [reshape[k] for k in transpose] if transpose else list(reshape)
    rank = draw(st.integers(0 if groups else 1, 3))
    cuts = sorted(
        draw(st.lists(st.integers(0, len(order)), min_size=rank + len(groups) - 1, max_size=rank + len(groups) - 1))
    )
    tile = tuple(math.prod(order[a:b]) for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True))
    assert math.prod(tile) == total
    return TileSharding("tiled", tile, (), reshape, transpose, groups, groups == ("replicated",)), rank


@settings(max_examples=300, deadline=None, derandomize=True)
@given(tile_assignments(), st.booleans())
def test_tiles_keep_their_meaning_through_a_derived_mesh(case: tuple[TileSharding, int], as_list: bool) -> None:
    """V2, and the same as V1, to axes of the mesh that fits, and back; printed and read in between."""
    tile, rank = case
    if as_list:
        tile = replace(tile, devices=tuple(int(d) for d in device_list(tile)), reshape=(), transpose=())
    wanted = meaning_of_tile(tile, rank)
    mesh = derive_mesh([(Builder("b").parameter(array_shape("f32", *[8] * rank)), tile)])
    s = from_tile(tile, mesh, rank)
    assert s is not None
    assert meaning(s) == wanted
    again = to_tile(s)
    if again.kind == "tiled":
        assert meaning_of_tile(again, rank) == wanted
        assert parse_sharding(print_sharding(s)) == again
    back = from_tile(again, mesh, rank)
    assert back is not None
    assert meaning(back) == wanted
    named = parse_sharding(print_sharding(s, named=True))
    assert isinstance(named, Sharding)
    assert meaning(named) == wanted


def test_a_manual_part_of_an_axis_is_an_error() -> None:
    tile = TileSharding("tiled", (2, 2), (), (4,), (), ("manual",))
    assert from_tile(tile, Mesh({"a": 2, "b": 2}), 1) is not None
    with pytest.raises(AnnotationError, match=r"manual over a:\(2\)2, a part of an axis"):
        from_tile(tile, Mesh({"a": 4}), 1)


@pytest.mark.parametrize("kind", ["max", "min", "sum"])
def test_reductions_survive(kind: str) -> None:
    mesh = Mesh({"a": 2, "b": 2})
    for unreduced in ((AxisRef("a"),), (AxisRef("a"), AxisRef("b"))):
        for rank in (0, 1):
            s = Sharding(mesh, (DimSharding(),) * rank, unreduced=unreduced, reduction=kind)
            assert from_tile(to_tile(s), mesh, rank) == s


def test_values_that_share_a_number_lie_alike() -> None:
    shared = TileSharding("unknown", suffix="shard_as 3")
    b = Builder("main")
    x = b.parameter(array_shape("f32", 8), "x", sharding=v2((4,), (4,)))
    y = b.parameter(array_shape("f32", 8), "y")
    given = [
        b.add("custom-call", v, shape=v.shape, custom_call_target="Sharding", sharding=shared, name=f"{v.name}.shared")
        for v in (x, y)
    ]
    module = make_module("m", b.build(b.add("tuple", *given)), num_partitions=4)
    propagated = propagate(module).module
    assert [str(p.sharding) for p in propagated.parameters] == ["[{axis_0}]", "[{axis_0}]"]
    alone = propagate(rebuild_module(module, lambda i, o: i.replace(operands=o, sharding=None)
                                     if i.sharding == shared else None))  # fmt: skip
    assert [str(p.sharding) for p in alone.module.parameters] == ["[{axis_0}]", "[{}]"]


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
    m = convert_to_axes(
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
    m = convert_to_axes(program(tile))
    assert m.mesh is not None
    assert m.mesh.device_ids == (0, 1, 3, 2)
    assert tiles_by_device(m.parameters[0].axis_sharding) == tiles_by_device_of_tile(tile, 2)


SIXTHS = v2((2, 1, 3), (6,), last=True), v2((3, 1, 2), (6,), last=True)


def test_of_two_shardings_that_no_mesh_has_the_second_gets_other_digits() -> None:
    m = convert_to_axes(program(*SIXTHS))
    assert m.mesh == Mesh({"axis_0": 2, "axis_1": 3})
    assert [str(p.sharding) for p in m.parameters] == ["[{axis_0}, {}]", "[{axis_1}, {}]"]
    # Position p has tile p % 3 for what device d has as tile d // 2; where both agree, nothing moves.
    assert m.attrs[DEVICE_ORDERS] == {("parameters", 1): (0, 2, 4, 1, 3, 5)}


def test_shardings_that_no_mesh_has_are_named_where_devices_can_tell() -> None:
    module = program(*SIXTHS)
    device = Instruction("partition-id", array_shape("u32"), (), name="device")
    entry = Computation("main", [*module.entry, device], module.entry.root)
    with pytest.raises(AnnotationError, match="no mesh can express both") as caught:
        convert_to_axes(module.with_(computations=(entry,), entry=entry))
    assert "%p0" in str(caught.value)
    assert "%p1" in str(caught.value)


def test_device_numbers_beyond_the_devices_are_named() -> None:
    with pytest.raises(AnnotationError, match="other devices than 0 to 1") as caught:
        convert_to_axes(program(TileSharding("tiled", (2, 1), (0, 1)), TileSharding("tiled", (2, 1), (0, 5))))
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
        convert_to_axes(program(tile, num_partitions=8))


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
    m = convert_to_axes(make_module("m", b.build(c), num_partitions=2))
    assert [d.closed for d in m.entry.root.axis_sharding.dims] == [True, False]


def test_large_iota_stays_small() -> None:
    m = convert_to_axes(program(v2((256, 16), (4096,)), dims=(512, 512)))
    assert m.mesh == Mesh({"axis_0": 256, "axis_1": 16})
    assert np.prod([s for _, s in m.mesh.axes]) == 4096
