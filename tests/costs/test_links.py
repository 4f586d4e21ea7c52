"""Closed formulas of collectives against messages over single links, bounds that nothing beats, and placements."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from link_oracle import Network, axes_gather, doubling_gather, groups_at, rail_rings, ring_gather

import shardc
from shardc.costs.machines.level import Level
from shardc.costs.machines.machine import Machine, load_machine, placed_machine
from shardc.costs.network.collective_cost import Estimate, collective_cost
from shardc.costs.network.mapping import candidates, place, search
from shardc.costs.network.placement import Placement
from shardc.demo.guide import write_guide_files
from shardc.hlo.errors import AnnotationError, InputError
from shardc.hlo.ir.groups import AxisGroups, AxisPairs, IotaGroups, ListGroups, ListPairs
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef

DEVICE = load_machine("host").device
OPCODES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")


def torus(*shape: int, wrap: str = "all") -> Machine:
    levels = (Level("torus", math.prod(shape), "torus", 10.0, 0.5, slices=(shape,), wrap=wrap),)
    return Machine("made", DEVICE, (*levels, Level("dcn", 0, "switch", 3.0, 2.0)))


def nodes(inner: int) -> Machine:
    return Machine("made", DEVICE, (Level("near", inner, "switch", 10.0, 0.5), Level("far", 0, "switch", 3.0, 2.0)))


def over(mesh: Mesh, *axes: str) -> AxisGroups:
    return AxisGroups(mesh, tuple(AxisRef(a) for a in axes))


def laws(placement: Placement, opcode: str, groups: AxisGroups | AxisPairs) -> dict[str, Estimate]:
    """What each algorithm takes for a byte."""
    collective_cost(placement, opcode, 1.0, groups)
    choice = placement.memory[opcode, groups]
    return {law.algorithm: Estimate(law.start + law.per_byte, law.algorithm, (), law.sent) for law in choice.laws}


def per_byte(placement: Placement, opcode: str, groups: AxisGroups | AxisPairs, algorithm: str) -> float:
    collective_cost(placement, opcode, 1.0, groups)
    return next(law.per_byte for law in placement.memory[opcode, groups].laws if law.algorithm == algorithm)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 9), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_rings_and_lines(members: int, between: int, outside: int, wrap: bool) -> None:
    """All groups of an axis at once, with others between the members and beyond them."""
    mesh = Mesh({"o": outside, "g": members, "b": between})
    machine = torus(mesh.size, wrap="all" if wrap else "none")
    placement = place(machine, mesh)
    groups = over(mesh, "g")
    around = wrap and outside == 1 and mesh.size > 2
    network = Network(placement.links)
    ring_gather(network, groups_at(placement, groups.expand()), 12.0, around=around)
    assert collective_cost(placement, "all-gather", 12.0, groups).seconds == pytest.approx(network.seconds)


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 13))
def test_doubling_through_a_switch(members: int) -> None:
    mesh = Mesh({"x": members})
    placement = place(nodes(members), mesh)
    network = Network(placement.links)
    doubling_gather(network, groups_at(placement, over(mesh, "x").expand())[0], 12.0)
    assert collective_cost(placement, "all-gather", 12.0, over(mesh, "x")).seconds == pytest.approx(network.seconds)


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 6), st.integers(2, 6))
def test_rings_through_all_ports(inner: int, outer: int) -> None:
    mesh = Mesh({"x": inner * outer})
    placement = place(nodes(inner), mesh)
    network = Network(placement.links)
    (group,) = groups_at(placement, over(mesh, "x").expand())
    rail_rings(network, [group[n * inner : (n + 1) * inner] for n in range(outer)], 1.0)
    assert per_byte(placement, "all-gather", over(mesh, "x"), "ring") == pytest.approx(network.busiest(network.total))


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(2, 4), min_size=2, max_size=3), st.booleans())
def test_shares_around_all_dimensions(shape: list[int], wrap: bool) -> None:
    """As good as equal shares in cyclic orders, and no better than what a device's links let in."""
    mesh = Mesh({"x": math.prod(shape)})
    placement = place(torus(*shape, wrap="all" if wrap else "none"), mesh)
    groups = groups_at(placement, over(mesh, "x").expand())
    dims = [n for n, x in enumerate(placement.links) if x.torus]
    network = Network(placement.links)
    for first in range(len(dims)):
        axes_gather(network, groups, 1.0 / len(dims), dims[first:] + dims[:first])
    found = per_byte(placement, "all-gather", over(mesh, "x"), "multi-axis torus")
    even = network.busiest(network.total)
    ports = sum(2 if placement.links[d].around else 1 for d in dims) * 10.0
    assert (1 - 1 / mesh.size) / ports <= found * (1 + 1e-9)
    assert found <= even * (1 + 1e-9)
    if len(set(shape)) == 1:
        assert found == pytest.approx(even) == pytest.approx((1 - 1 / mesh.size) / ports)


