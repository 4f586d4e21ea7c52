"""Resolve groups: collectives name devices, whether the program spoke of replicas, of partitions or of both.

Where groups differ in size or leave devices out, or the root of a broadcast is a value, everybody gathers everything
and makes its own result of it. So do ragged exchanges where no transport has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from shardc.compiler.lower.expand.expand_ragged_exchange import exchange_ragged
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.groups import AxisGroups, AxisPairs, ListGroups, ListPairs
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, inline, keep_reachable, make, reshape
from shardc.hlo.ir.participants import Groups, groups_of_devices, pairs_of_devices
from shardc.hlo.ir.types import array_shape

__all__ = ["ResolveGroups"]

_RAGGED = "ragged-all-to-all"
_GROUPED = frozenset({"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-broadcast", _RAGGED})

#: Those of them that transports perform as they are, with the one for pairs.
_MEETING = frozenset({"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", _RAGGED})


#: Those of them that can say that their groups are of devices.
_TELL_IDS = frozenset({"all-reduce", "all-gather", "reduce-scatter"})


@dataclass(frozen=True, slots=True)
class ResolveGroups:
    """Rewrite replica groups and pairs as ids of devices. ``ragged``: transports perform ragged exchanges."""

    ragged: bool = True
    name: str = "resolve-groups"
    why: str = "transports know devices, not replicas and partitions"
    looks_at: ClassVar[frozenset[str]] = _GROUPED | {"collective-permute"}

    def run(self, module: Module) -> Module:
        partitions, replicas = module.num_partitions, module.replica_count

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            if _speaks_of_devices(old, partitions * replicas) and (self.ragged or old.opcode != _RAGGED):
                return None
            if old.opcode == "collective-permute":
                pairs = pairs_of_devices(old, partitions, replicas)
                given = old.attrs["source_target_pairs"].expand()
                return None if pairs == given else _with(old, operands, source_target_pairs=ListPairs(pairs))
            if old.opcode not in _GROUPED:
                return None
            groups = groups_of_devices(old, partitions, replicas)
            unknown = next((d for g in groups for d in g if d >= partitions * replicas), None)
            if unknown is not None:
                raise UnsupportedError(
                    f"{old.opcode} names device {unknown}, but the program is for {partitions * replicas} devices",
                    where=old.place,
                    fix="give the number of devices in the module's header (num_partitions=, replica_count=)",
                )
            new = old.replace(operands=operands)
            whole = sorted(d for g in groups for d in g) == list(range(partitions * replicas))
            whole = whole and len({len(g) for g in groups}) == 1
            if old.opcode == "collective-broadcast" and (not whole or old.attrs.get("has_dynamic_root")):
                return _broadcast(_Gathered(new, groups, partitions, replicas))
            if old.opcode == "all-reduce" and not whole:
                return _all_reduce(_Gathered(new, groups, partitions, replicas))
            if not whole:
                raise UnsupportedError(
                    f"{old.opcode} has the groups {[list(g) for g in groups]} of {partitions * replicas} devices",
                    where=old.place,
                    fix="give groups of equal size that contain every device once",
                )
            if old.opcode == _RAGGED and not self.ragged:
                return inline(exchange_ragged(old, groups, partitions), operands)
            given = getattr(old.attrs.get("replica_groups"), "expand", tuple)()
            if groups == given or (not given and len(groups) == 1):
                return None
            ids = {"use_global_device_ids": True, "channel_id": 1} if old.opcode in _TELL_IDS else {}
            return _with(old, operands, replica_groups=ListGroups(groups), **ids)

        after = rebuild_module(module, change)
        return after if after is module else keep_reachable(after, after.entry)


def _speaks_of_devices(i: Instruction, devices: int) -> bool:
    """Whether ``i`` has groups or pairs over the axes of a mesh of all devices. Those name devices, and are whole."""
    given = i.attrs.get("replica_groups", i.attrs.get("source_target_pairs"))
    return isinstance(given, AxisGroups | AxisPairs) and given.mesh.size == devices and i.opcode in _MEETING


def _with(old: Instruction, operands: tuple[Instruction, ...], **attrs: object) -> Instruction:
    return old.replace(operands=operands, attrs=MappingProxyType({**old.attrs, **attrs}))


class _Gathered:
    """The operands of all devices, and for each device the members of its group, -1 where there are no more."""

    def __init__(self, i: Instruction, groups: Groups, partitions: int, replicas: int) -> None:
        self.i, self.count = i, partitions * replicas
        self.width = max(len(g) for g in groups)
        self.table = np.full((self.count, self.width), -1, np.int32)
        for g in groups:
            for d in g:
                self.table[d, : len(g)] = g
        number = array_shape("u32")
        replica, partition = (make(f"{kind}-id", number, (), i) for kind in ("replica", "partition"))
        major = make("multiply", number, (replica, constant(Literal(np.uint32(partitions)), i)), i)
        device = make("add", number, (major, partition), i)
        self.device = make("convert", array_shape("s32"), (device,), i)

    def member(self, position: Instruction) -> Instruction:
        """The device at a position of this device's group."""
        return _row(constant(Literal(self.table), self.i), (self.device, position), (), self.i)

    def gather(self, operand: Instruction) -> Instruction:
        return make(
            "all-gather",
            operand.shape.with_dims((self.count, *operand.shape.dims)),
            (reshape(operand, (1, *operand.shape.dims), self.i),),
            self.i,
            replica_groups=ListGroups((tuple(range(self.count)),)),
            use_global_device_ids=True,
            channel_id=1,
            dimensions=(0,),
        )

    def where(self, member: Instruction, value: Instruction, other: Instruction) -> Instruction:
        """``value`` where there is such a member, else ``other``."""
        zero = constant(Literal(np.int32(0)), self.i)
        exists = make("compare", array_shape("pred"), (member, zero), self.i, direction="GE")
        spread = broadcast_scalar(exists, value.shape.dims, self.i)
        return make("select", value.shape.plain, (spread, value, other), self.i)

    def result(self, values: list[Instruction]) -> Instruction:
        return make("tuple", self.i.shape, values, self.i) if self.i.shape.is_tuple else values[0]


