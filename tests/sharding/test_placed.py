"""Values on one device that ask which device they are on."""

from __future__ import annotations

from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.sharding.prepare.broadcast_placed import BroadcastPlaced

MESH, ONE = Mesh({"x": 4}), Mesh((), (2,))


def program(*, asks: bool) -> Module:
    b = Builder("main")
    start = b.add("partition-id", shape=array_shape("u32")) if asks else b.parameter(array_shape("u32"))
    there = b.add("negate", start, shape=start.shape, sharding=Sharding(ONE, ()))
    return make_module("test", b.build(b.add("negate", there, shape=start.shape)), mesh=MESH)


def test_others_get_what_differs_from_its_device() -> None:
    root = BroadcastPlaced().run(program(asks=True)).entry.root
    (broadcast,) = root.operands
    assert broadcast.opcode == "collective-broadcast"
    assert broadcast.attrs["replica_groups"].expand() == ((2, 0, 1, 3),)
    assert broadcast.operands[0].sharding is None


def test_what_is_equal_everywhere_stays() -> None:
    module = program(asks=False)
    assert BroadcastPlaced().run(module) is module
