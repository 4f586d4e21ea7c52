"""The plan that the ranks of one node share before a program's first step: channels, records, each rank's share.

Everything here follows from the collectives and from who owns which device, so every rank comes to the same layout
without a word; only where in the heaps the memory lies is told to the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from shardc.collectives.call.call import BufferRef, CollectiveCall
from shardc.collectives.call.membership import GROUP_OPS, Ownership, check_call, connected_processes
from shardc.collectives.shared_memory.records import HEAD, SLOT_BYTES, SLOTS

__all__ = [
    "SMALL",
    "BlockLayout",
    "CallPlan",
    "ChannelEntry",
    "GroupShare",
    "SharedChannel",
    "layout_of",
    "plan_calls",
    "signature_of",
]

#: Bytes of all operands of a collective, over the processes that it connects, up to which they are copied to all.
SMALL = 1 << 12

_LINE = 64


@dataclass(frozen=True, slots=True)
class ChannelEntry:
    """An operand or result of a collective: ``entry`` of the process at position ``member`` of the channel."""

    member: int
    entry: int


@dataclass(frozen=True, slots=True)
class GroupShare:
    """The work of one group (one target of a permute), by operand and position; None: nothing there."""

    members: int
    sources: tuple[ChannelEntry | None, ...]
    targets: tuple[ChannelEntry | None, ...]


@dataclass(frozen=True)
class CallPlan:
    """A collective as the process ``processes[position]`` sees it; ``devices`` are those of each process.

    Entries of a process are the operands of its first device, of its second, ..., then the results likewise.
    """

    call: CollectiveCall
    groups: tuple[tuple[int, ...], ...]
    processes: tuple[int, ...]
    position: int
    devices: tuple[tuple[int, ...], ...]
    small: int = SMALL

    @cached_property
    def direct(self) -> bool:
        """Whether all processes work on each other's memory, rather than each on copies of all operands."""
        total = sum(self.mail_bytes(m) for m in range(len(self.processes)))
        return len(self.processes) == 1 or total > self.small

    def entries(self, member: int) -> int:
        """Operands and results of a process."""
        return 2 * len(self.devices[member]) * len(self.call.operands)

    def refs(self, member: int) -> list[tuple[int, BufferRef]]:
        """(number of the device in its process, buffer) by entry."""
        return [self.ref(ChannelEntry(member, entry)) for entry in range(self.entries(member))]

    def ref(self, place: ChannelEntry) -> tuple[int, BufferRef]:
        """(number of the device in its process, buffer) of one entry."""
        count = len(self.call.operands)
        number, operand = divmod(place.entry, count)
        devices = len(self.devices[place.member])
        o = self.call.operands[operand]
        return (number, o.operand) if number < devices else (number - devices, o.result)

    def device_at(self, place: ChannelEntry) -> int:
        """The device whose operand or result an entry is."""
        return self.devices[place.member][self.ref(place)[0]]

    def mail(self) -> list[int]:
        """Where in the body of a record each operand of a device lies, and their end."""
        sizes = [-(-o.operand.nbytes // _LINE) * _LINE for o in self.call.operands]
        return list(accumulate(sizes, initial=0))

    def mail_bytes(self, member: int) -> int:
        return len(self.devices[member]) * self.mail()[-1]

    def body_bytes(self) -> int:
        """Of a record, for any process of the channel."""
        members = range(len(self.processes))
        return max(8 * self.entries(m) if self.direct else self.mail_bytes(m) for m in members)

    def shares(self) -> list[GroupShare]:
        """The work of all groups of these processes; of a small collective what this process needs of it."""
        wanted = {d for devices in self.devices for d in devices} if self.direct else set(self.devices[self.position])
        if self.call.op in GROUP_OPS:
            return [self._of_group(g) for g in self.groups if not wanted.isdisjoint(g)]
        source = {target: s for s, target in self.groups}
        return [self._of_target(d, source.get(d)) for d in sorted(wanted)]

    def _of_group(self, group: Sequence[int]) -> GroupShare:
        count = range(len(self.call.operands))
        sources = tuple(self._place(d, k, 0) for k in count for d in group)
        targets = tuple(self._place(d, k, 1) for k in count for d in group)
        if self.direct:
            return GroupShare(len(group), sources, targets)
        return GroupShare(len(group), sources, tuple(t if t.member == self.position else None for t in targets))

    def _of_target(self, device: int, source: int | None) -> GroupShare:
        count = range(len(self.call.operands))
        sources = tuple(None if source is None else self._place(source, k, 0) for k in count)
        return GroupShare(1, sources, tuple(self._place(device, k, 1) for k in count))

    @cached_property
    def _owner(self) -> dict[int, tuple[int, int]]:
        """(position of the process, number in it) by device."""
        return {d: (m, n) for m, devices in enumerate(self.devices) for n, d in enumerate(devices)}

    def _place(self, device: int, operand: int, is_result: int) -> ChannelEntry:
        member, number = self._owner[device]
        devices = len(self.devices[member])
        return ChannelEntry(member, (is_result * devices + number) * len(self.call.operands) + operand)


@dataclass(frozen=True, slots=True)
class SharedChannel:
    """The processes that some collectives connect, and the bytes of a record that all of them can use.

    ``number`` is the place in the program of the first of these collectives, the same at all members.
    """

    number: int
    processes: tuple[int, ...]
    stride: int


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """The memory of one process for one program: a line for who has closed it, then by channel its slots (at the first
    process of the channel only) and records. Offsets in bytes; staging memory follows."""

    slots: tuple[int, ...]
    records: tuple[int, ...]
    nbytes: int


def plan_calls(
    calls: Sequence[CollectiveCall], ownership: Ownership, process: int, small: int = SMALL
) -> tuple[list[CallPlan], list[SharedChannel]]:
    """The collectives as ``process`` sees them, and all channels that it is in, in the same order at all members."""
    table = ownership.table()
    plans: list[CallPlan] = []
    for call in calls:
        groups = check_call(call, ownership.num_devices)
        components = connected_processes(groups, table, ownership.num_processes)
        processes = tuple(p for p, c in enumerate(components) if c == components[process])
        devices = tuple(ownership.devices(p) for p in processes)
        plans.append(CallPlan(call, groups, processes, processes.index(process), devices, small))
    channels: dict[tuple[int, ...], SharedChannel] = {}
    for n, plan in enumerate(plans):
        stride = HEAD + -(-plan.body_bytes() // _LINE) * _LINE
        known = channels.get(plan.processes)
        channels[plan.processes] = (
            SharedChannel(n, plan.processes, stride)
            if known is None
            else replace(known, stride=max(known.stride, stride))
        )
    return plans, list(channels.values())


def layout_of(channels: Sequence[SharedChannel], process: int) -> BlockLayout:
    """Where everything lies in the block of ``process``, which is in all of ``channels``."""
    at = _LINE
    slots, records = [], []
    for channel in channels:
        slots.append(at)
        at += SLOTS * SLOT_BYTES if channel.processes[0] == process else 0
        records.append(at)
        at += SLOTS * channel.stride
    return BlockLayout(tuple(slots), tuple(records), at)


def signature_of(call: CollectiveCall) -> int:
    """What must be the same at all who meet in a collective, as a number of 63 bits."""
    operands = [(o.dtype.name, o.count) for o in call.operands]
    text = repr((call.op, call.reduction, call.groups, operands, call.ragged))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
