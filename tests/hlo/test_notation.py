"""Shardings and groups as text: round trips, and that every notation means the same devices."""

from __future__ import annotations

import math
from importlib.metadata import version

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xla_judge import judge

from shardc.hlo.errors import Location, ParseError
from shardc.hlo.ir.groups import AxisGroups, AxisPairs, IotaGroups, ListGroups, ListPairs, groups_grid
from shardc.hlo.ir.iota import iota_of_devices
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding, TileSharding
from shardc.hlo.ir.types import array_shape
from shardc.hlo.text.notations.tiles import (
    parse_groups,
    parse_pairs,
    parse_sharding,
    print_groups,
    print_pairs,
    print_sharding,
    tile_reduction,
    tile_sharding,
)

JAXLIB = tuple(int(n) for n in version("jaxlib").split(".")[:2])
PROPERTY = settings(deadline=None, derandomize=True, max_examples=150)

TEXTS = [
    "{replicated}",
    "{manual}",
    "{unknown}",
    "{maximal device=3}",
    "{devices=[2,2]<=[4]}",
    "{devices=[4,2]<=[2,4]T(1,0)}",
    "{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
    "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}",
    "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}",
    "{devices=[4,1]3,1,2,0 shard_as 2}",
    '{devices=[4,1]<=[4] metadata={op_name="b"}}',
    "{unknown shard_like 1}",
    "{{replicated}, {devices=[2,2]<=[4]}, {maximal device=0}}",
    "{}",
]

NAMED = [
    "{mesh['x'=2,'y'=2], [{'x'}, {'y'}]}",
    "{mesh['x'=4,'y'=2], [{'x':(1)2, ?}, {'y'}], replicated={'x':(2)2}}",
    "{mesh['x'=2,'y'=2], device_ids=(3,2,1,0), [{'x'}, {}], replicated={'y'}}",
    "{mesh['x'=2,'y'=2], [{}, {?}], unreduced=max{'x'}, manual={'y'}}",
    "{single_device[device_id=3]}",
]


@pytest.mark.parametrize("text", TEXTS)
def test_tile_texts_print_as_they_were_read(text: str) -> None:
    assert print_sharding(parse_sharding(text)) == text


@pytest.mark.parametrize("text", NAMED)
def test_named_texts_print_as_they_were_read(text: str) -> None:
    assert print_sharding(parse_sharding(text, None, array_shape("f32", 8, 8)), named=True) == text


def test_xla_accepts_and_prints_the_same() -> None:
    module = "HloModule m, num_partitions=8\nENTRY e {{ ROOT p = {} parameter(0), sharding={} }}"
    shapes = {TEXTS[-2]: "(f32[8,8], f32[8,8], f32[8,8])", TEXTS[-1]: "()"}
    newer = ("unreduced=max", "single_device")  # spellings that came with 0.12
    spoken = [t for t in NAMED if JAXLIB >= (0, 12) or not any(n in t for n in newer)]
    texts = {t: module.format(shapes.get(t, "f32[8,8]"), t) for t in TEXTS + spoken}
    for text, verdict in judge(texts).items():
        assert verdict.accepted, (text, verdict.error)
        assert f"sharding={text}" in verdict.printed or "op_name" in text, verdict.printed


def test_other_spellings() -> None:
    whole = parse_sharding("{mesh['x'=2,'y'=2] manual}", None, array_shape("f32", 8))
    assert isinstance(whole, Sharding) and (whole.rank, whole.manual) == (1, ("x", "y"))
    unreduced = parse_sharding("{mesh['x'=2,'y'=2], unreduced=max}", None, array_shape("f32"))
    assert isinstance(unreduced, Sharding) and (len(unreduced.unreduced), unreduced.reduction) == (2, "max")
    ids = parse_sharding("{mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)), [{'x'}]}")
    assert isinstance(ids, Sharding) and ids.mesh.device_ids == (0, 2, 1, 3)
    priority = parse_sharding("{mesh['x'=2] [{'x', ?}p1]}")
    assert isinstance(priority, Sharding) and priority.dims == (DimSharding((AxisRef("x"),), False, 1),)


