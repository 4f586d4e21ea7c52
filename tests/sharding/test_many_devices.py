"""Tilings stay symbolic: millions of devices cost what four do; more than there are is an error with a line."""

from __future__ import annotations

import random
import time

import pytest

from shardc.costs.machines.machine import load_machine
from shardc.costs.network.mapping import place
from shardc.frontends.load import load_program
from shardc.hlo.errors import ShardcError
from shardc.hlo.ir.build import make_instruction
from shardc.hlo.ir.groups import IotaGroups, ListGroups
from shardc.hlo.ir.mesh import MOST_DEVICES, Mesh
from shardc.hlo.ir.types import array_shape
from shardc.hlo.text.notations.tiles import parse_groups
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify
from shardc.partitioner.emit.layout import AxisTable
from shardc.partitioner.rules.collective import axis_groups, named_groups

N = MOST_DEVICES


def program(sharding: str, header: str = "") -> str:
    return f"""HloModule m{header}

ENTRY %main {{
  %x = f32[{4 * N},8] parameter(0), sharding={sharding}
  %y = f32[8,8] dot(%x, %x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT %t = f32[8,8] tanh(%y)
}}
"""


TILINGS = [
    f"{{devices=[{N},1]<=[{N}]}}",
    "{devices=[4096,1,4096]<=[4096,4096]T(1,0) last_tile_dim_replicate}",
    f"{{devices=[1024,4,4096]<=[{N}] last_tile_dims={{replicated}}}}",
    "{mesh['a'=4096,'b'=4096], [{'b', 'a'}, {}]}",
    "{mesh['a'=4096,'b'=4096], [{'a':(1)128}, {}]}",
    "{mesh['a'=4096,'b'=4096], device_ids=([4096,4096]), [{'a'}, {}]}",
]


def test_a_prime_number_of_devices_takes_no_longer() -> None:
    start = time.monotonic()
    assert AxisTable(Mesh({"a": 16_777_213}), []).extents == [16_777_213]
    assert time.monotonic() - start < 0.5


def test_members_that_lie_unevenly_are_not_listed() -> None:
    placement = place(load_machine("h100-dgx"), Mesh({"a": 16_000_000}))
    with pytest.raises(ShardcError, match="16,000,000 devices one by one"):
        placement.parts_along(((1, 5), (5, 3_200_000)))


@pytest.mark.parametrize("sharding", TILINGS)
def test_a_tiling_is_never_listed(sharding: str) -> None:
    partitioned = load_program(program(sharding).encode(), "many.hlo").partition()
    assert partitioned.num_devices == N
    assert len(partitioned.as_text()) < 5000
    assert partitioned.report()["wire_bytes"] > 0


@pytest.mark.parametrize("sharding", [t.replace(str(N), str(1 << 40)).replace("4096", "1048576") for t in TILINGS])
def test_more_devices_than_there_are_have_a_place(sharding: str) -> None:
    with pytest.raises(ShardcError, match="devices") as caught:
        read_hlo(program(sharding), "many.hlo")
    assert "many.hlo:4" in str(caught.value.where)


@pytest.mark.parametrize("header", [f", num_partitions={1 << 40}", f", replica_count=4, num_partitions={1 << 30}"])
def test_more_partitions_than_there_are_have_a_place(header: str) -> None:
    with pytest.raises(ShardcError, match="devices") as caught:
        read_hlo(program("{replicated}", header), "many.hlo")
    assert "many.hlo:1" in str(caught.value.where)


def test_groups_are_bounded_too() -> None:
    with pytest.raises(ShardcError, match="devices"):
        parse_groups("[1048576,1048576]<=[1099511627776]")
    with pytest.raises(ShardcError, match="devices"):
        Mesh({"a": MOST_DEVICES, "b": 2})


def test_an_order_that_must_be_listed_is_refused_with_its_line() -> None:
    text = program("{mesh['a'=4096,'b'=4096], device_ids=([4096,4096]T(1,0)), [{'a'}, {}]}")
    with pytest.raises(ShardcError, match="one by one") as caught:
        read_hlo(text, "many.hlo")
    assert "many.hlo:4" in str(caught.value.where)


def test_groups_of_a_partitioned_program_stay_as_they_are() -> None:
    text = f"""HloModule m, num_partitions={N}

%add {{ %a = f32[] parameter(0)
 %b = f32[] parameter(1)
 ROOT %c = f32[] add(%a, %b) }}

ENTRY %main {{
  %x = f32[8,8] parameter(0), sharding={{manual}}
  ROOT %y = f32[8,8] all-reduce(%x), channel_id=1, use_global_device_ids=true,
    replica_groups=[4096,4096]<=[4096,4096]T(1,0), to_apply=%add, sharding={{manual}}
}}
"""
    verify(read_hlo(text))


def test_named_groups_are_those_that_listing_finds() -> None:
    found = 0
    for seed in range(200):
        r = random.Random(f"groups {seed}")
        sizes = [r.choice((2, 3, 4)) for _ in range(r.randint(1, 3))]
        mesh = Mesh({f"a{n}": size for n, size in enumerate(sizes)})
        order = r.sample(range(len(sizes)), len(sizes))
        reshape = tuple(sizes)
        cut = r.randint(0, len(sizes))
        members = 1
        for d in order[cut:]:
            members *= sizes[d]
        groups = IotaGroups(mesh.size // members, members, reshape, tuple(order) if len(sizes) > 1 else ())
        x = make_instruction("parameter", shape=array_shape("f32", 4), index=0)
        op = make_instruction("all-to-all", x, shape=x.shape, replica_groups=groups, channel_id=1, dimensions=(0,))
        named = named_groups(op, mesh)
        listed = axis_groups(mesh, ListGroups(groups.expand()).groups)
        if named is not None:
            found += 1
            assert sorted(named.expand()) == sorted(groups.expand()), seed
        assert listed is None or named is not None, seed
    assert found > 100
