"""Collectives over listed devices as collectives over the axes of a mesh, where they are that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from shardc.hlo.ir.groups import AxisGroups, AxisPairs, ListPairs
from shardc.hlo.ir.ir import Computation, Instruction, Module, map_callees
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.participants import groups_of_devices, pairs_of_devices
from shardc.partitioner.rules.collective import axis_groups, axis_pairs, named_groups

__all__ = ["name_axes"]


def name_axes(module: Module, mesh: Mesh) -> Module:
    """``module`` on ``mesh``, which has as many devices; groups that do not follow its axes stay as they are, and so
    does the order of instructions, which may be a schedule.

    Example: on ``data=2,model=4`` the groups ``{{0,1,2,3},{4,5,6,7}}`` are those over ``model``.
    """
    partitions, replicas = module.num_partitions, module.replica_count
    known: dict[object, AxisGroups | AxisPairs | None] = {}

    def attributes(old: Instruction) -> Mapping[str, object]:
        key = "source_target_pairs" if "source_target_pairs" in old.attrs else "replica_groups"
        given: object = old.attrs.get(key)
        if given is None or (isinstance(given, AxisGroups | AxisPairs) and given.mesh == mesh):
            return old.attrs
        about = (given, old.opcode, bool(old.attrs.get("channel_id")), bool(old.attrs.get("use_global_device_ids")))
        if about not in known:
            if isinstance(given, ListPairs | AxisPairs):
                pairs = pairs_of_devices(old, partitions, replicas)
                known[about] = axis_pairs(mesh, pairs) if pairs else None
            else:
                whole = named_groups(old, mesh) if replicas == 1 else None
                known[about] = whole or axis_groups(mesh, groups_of_devices(old, partitions, replicas))
        named = known[about]
        return old.attrs if named is None else MappingProxyType({**old.attrs, key: named})

    return _with_attributes(module, attributes).with_(mesh=mesh)


def _with_attributes(module: Module, attributes: Callable[[Instruction], Mapping[str, object]]) -> Module:
    """Each instruction in its place, with other ``attributes`` where it gets some."""
    called: dict[Computation, Computation] = {}
    for c in module.computations:
        new: dict[Instruction, Instruction] = {}
        for old in c:
            attrs = map_callees(attributes(old), lambda k: called.get(k, k))
            operands = tuple(new[o] for o in old.operands)
            same = attrs is old.attrs and all(a is b for a, b in zip(operands, old.operands, strict=True))
            new[old] = old if same else old.replace(operands=operands, attrs=attrs)
        changed = any(old is not i for old, i in new.items())
        called[c] = Computation(c.name, new.values(), new[c.root]) if changed else c
    return module.with_(computations=tuple(called.values()), entry=called[module.entry])
