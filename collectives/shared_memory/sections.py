"""Shared results: sections of several arenas that are the same pages, for results that all members of a group get.

A `SharedSection` of the arena holds nothing but results of all-reduces and all-gathers over its groups. Its pages lie
in the program's block of the process that has a group's first device, and are mapped into the arenas of all of the
group, in place of the arenas' own: the compiled step notices nothing, and a result is written once instead of by every
member.

A collective writes there when all of its members have come to it, so all have read what lay there before.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardc.collectives.call.call import BufferRef, SharedSection
from shardc.collectives.call.membership import Ownership
from shardc.collectives.shared_memory.heap import NodeHeaps, SharedHeap
from shardc.native.threads.pool import Row

__all__ = ["MappedSections", "SectionPlan", "map_sections", "mappable", "place_sections", "plan_sections"]

#: (number of the section, first device of a group)
Key = tuple[int, int]


@dataclass(frozen=True)
class SectionPlan:
    """A section, and for each device the first of its group."""

    number: int
    section: SharedSection
    first: Mapping[int, int]
    owner: Mapping[int, int]

    @property
    def nbytes(self) -> int:
        """Whole pages."""
        return _pages(self.section.nbytes)


@dataclass(frozen=True)
class MappedSections:
    """Where the sections of this node's devices lie, as this process maps them: by device and section, the address.

    ``mapped`` are the ranges of this process's heap that are other memory now.
    """

    plans: tuple[SectionPlan, ...]
    addresses: Mapping[tuple[int, int], int]
    mapped: tuple[tuple[int, int], ...]

    def address(self, device: int, ref: BufferRef) -> int | None:
        """Where ``ref`` of a device lies, if in a shared section."""
        if ref.space != "arena":
            return None
        for number, begin, end in self._ranges:
            if begin <= ref.offset and ref.offset + ref.nbytes <= end:
                found = self.addresses.get((device, number))
                return None if found is None else found + ref.offset - begin
        return None

    @cached_property
    def _ranges(self) -> tuple[tuple[int, int, int], ...]:
        return tuple((p.number, p.section.offset, p.section.offset + p.section.nbytes) for p in self.plans)

    def restore(self, heap: SharedHeap) -> None:
        """The arenas have memory of their own again."""
        for start, nbytes in self.mapped:
            heap.remap(start, nbytes)
            heap.unpin(start)


def plan_sections(sections: Sequence[SharedSection], ownership: Ownership) -> tuple[SectionPlan, ...]:
    """Whose memory each device uses."""
    owner = dict(enumerate(ownership.table().tolist()))
    plans = []
    for number, section in enumerate(sections):
        groups = section.groups.expand() or (tuple(range(ownership.num_devices)),)
        if section.nbytes:
            plans.append(SectionPlan(number, section, {d: g[0] for g in groups for d in g}, owner))
    return tuple(plans)


def place_sections(plans: Sequence[SectionPlan], process: int, at: int) -> tuple[dict[Key, int], int]:
    """Where in its block ``process`` has the memory of groups whose first device is its own, and the block's end."""
    places: dict[Key, int] = {}
    for plan in plans:
        for first in sorted(set(plan.first.values())):
            if plan.owner[first] == process:
                at = _pages(at)
                places[plan.number, first] = at
                at += plan.nbytes
    return places, at


def mappable(heap: SharedHeap, rows: ctypes.Array[Row], plans: Sequence[SectionPlan]) -> tuple[int, ...]:
    """This process's devices whose arenas can have other pages."""
    offsets = [p.section.offset for p in plans]
    whole = all(o % mmap.PAGESIZE == 0 for o in offsets)
    return tuple(
        int(row.device)
        for row in rows
        if whole and row.arena % mmap.PAGESIZE == 0 and heap.offset_of(row.arena) is not None
    )


def map_sections(
    heaps: NodeHeaps,
    rows: ctypes.Array[Row],
    plans: Sequence[SectionPlan],
    found: Mapping[Key, tuple[int, int]],
    willing: frozenset[int],
) -> MappedSections:
    """Put the groups' memory into the arenas of this process.

    ``found`` says at which process and where in its heap each memory is, ``willing`` are the devices of all processes
    that can use it.
    """
    heap, mapped = heaps.mine, []
    for row in rows:
        arena = heap.offset_of(row.arena) if int(row.device) in willing else None
        if arena is None:
            continue
        for plan in plans:
            process, at = found[plan.number, plan.first[int(row.device)]]
            start = arena + plan.section.offset
            heap.remap(start, plan.nbytes, heaps.others[process], at)
            heap.pin(start)
            mapped.append((start, plan.nbytes))
    addresses = {}
    for plan in plans:
        for device, first in plan.first.items():
            if device in willing:
                process, at = found[plan.number, first]
                addresses[device, plan.number] = heaps.addresses[process] + at
    return MappedSections(tuple(plans), addresses, tuple(mapped))


def _pages(nbytes: int) -> int:
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
