"""Collectives over listed devices as collectives over the axes of a mesh, where they are that."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from shardc.hlo.ir.groups import AxisGroups, AxisPairs, ListPairs
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.participants import groups_of_devices, pairs_of_devices
from shardc.partitioner.rules.collective import axis_groups, axis_pairs, named_groups

__all__ = ["name_axes"]


def name_axes(module: Module, mesh: Mesh) -> Module:
    """``module`` on ``mesh``, which has as many devices; groups that do not follow its axes stay as they are.

    Example: on ``data=2,model=4`` the groups ``{{0,1,2,3},{4,5,6,7}}`` are those over ``model``.
    """
    partitions, replicas = module.num_partitions, module.replica_count
    known: dict[object, AxisGroups | AxisPairs | None] = {}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        key = "source_target_pairs" if "source_target_pairs" in old.attrs else "replica_groups"
        given: Any = old.attrs.get(key)
        if given is None or (isinstance(given, AxisGroups | AxisPairs) and given.mesh == mesh):
            return None
        about = (given, old.opcode, bool(old.attrs.get("channel_id")), bool(old.attrs.get("use_global_device_ids")))
        if about not in known:
            if isinstance(given, ListPairs | AxisPairs):
                pairs = pairs_of_devices(old, partitions, replicas)
                known[about] = axis_pairs(mesh, pairs) if pairs else None
            else:
                whole = named_groups(old, mesh) if replicas == 1 else None
                known[about] = whole or axis_groups(mesh, groups_of_devices(old, partitions, replicas))
        named = known[about]
        attrs = MappingProxyType({**old.attrs, key: named})
        return None if named is None else old.replace(operands=operands, attrs=attrs)

    return rebuild_module(module, change).with_(mesh=mesh)