def _broadcast(all_: _Gathered) -> Instruction:
    """The part of the root; zeros where a device has none."""
    i = all_.i
    dynamic = bool(i.attrs.get("has_dynamic_root"))
    results = []
    for k, operand in enumerate(i.operands[:-1] if dynamic else i.operands):
        root = _element(i.operands[-1], k, i) if dynamic else constant(Literal(np.int32(0)), i)
        member = all_.member(root)
        zero = constant(Literal.full(array_shape(operand.shape.dtype), 0), i)
        own = _row(all_.gather(operand), (member,), operand.shape.dims, i)
        results.append(all_.where(member, own, broadcast_scalar(zero, operand.shape.dims, i)))
    return all_.result(results)


def _all_reduce(all_: _Gathered) -> Instruction:
    """The parts of the members, one after the other."""
    i = all_.i
    members = [all_.member(constant(Literal(np.int32(k)), i)) for k in range(all_.width)]
    results = []
    for operand in i.operands:
        gathered = all_.gather(operand)
        total = _row(gathered, (members[0],), operand.shape.dims, i)
        for member in members[1:]:
            part = _row(gathered, (member,), operand.shape.dims, i)
            dimensions = tuple(range(part.shape.rank))
            joined = make("map", total.shape, (total, part), i, dimensions=dimensions, to_apply=i.attrs["to_apply"])
            total = all_.where(member, joined, total)
        results.append(total)
    return all_.result(results)


def _element(roots: Instruction, k: int, i: Instruction) -> Instruction:
    part = make("slice", roots.shape.with_dims((1,)), (roots,), i, slice=((k, k + 1, 1),))
    return make("convert", array_shape("s32"), (reshape(part, (), i),), i)


def _row(whole: Instruction, at: tuple[Instruction, ...], dims: tuple[int, ...], i: Instruction) -> Instruction:
    """``whole[at]``: what is left of it after its leading dimensions."""
    zero = constant(Literal(np.int32(0)), i)
    sizes = (*(1,) * len(at), *dims)
    starts = (*at, *(zero for _ in dims))
    part = make("dynamic-slice", whole.shape.with_dims(sizes), (whole, *starts), i, dynamic_slice_sizes=sizes)
    return reshape(part, dims, i)
