"""``shard_as`` and ``shard_like`` of GSPMD's shardings: values of one number lie alike.

They become the markers of sharding groups that StableHLO programs have, so that propagation knows one kind of group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.hlo.ir.custom_calls import SHARDING_GROUP
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation
from shardc.hlo.ir.sharding import Sharding, TileSharding

__all__ = ["ShareGroup", "mark_groups", "share_group"]

_GROUP = re.compile(r"\b(shard_as|shard_like) (\d+)")


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """Leaf ``leaf`` of a value belongs to group ``name``."""

    leaf: int
    name: str


def share_group(sharding: Sharding | TileSharding | None, leaf: int) -> ShareGroup | None:
    """The group that a written sharding puts its value into."""
    found = _GROUP.search(sharding.suffix) if isinstance(sharding, TileSharding) else None
    return None if found is None else ShareGroup(leaf, f"{found.group(1)}.{found.group(2)}")


def mark_groups(module: Module, groups: Mapping[str, Sequence[ShareGroup]]) -> Module:
    """The module with a marker behind every value that ``groups`` names (by instruction name, unique in a module)."""
    if not groups:
        return module
    called: dict[Computation, Computation] = {}
    for c in module.computations:
        called[c] = _mark_computation(rebuild_computation(c, lambda _old, _operands: None, called), groups)
    return module.with_(computations=tuple(called.values()), entry=called[module.entry])


def _mark_computation(c: Computation, groups: Mapping[str, Sequence[ShareGroup]]) -> Computation:
    if not any(i.name in groups for i in c):
        return c
    order: list[Instruction] = []
    for i in c:
        order.append(i)
        for group in groups.get(i.name, ()):
            order += _marker(i, group)
    return Computation(c.name, order, c.root)


def _marker(i: Instruction, group: ShareGroup) -> list[Instruction]:
    """The marker, and what takes the leaf out of a tuple."""
    value, made = i, []
    if i.shape.is_tuple:
        shape = i.shape.elements[group.leaf]
        value = Instruction("get-tuple-element", shape, (i,), {"index": group.leaf}, name=f"{i.name}.{group.leaf}")
        made.append(value)
    attrs = {
        "custom_call_target": SHARDING_GROUP,
        "custom_call_has_side_effect": True,
        "frontend_attributes": (("xla.sdy.sharding_group_id", group.name),),
    }
    marker = Instruction("custom-call", value.shape, (value,), attrs, name=f"{value.name}.group", metadata=i.metadata)
    return [*made, marker]