MESHES = st.lists(st.sampled_from([2, 2, 3, 4]), min_size=1, max_size=3)


@settings(deadline=None, max_examples=30)
@given(MESHES, st.data())
def test_exchanges_on_a_torus(sizes: list[int], data: st.DataObject) -> None:
    mesh = Mesh({f"a{n}": s for n, s in enumerate(sizes)})
    wrap = data.draw(st.sampled_from(["all", "none"]))
    shape = tuple(sizes) if data.draw(st.booleans()) else (mesh.size,)
    placement = place(torus(*shape, wrap=wrap), mesh)
    axes = data.draw(st.lists(st.sampled_from(mesh.axis_names), min_size=1, unique=True))
    groups = over(mesh, *sorted(axes))
    parts = placement.parts(groups)
    network = Network(placement.links)
    size = groups.group_size
    network.round(
        (a, b, 1 / size) for g in groups_at(placement, groups.expand()) for a, b in itertools.permutations(g, 2)
    )
    found = per_byte(placement, "all-to-all", groups, "direct exchange")
    busiest = network.busiest(network.total)
    # Members that lie unevenly are counted as if they lay as far apart everywhere.
    assert found >= busiest * (1 - 1e-9)
    if len(parts) == len(shape) == len(axes):
        assert found == pytest.approx(busiest)


@settings(deadline=None, max_examples=30)
@given(MESHES, st.data())
def test_permutes_take_the_busiest_link(sizes: list[int], data: st.DataObject) -> None:
    """One group's messages stand for those of all groups, which share the links."""
    mesh = Mesh({f"a{n}": s for n, s in enumerate(sizes)})
    inner = sizes[-1]
    machine = data.draw(st.sampled_from([torus(*sizes), torus(*sizes, wrap="none"), nodes(inner)]))
    placement = place(machine, mesh)
    axis = data.draw(st.sampled_from(mesh.axis_names))
    n = mesh.axis_size(axis)
    targets = data.draw(st.permutations(range(n)))
    pairs = AxisPairs(mesh, (AxisRef(axis),), tuple(enumerate(targets)))
    found = collective_cost(placement, "collective-permute", 7.0, pairs)
    listed = collective_cost(placement, "collective-permute", 7.0, ListPairs(pairs.expand()))
    assert found.seconds == pytest.approx(listed.seconds)
    assert {x.resource: x.seconds for x in found.loads} == pytest.approx({x.resource: x.seconds for x in listed.loads})
    moved = [placement.coordinates(pair) for pair in pairs.expand() if pair[0] != pair[1]]
    if not moved:
        assert found.seconds == 0
        assert not found.loads
        return
    network = Network(placement.links)
    network.round((a, b, 7.0) for a, b in moved)
    assert found.seconds >= network.seconds * (1 - 1e-9)
    if all(len(network.routes(a, b)) == 1 for a, b in moved) and not _mixed(placement, moved):
        assert found.seconds == pytest.approx(network.seconds)