@pytest.mark.parametrize(
    "text",
    [
        "replicated",
        "{replicated",
        "{replicated} x",
        "{devices=[2,2]0,1,2}",
        "{devices=[2,2]<=[8]}",
        "{devices=[2,2]<=[2,2]}",
        "{devices=[2,2]<=[2,2]T(0,0)}",
        "{devices=[1]0}",
        "{devices=[2]0,0}",
        "{devices=[0,2]<=[0]}",
        "{devices=[2]<=[2] replicated}",
        "{devices=[2,2]<=[4] last_tile_dims={other}}",
        "{maximal}",
        "{nonsense}",
        "{mesh['x'=2], [{'y'}]}",
        "{mesh['x'=2,'x'=2], [{}]}",
        "{mesh['x'=4], [{'x':(3)2}]}",
        "{mesh['x'=4], [{'x'}, {'x':(1)2}]}",
        "{mesh['x'=2], device_ids=(0,0), [{}]}",
        "{mesh['x'=4], [{}], manual={'x':(1)2}}",
    ],
)
def test_malformed_shardings(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_sharding(text, Location("f.hlo", 3, 10))
    assert isinstance(caught.value.where, Location) and caught.value.where.line == 3


# --- meaning ------------------------------------------------------------------------------------------------


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=3))
    count = math.prod(sizes)
    ids = draw(st.none() | st.permutations(range(count)).map(tuple)) if count <= 24 else None
    return Mesh({f"a{i}": s for i, s in enumerate(sizes)}, ids)


