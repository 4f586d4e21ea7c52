"""The printed form of a partitioned module: what XLA needs to leave a per-device program as it is.

Every instruction that its SPMD partitioner would look at says ``sharding={manual}``, one per leaf of a tuple. Every
collective has a channel of its own, and says that its groups are device ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shardc.hlo.ir.build import reachable_computations
from shardc.hlo.ir.custom_calls import MANUAL_AXES
from shardc.hlo.ir.groups import AxisGroups, IotaGroups, ListGroups
from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.ir.sharding import AnySharding, Sharding, TileSharding
from shardc.hlo.text.attributes import without_shardings

__all__ = ["LocalForm", "XlaForm", "as_manual", "as_written", "computations_as_written"]

_MANUAL = TileSharding("manual")
#: Opcodes whose called computations run instruction by instruction, as the caller does.
_CONTROL_FLOW = frozenset({"while", "conditional", "call", "async-start"})
_WITH_DEVICE_IDS = ("all-reduce", "all-gather", "reduce-scatter")


def as_written(instruction: Instruction, *, manual: bool = False) -> Mapping[str, Any]:
    """The attributes of an instruction as text has them.

    Shardy's own attributes, which XLA obeys before ``sharding=``, are those of the program that was read. They are
    left out once the compiler has put an axis-based sharding on the instruction, or partitioned the program. The axes
    of a manual computation stay until then: its border has shardings beside them.
    """
    attrs = instruction.attrs
    frontend = attrs.get("frontend_attributes")
    if not frontend or not (manual or _has_axes(instruction.sharding)):
        return attrs
    axes = () if manual else tuple(pair for pair in frontend if pair[0] == MANUAL_AXES)
    kept = (*without_shardings(frontend), *axes)
    out = {k: v for k, v in attrs.items() if k != "frontend_attributes"}
    return {**out, "frontend_attributes": kept} if kept else out


def computations_as_written(module: Module) -> tuple[Computation, ...]:
    """What the entry needs, callees first: in the module's order where that has callees first too."""
    needed = reachable_computations(module.entry)
    missing = set(needed)
    in_order: list[Computation] = []
    for c in module.computations:
        if c in missing and c is not module.entry:
            missing.discard(c)
            in_order.append(c)
            if any(callee in missing for i in c for _, callee in called_computations(i)):
                return tuple(needed)
    return (*in_order, module.entry) if missing == {module.entry} else tuple(needed)


def _has_axes(sharding: AnySharding) -> bool:
    if isinstance(sharding, tuple):
        return any(isinstance(s, Sharding) for s in sharding)
    return isinstance(sharding, Sharding)


class XlaForm:
    """Attributes and shardings as they are printed."""

    def __init__(self, channels: Mapping[Instruction, int], outside: frozenset[Instruction], devices: int) -> None:
        self.devices = devices
        self.channels = channels
        self.outside = outside

    def sharding(self, instruction: Instruction) -> AnySharding:
        if instruction not in self.outside:
            return instruction.sharding
        if not instruction.shape.is_tuple:
            return _MANUAL
        leaves = sum(1 for _ in instruction.shape.leaves())
        if not leaves and instruction.opcode == "parameter":
            return None  # a branch that takes nothing: XLA asks for one leaf and finds none
        return (_MANUAL,) * leaves if leaves else _MANUAL

    def attributes(self, instruction: Instruction) -> Mapping[str, Any]:
        attrs = as_written(instruction, manual=True)
        channel = self.channels.get(instruction)
        if channel is None:
            return attrs
        attrs = dict(attrs)
        attrs["channel_id"] = channel
        if attrs.get("replica_groups") == ListGroups(()):  # global device ids need their groups spelled out
            attrs["replica_groups"] = IotaGroups(1, self.devices, (self.devices,))
        if instruction.opcode.removesuffix("-start") in _WITH_DEVICE_IDS:
            attrs["use_global_device_ids"] = True
        return attrs


class LocalForm(XlaForm):
    """A partitioned module as it stands. Text knows no axes: groups over them are groups of devices with a channel."""

    def sharding(self, instruction: Instruction) -> AnySharding:
        return instruction.sharding

    def attributes(self, instruction: Instruction) -> Mapping[str, Any]:
        attrs = instruction.attrs
        by_axes = isinstance(attrs.get("replica_groups"), AxisGroups)
        needs_channel = not attrs.get("channel_id") and (by_axes or attrs.get("use_global_device_ids"))
        return super().attributes(instruction) if needs_channel else as_written(instruction)


def as_manual(module: Module, computations: Iterable[Computation], *, for_xla: bool = True) -> XlaForm:
    """How a partitioned ``module`` prints; a channel that an instruction alone has is kept. ``for_xla``: in the form
    that its partitioner leaves as it is."""
    known = list(computations)
    outside = _outside_embedded(module.entry)
    found = [i for c in known for i in c if i.opcode in COLLECTIVES]
    channels: dict[Instruction, int] = {}
    used: set[int] = set()
    for i in found:
        wanted = i.attrs.get("channel_id")
        if isinstance(wanted, int) and wanted > 0 and wanted not in used:
            channels[i] = wanted
            used.add(wanted)
    following = 1
    for i in found:
        if i not in channels:
            while following in used:
                following += 1
            channels[i] = following
            used.add(following)
    return (XlaForm if for_xla else LocalForm)(channels, outside, module.num_partitions)


def _outside_embedded(entry: Computation) -> frozenset[Instruction]:
    """Instructions that run as a program of their own: not bodies of reductions, sorts, fusions and the like."""
    todo = [entry]
    seen = {entry}
    outside: list[Instruction] = []
    while todo:
        for i in todo.pop():
            outside.append(i)
            if i.opcode in _CONTROL_FLOW:
                for _, callee in called_computations(i):
                    if callee not in seen:
                        seen.add(callee)
                        todo.append(callee)
    return frozenset(outside)