def _mixed(placement: Placement, moved: list[list[tuple[int, ...]]]) -> bool:
    """Do some messages leave their node and others not? Slowest and busiest are then not the same ones."""
    apart = {tuple(x.level for x, p, q in zip(placement.links, a, b, strict=True) if p != q)[-1] for a, b in moved}
    return len(apart) > 1


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(["h100-dgx", "gb200-nvl72", "tpu-v4", "tpu-v5e", "tpu-v5p:2x64", "tpu-v5p", "host"]),
    st.sampled_from([(8, 16), (2, 64), (4, 4, 8), (128,), (2, 2, 32)]),
    st.sampled_from(OPCODES),
    st.data(),
)
def test_bounds(machine: str, sizes: tuple[int, ...], opcode: str, data: st.DataObject) -> None:
    """More bytes never take less time; a device's ports and the links between halves are never beaten; no links work
    longer than it takes."""
    mesh = Mesh({f"a{n}": s for n, s in enumerate(sizes)})
    placement = place(load_machine(machine), mesh)
    groups = over(mesh, *data.draw(st.lists(st.sampled_from(mesh.axis_names), min_size=1, unique=True)))
    g = groups.group_size
    costs = [collective_cost(placement, opcode, n, groups) for n in (1.0, 1e3, 1e6, 1e9)]
    seconds = [c.seconds for c in costs]
    assert seconds == sorted(seconds)
    for c in costs:
        assert c.seconds > 0
        assert all(0 < load.seconds <= c.seconds * (1 + 1e-9) for load in c.loads)
    whole = 1e9 * (g if opcode == "reduce-scatter" else 1)
    moved = {"all-reduce": 2 * (g - 1) / g, "collective-permute": 1.0, "collective-broadcast": 1.0}
    arriving = whole * moved.get(opcode, (g - 1) / g)
    ports = sum(x.bandwidth * len(x.resources) for x in placement.links if x.size > 1)
    if opcode != "all-reduce" or costs[-1].algorithm != "recursive doubling":
        assert costs[-1].seconds >= arriving / ports * (1 - 1e-9)
    if opcode == "collective-permute":
        return
    for p in placement.parts(groups):
        # Every byte of one side of a cut of this dimension that the other side needs goes over its links.
        low, high = p.members // 2, p.members - p.members // 2
        lines = g // p.members
        links = (2 if p.around else 1) / p.shared * lines if p.links.torus else min(low, high) * lines
        half = whole * low / p.members
        needed = {"all-to-all": half * lines * high / p.members * p.members, "collective-broadcast": whole}
        crossing = needed.get(opcode, half * (2 if opcode == "all-reduce" else 1))
        if p.links is placement.parts(groups)[-1].links or p.links.torus:
            assert costs[-1].seconds >= crossing / (links * p.links.bandwidth) * (1 - 1e-9) / (
                g / p.members if opcode == "all-to-all" else 1
            )


def test_more_members_of_a_switch_never_take_less() -> None:
    for opcode in OPCODES[:4]:
        row = []
        for n in (2, 4, 8, 16, 64):
            mesh = Mesh({"x": n})
            row.append(collective_cost(place(load_machine("h100-dgx"), mesh), opcode, 1e6, over(mesh, "x")).seconds)
        assert row == sorted(row), opcode


@pytest.mark.parametrize(
    ("name", "devices", "shape"),
    [
        ("tpu-v5p", 64, "4x4x4"),
        ("tpu-v5p", 128, "4x4x8"),
        ("tpu-v5p", 256, "4x8x8"),
        ("tpu-v5p", 512, "8x8x8"),
        ("tpu-v5p", 1024, "8x8x16"),
        ("tpu-v5p", 2048, "8x16x16"),
        ("tpu-v5p", 6144, "16x16x24"),
        ("tpu-v4", 192, "4x4x12"),
        ("tpu-v5e", 128, "8x16"),
        ("tpu-v3", 1024, "32x32"),
    ],
)
def test_slices_are_those_of_the_documentation(name: str, devices: int, shape: str) -> None:
    mesh = Mesh({"x": devices})
    placement = place(load_machine(name), mesh)
    assert placement.title == f"{name}:{devices} ({shape})"
    around = {x.size for x in placement.links if x.around}
    assert around == {"tpu-v5e": {16}, "tpu-v3": {32}}.get(name, set(map(int, shape.split("x"))))
    assert place(load_machine(f"{name}:{devices}"), mesh) == replace(
        placement, machine=replace(placement.machine, counts=(devices,))
    )


def test_small_slices_have_ends() -> None:
    for name, n in (("tpu-v5p", 32), ("tpu-v4", 4), ("tpu-v5e", 64)):
        assert not any(x.around for x in place(load_machine(name), Mesh({"x": n})).links)


