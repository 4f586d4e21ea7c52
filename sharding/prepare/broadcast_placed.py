"""Values pinned to one device, in programs that read ``partition-id``, become broadcasts from that device.

A value that is the same on all devices may be made by each of them. One that depends on ``partition-id`` is what the
named device has, so the others get it from there.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.groups import ListGroups
from shardc.hlo.ir.ir import Instruction, Module, rebuild_computation
from shardc.hlo.ir.mesh import check_listable
from shardc.hlo.ir.sharding import AnySharding, Sharding, TileSharding

__all__ = ["BroadcastPlaced"]


@dataclass(frozen=True, slots=True)
class BroadcastPlaced:
    """Arrays of the entry that differ between devices are broadcast from the device that they are placed on."""

    name: str = "broadcast-placed"
    why: str = "a value placed on one device is that device's value everywhere"

    def run(self, module: Module) -> Module:
        mesh = module.mesh
        if mesh is None or all(i.opcode != "partition-id" for i in module.entry):
            return module
        differing: set[Instruction] = set()

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            if old.opcode != "partition-id" and differing.isdisjoint(old.operands):
                return None
            device = _device(old.sharding)
            if device is None:
                differing.add(old)
                return None
            own = old.replace(operands=operands, sharding=None)
            check_listable(mesh.size, f"the broadcast of %{old.name}")
            groups = ListGroups(((device, *(d for d in range(mesh.size) if d != device)),))
            attrs = {"replica_groups": groups}
            return Instruction("collective-broadcast", old.shape, (own,), attrs, name=old.name, metadata=old.metadata)

        entry = rebuild_computation(module.entry, change)
        others = (c for c in module.computations if c is not module.entry)
        return module if entry is module.entry else module.with_(computations=(*others, entry), entry=entry)


def _device(sharding: AnySharding) -> int | None:
    """The one device of a maximal sharding."""
    if isinstance(sharding, Sharding) and sharding.mesh.is_maximal and sharding.mesh.device_ids:
        return sharding.mesh.device_ids[0]
    if isinstance(sharding, TileSharding) and sharding.kind == "maximal" and sharding.devices:
        return sharding.devices[0]
    return None