def pieces(draw: st.DrawFn, mesh: Mesh) -> list[AxisRef]:
    """A random refinement of the mesh's axes into whole axes and sub-axes."""
    out: list[AxisRef] = []
    for name, size in mesh.axes:
        divisors = [d for d in range(2, size) if size % d == 0]
        if divisors and draw(st.booleans()):
            cut = draw(st.sampled_from(divisors))
            out += [AxisRef(name, 1, cut), AxisRef(name, cut, size // cut)]
        else:
            out.append(AxisRef(name))
    return list(draw(st.permutations(out)))


@st.composite
def shardings(draw: st.DrawFn) -> Sharding:
    mesh = draw(meshes())
    rank = draw(st.integers(0, 3))
    dims: list[list[AxisRef]] = [[] for _ in range(rank)]
    unreduced: list[AxisRef] = []
    for axis in pieces(draw, mesh):
        place = draw(st.integers(-2, rank - 1))
        if place >= 0:
            dims[place].append(axis)
        elif place == -2:
            unreduced.append(axis)
    opened = draw(st.lists(st.booleans(), min_size=rank, max_size=rank))
    return Sharding(
        mesh,
        tuple(DimSharding(tuple(axes), not is_open) for axes, is_open in zip(dims, opened, strict=True)),
        unreduced=tuple(unreduced),
        reduction=draw(st.sampled_from(["sum", "max"])) if unreduced else "sum",
    )


def position(sharding: Sharding, device: int, axes: tuple[AxisRef, ...]) -> int:
    """Number of the shard that a device holds along ``axes``, from its coordinates."""
    coordinates = sharding.mesh.coordinates(device)
    number = 0
    for a in axes:
        size = sharding.mesh.axis_size(a.name)
        pre, extent = (1, size) if a.is_full else (a.pre, a.size)
        number = number * extent + coordinates[a.name] // (size // (pre * extent)) % extent
    return number


def shards_of_tiles(tile: TileSharding, rank: int, devices: int) -> dict[int, tuple[int, ...]]:
    """Device -> shard numbers along the dimensions, then over the subgroup `unreduced`."""
    if tile.kind in ("replicated", "unreduced"):
        return dict.fromkeys(range(devices), (0,) * rank)
    flat = np.arange(math.prod(tile.tile))
    if tile.reshape:
        flat = flat.reshape(tile.reshape).transpose(tile.transpose or range(len(tile.reshape))).reshape(-1)
    else:
        flat = np.array(tile.devices)
    grid = flat.reshape(tile.tile)
    return {int(grid[i]): i[:rank] for i in np.ndindex(*grid.shape)}


@PROPERTY
@given(shardings())
def test_tiles_put_every_shard_where_the_axes_say(sharding: Sharding) -> None:
    tile = tile_sharding(sharding)
    found = shards_of_tiles(tile, sharding.rank, sharding.mesh.size)
    for device in range(sharding.mesh.size):
        assert found[device] == tuple(position(sharding, device, d.axes) for d in sharding.dims)
    text = print_sharding(sharding)
    assert parse_sharding(text) == tile
    if tile.kind != "replicated":
        assert tile_reduction(tile) == (sharding.reduction if sharding.unreduced else "sum")
    if tile.kind == "tiled" and "unreduced" in tile.subgroups:
        extent = math.prod(a.extent(sharding.mesh) for a in sharding.unreduced)
        assert tile.tile[sharding.rank + tile.subgroups.index("unreduced")] == extent


@PROPERTY
@given(shardings())
def test_named_mesh_text_keeps_everything_but_how_axes_are_cut(sharding: Sharding) -> None:
    text = print_sharding(sharding, named=True)
    back = parse_sharding(text, None, array_shape("f32", *[1] * sharding.rank))
    assert isinstance(back, Sharding)
    assert print_sharding(back, named=True) == text
    assert back.mesh == sharding.mesh
    assert [d.closed for d in back.dims] == [d.closed for d in sharding.dims]
    for device in range(sharding.mesh.size):
        for a, b in zip(back.dims, sharding.dims, strict=True):
            assert position(back, device, a.axes) == position(sharding, device, b.axes)


@st.composite
def axis_groups(draw: st.DrawFn) -> AxisGroups:
    mesh = draw(meshes())
    axes = pieces(draw, mesh)
    return AxisGroups(mesh, tuple(axes[: draw(st.integers(0, len(axes)))]))


@PROPERTY
@given(axis_groups())
def test_groups_over_axes_print_as_the_same_groups(groups: AxisGroups) -> None:
    text = print_groups(groups)
    assert sorted(parse_groups(text).expand()) == sorted(groups.expand())
    if groups.mesh.device_ids is None:
        assert "<=" in text


@PROPERTY
@given(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4), st.data())
def test_iotas_are_recovered_from_their_devices(reshape: list[int], data: st.DataObject) -> None:
    transpose = data.draw(st.permutations(range(len(reshape))))
    devices = np.arange(math.prod(reshape)).reshape(reshape).transpose(transpose).reshape(-1)
    form = iota_of_devices(devices.tolist())
    assert form is not None
    again = np.arange(devices.size).reshape(form.reshape).transpose(form.transpose or range(len(form.reshape)))
    assert (again.reshape(-1) == devices).all()


@PROPERTY
@given(st.integers(1, 6).flatmap(lambda n: st.permutations(range(n))))
def test_no_iota_is_invented(devices: list[int]) -> None:
    form = iota_of_devices(devices)
    if form is not None:
        again = np.arange(len(devices)).reshape(form.reshape).transpose(form.transpose or range(len(form.reshape)))
        assert again.reshape(-1).tolist() == devices


def test_explicit_groups_and_pairs() -> None:
    assert parse_groups("{ {0, 1}, {2} }") == ListGroups(((0, 1), (2,)))
    assert print_groups(ListGroups(())) == "{}"
    assert print_groups(IotaGroups(2, 4, (2, 4))) == "[2,4]<=[8]"
    assert parse_groups("mesh['x'=2,'y'=4] {'1'}") == AxisGroups(Mesh({"x": 2, "y": 4}), (AxisRef("y"),))
    assert parse_pairs("{{0,1},{1,0}}") == ListPairs(((0, 1), (1, 0)))
    pairs = AxisPairs(Mesh({"x": 2, "y": 2}), (AxisRef("x"),), ((0, 1),))
    assert print_pairs(pairs) == "{{0,2},{1,3}}"
    with pytest.raises(ParseError):
        parse_pairs("{{0,1,2}}")
    with pytest.raises(ParseError):
        parse_groups("[2,4]<=[9]")


def test_groups_of_many_devices_stay_small() -> None:
    mesh = Mesh({"data": 1024, "model": 1024})
    text = print_groups(AxisGroups(mesh, (AxisRef("data"),)))
    assert text == "[1024,1024]<=[1024,1024]T(1,0)"
    assert print_sharding(Sharding.of(mesh, "model", None)) == (
        "{devices=[1024,1,1024]<=[1024,1024]T(1,0) last_tile_dim_replicate}"
    )
    assert groups_grid(Mesh({"data": 2, "model": 2}), (AxisRef("data"),)).tolist() == [[0, 2], [1, 3]]