def test_slices_are_joined_by_the_network_of_the_data_centre() -> None:
    mesh = Mesh({"data": 2, "fsdp": 16, "tensor": 4})
    placement = place(load_machine("tpu-v5p:2x64"), mesh)
    assert placement.title == "tpu-v5p:2x64 (4x4x4)"
    assert placement.describe() == {"data": "dcn", "fsdp": "torus x,y", "tensor": "torus z"}
    whole = collective_cost(placement, "all-reduce", 1e9, over(mesh, "data", "fsdp"))
    assert whole.algorithm == "hierarchical"
    assert set(whole.link_bytes) == {"torus x", "torus y", "dcn"}
    # A sixteenth of it is all that has to leave a slice.
    assert whole.link_bytes["dcn"] == pytest.approx(1e9 / 16)
    one = place(load_machine("tpu-v5p:128"), mesh)
    assert collective_cost(one, "all-reduce", 1e9, over(mesh, "data")).seconds < 0.2
    assert place(load_machine("tpu-v5e"), Mesh({"x": 512})).title == "tpu-v5e:2x256 (16x16)"


def test_axes_get_whole_dimensions_where_they_can() -> None:
    found = {}
    for mesh in ({"fsdp": 32, "tensor": 4}, {"data": 16, "fsdp": 8, "tensor": 8}, {"a": 2, "b": 32, "c": 2}):
        found[tuple(mesh)] = place(load_machine("tpu-v5p"), Mesh(mesh)).describe()
    assert found["fsdp", "tensor"] == {"fsdp": "torus x,z", "tensor": "torus y"}
    assert found["data", "fsdp", "tensor"] == {"data": "torus z", "fsdp": "torus x", "tensor": "torus y"}
    assert found["a", "b", "c"]["b"] == "torus x (2 of 4),y,z (4 of 8)"


def test_axes_over_two_levels_and_nodes_that_are_not_full() -> None:
    two = place(load_machine("h100-dgx"), Mesh({"data": 64}))
    assert two.describe() == {"data": "infiniband + nvlink"}
    assert [(p.links.name, p.members) for p in two.parts(over(two.mesh, "data"))] == [("nvlink", 8), ("infiniband", 8)]
    half = place(load_machine("h100-dgx:12"), Mesh({"data": 3, "model": 4}))
    assert [(x.name, x.size) for x in half.links] == [("nvlink", 4), ("infiniband", 3)]
    assert [x.size for x in place(load_machine("h100-dgx"), Mesh({"x": 11})).links] == [1, 11]
    assert [x.size for x in place(load_machine("h100-dgx:4x4"), Mesh({"x": 16})).links] == [4, 4]


def test_given_mappings() -> None:
    machine, mesh = load_machine("tpu-v5p:2x64"), Mesh({"data": 2, "fsdp": 16, "tensor": 4})
    given = place(machine, mesh, "data=dcn,fsdp=z+x,tensor=y")
    assert given.describe() == {"data": "dcn", "fsdp": "torus z,x", "tensor": "torus y"}
    rest = place(machine, mesh, {"tensor": "x"})
    assert rest.describe()["tensor"] == "torus x"
    swapped = place(load_machine("h100-dgx"), Mesh({"a": 8, "b": 8}), "b,a")
    assert swapped.describe() == {"a": "nvlink", "b": "infiniband"}
    cut = place(load_machine("h100-dgx"), Mesh({"a": 16, "b": 4}), "a=infiniband+nvlink,b=nvlink")
    assert cut.describe() == {"a": "infiniband + nvlink (2 of 8)", "b": "nvlink (4 of 8)"}
    # Where a device is follows from it.
    assert swapped.coordinates([1, 8]) == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("machine", "mesh", "mapping", "text"),
    [
        ("h100-dgx:64", {"x": 32}, None, "64 devices, but the mesh has 32"),
        ("tpu-v5p", {"x": 5}, None, "no slice of 5 devices"),
        ("tpu-v5p", {"x": 80}, None, r"64 \(4x4x4\)"),
        ("tpu-v5p:4x4x6", {"x": 96}, None, "no slice 4x4x6"),
        ("tpu-v5e:3x64", {"x": 128}, None, "192 devices"),
        ("h100-dgx:16x4", {"x": 64}, "x=ici", "no links called 'ici'"),
        ("h100-dgx:2x32", {"x": 64}, None, "connects 8 devices by nvlink, not 32"),
        ("h100-dgx:2x2x2x8", {"x": 64}, None, "4 counts for 2 levels"),
        (
            "h100-dgx",
            {"a": 8, "b": 8},
            "a=nvlink,b=nvlink",
            r"of 8 does not fit on nvlink \(8\) of h100-dgx beside b \(8\)",
        ),
        ("h100-dgx", {"a": 8, "b": 8}, "a=nvlink,b", "neither an order"),
        ("h100-dgx", {"a": 8, "b": 8}, "a=nvlink,a=infiniband", "neither an order"),
        ("h100-dgx", {"a": 2, "b": 2}, "a=infiniband", "or name a machine of 2 groups of 2: h100-dgx:2x2"),
        ("h100-dgx:0", {"a": 1}, None, "no devices"),
    ],
)
def test_what_does_not_fit_is_told_with_numbers(machine: str, mesh: dict[str, int], mapping: str, text: str) -> None:
    with pytest.raises(InputError) as told:
        place(load_machine(machine), Mesh(mesh), mapping)
    assert re.search(text, f"{told.value} {told.value.fix}")


def test_unknown_axes_of_a_mapping() -> None:
    with pytest.raises(AnnotationError, match="no axis 'model'"):
        place(load_machine("h100-dgx"), Mesh({"a": 8}), "model=nvlink")


def test_sub_axes_and_listed_groups_lie_as_whole_ones_do() -> None:
    mesh = Mesh({"a": 4, "b": 16})
    placement = place(load_machine("tpu-v4"), mesh)
    for axes in ((AxisRef("b", 1, 4),), (AxisRef("b", 4, 4),), (AxisRef("a"), AxisRef("b", 2, 4)), (AxisRef("a"),)):
        groups = AxisGroups(mesh, axes)
        listed = ListGroups(groups.expand())
        assert placement.parts(groups) == placement.parts(listed), axes
    assert placement.parts(IotaGroups(4, 16, (64,))) == placement.parts(over(mesh, "b"))
    assert placement.parts(None) == placement.parts(over(mesh, "a", "b"))
    assert placement.parts(((0, 1, 2, 5),))[0].members >= 3
    assert placement.parts(((3,),)) == ()
    assert collective_cost(placement, "all-reduce", 1e6, ((3,),)).seconds == 0


def test_axes_cut_where_the_machine_is_not() -> None:
    """Six positions along nodes of four: the sub-axis of three meets in and between nodes."""
    mesh = Mesh({"a": 6, "b": 4})
    placement = place(load_machine("h100-dgx"), mesh)
    assert [(x.name, x.size) for x in placement.links] == [("nvlink", 8), ("infiniband", 3)]
    odd = AxisGroups(mesh, (AxisRef("a", 2, 3),))
    assert math.prod(p.members for p in placement.parts(odd)) >= 3
    assert collective_cost(placement, "all-gather", 1e6, odd).seconds > 0


def test_devices_of_a_mesh_in_another_order() -> None:
    mesh = Mesh({"a": 2, "b": 8}, device_ids=tuple(i % 2 * 8 + i // 2 for i in range(16)))
    placement = place(load_machine("h100-dgx"), mesh)
    assert placement.parts(ListGroups(over(mesh, "b").expand())) == placement.parts(over(mesh, "b"))


def test_disjoint_dimensions_do_not_meet() -> None:
    mesh = Mesh({"a": 4, "b": 4, "c": 4})
    placement = place(load_machine("tpu-v5p"), mesh)
    a, b, ab = (
        {load.resource for load in collective_cost(placement, "all-gather", 1e9, over(mesh, *axes)).loads}
        for axes in ("a", "b", "ab")
    )
    assert not a & b
    assert a | b == ab
    ahead, back = (
        {
            x.resource
            for x in collective_cost(placement, "collective-permute", 1e9, AxisPairs(mesh, (AxisRef("a"),), p)).loads
        }
        for p in (((0, 1), (1, 2), (2, 3), (3, 0)), ((0, 3), (3, 2), (2, 1), (1, 0)))
    )
    assert ahead == {"torus x+"}
    assert back == {"torus x-"}


def test_the_best_mapping_puts_what_talks_most_on_the_fastest_links() -> None:
    machine, mesh = load_machine("h100-dgx"), Mesh({"model": 8, "data": 8})
    placements = list(candidates(machine, mesh))
    assert placements[0] == place(machine, mesh)
    assert len(placements) == 2

    def seconds(p: Placement) -> float:
        return collective_cost(p, "all-reduce", 1e9, over(mesh, "model")).seconds

    assert search(machine, mesh, seconds).describe() == {"model": "nvlink", "data": "infiniband"}
    assert search(machine, mesh, lambda p: 0.0) == placements[0]


@pytest.mark.parametrize("members", [2, 4, 8, 16])
def test_small_sums_and_exchanges_through_a_switch(members: int) -> None:
    """Everybody swaps all that it has with partners at distances 1, 2, 4, ...; or one piece with each other one."""
    mesh = Mesh({"x": members})
    placement = place(nodes(members), mesh)
    groups = over(mesh, "x")
    (group,) = groups_at(placement, groups.expand())
    doubling, pairwise = Network(placement.links), Network(placement.links)
    have = [{k} for k in range(members)]
    distance = 1
    while distance < members:
        doubling.round((group[k], group[k ^ distance], 1.0) for k in range(members))
        have = [have[k] | have[k ^ distance] for k in range(members)]
        distance *= 2
    assert all(len(h) == members for h in have)
    for step in range(1, members):
        pairwise.round((group[k], group[(k + step) % members], 1 / members) for k in range(members))
    found = laws(placement, "all-reduce", groups) | laws(placement, "all-to-all", groups)
    assert found["recursive doubling"].seconds == pytest.approx(doubling.seconds)
    assert found["pairwise exchange"].seconds == pytest.approx(pairwise.seconds)


def test_places_behind_a_switch_are_alike() -> None:
    """Of the 720 orders of six axes of two, three of them in a node, twenty differ; the default one comes first."""
    mesh = Mesh(dict.fromkeys("abcdef", 2))
    found = list(candidates(load_machine("h100-dgx"), mesh))
    assert found[0] == place(load_machine("h100-dgx"), mesh)
    assert len(found) == math.comb(6, 3)
    inner = {frozenset(a for a, on in p.describe().items() if on.startswith("nvlink")) for p in found}
    assert len(inner) == len(found)


def test_a_mapping_with_an_unknown_word_names_the_ways_out() -> None:
    with pytest.raises(AnnotationError, match="no axis 'serach'") as caught:
        place(load_machine("h100-dgx:8"), Mesh({"data": 8}), "serach")
    assert '"search"' in str(caught.value.fix)


def test_a_machine_may_say_where_axes_lie() -> None:
    mesh = Mesh({"a": 8, "b": 8})
    swapped = place(load_machine("h100-dgx"), mesh, "b,a")
    assert place(load_machine("h100-dgx@b,a"), mesh).pieces == swapped.pieces
    assert place(load_machine("h100-dgx:64@a=nvlink"), mesh).describe() == swapped.describe()
    assert place(load_machine("h100-dgx"), mesh, ["b", "a"]) == swapped
    assert place(load_machine("h100-dgx@b,a"), mesh, "a,b").pieces == place(load_machine("h100-dgx"), mesh).pieces
    with pytest.raises(InputError, match=r"a mapping is an int"):
        place(load_machine("h100-dgx"), mesh, 5)  # type: ignore[arg-type]
    for name in ("h100@b,a", "h100-dgx@"):
        with pytest.raises(InputError, match="no machine"):
            load_machine(name)


def test_a_placed_machine_is_a_machine_again() -> None:
    assert placed_machine("h100-dgx:64", "b,a") == "h100-dgx:64@b,a"
    assert placed_machine("h100-dgx@a,b", {"a": "nvlink"}) == "h100-dgx@a=nvlink"
    assert placed_machine("h100-dgx", "search") == placed_machine("h100-dgx", None) == "h100-dgx"
    assert placed_machine(None, "b,a") is None


def test_programs_are_partitioned_for_their_placement(tmp_path: Path) -> None:
    """The same devices on the same links, by names or by order: the same step."""
    path, *_ = (p for p in write_guide_files(tmp_path) if p.suffix == ".mlir")
    program = shardc.load(path)
    swapped = program.annotate({}, mesh={"data": 8, "model": 8})
    other = program.annotate({}, mesh=Mesh({"model": 8, "data": 8}))
    wanted = other.simulate("h100-dgx").step_seconds
    assert swapped.simulate("h100-dgx", mapping="model,data").step_seconds == wanted
    assert swapped.simulate("h100-dgx@model,data").step_seconds == wanted
    assert swapped.simulate("h100-dgx").step_seconds != wanted
