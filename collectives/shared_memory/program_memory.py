"""The memory that the ranks of a node share for one program: meetings, records, staging; see `plan`.

A rank may be done with a program while others still read its records, so its block is free when all have closed: each
counts in a meeting at the start of everybody's block.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardc.collectives.shared_memory.node import ComputeNode
from shardc.collectives.shared_memory.plan import CallPlan, SharedChannel, layout_of
from shardc.collectives.shared_memory.records import SLOT_BYTES, SLOTS, StateRecord
from shardc.collectives.shared_memory.sections import (
    MappedSections,
    SectionPlan,
    map_sections,
    mappable,
    place_sections,
)
from shardc.native.lowlevel.records import RELEASE
from shardc.native.threads.pool import Row

__all__ = ["ProgramMemory", "reserve"]

_LINE = 64


@dataclass(eq=False)
class ProgramMemory:
    """``slots`` (an address) and ``records`` (one by member) by `SharedChannel.number`; ``staging`` addresses by
    collective and entry, 0 where an operand or result always lies in the heap; ``keep`` is what native code still
    points to."""

    slots: Mapping[int, int]
    records: Mapping[int, Sequence[int]]
    staging: Sequence[Sequence[int]]
    node: ComputeNode
    start: int
    nbytes: int
    blocks: Sequence[int]
    sections: MappedSections
    keep: list[Any] = field(default_factory=list)
    _finalizer: Callable[[], object] | None = None

    def attend(self, state: StateRecord, *, helps: bool) -> None:
        """From now on `close` happens by itself when this is gone or the process ends, and a thread helps if wanted."""
        self.keep.append(state)
        thread = None
        if helps:
            state.helps = 1
            run, address = self.node.code.help, ctypes.addressof(state)
            thread = threading.Thread(target=run, args=(address,), name="shardc transfers", daemon=True)
            thread.start()
        place = (self.start, self.nbytes)
        things = (self.node, place, self.blocks, self.sections, state, thread, self.keep)
        self._finalizer = weakref.finalize(self, _close, *things)

    def close(self) -> None:
        """This process will not look at anybody's block again."""
        if self._finalizer is not None:
            self._finalizer()


def reserve(
    node: ComputeNode,
    plans: Sequence[CallPlan],
    channels: Sequence[SharedChannel],
    rows: ctypes.Array[Row],
    sections: Sequence[SectionPlan] = (),
) -> ProgramMemory:
    """Memory for a program; all processes of the node call this together."""
    layout = layout_of(channels, node.position)
    at = layout.nbytes
    staging: list[list[int]] = []
    for plan in plans:
        addresses = []
        for device, ref in plan.refs(plan.position):
            inside = ref.space == "arena" and node.heap.offset_of(rows[device].arena) is not None
            needed = plan.direct and len(plan.processes) > 1 and not inside
            addresses.append(at if needed else -1)
            at += -(-ref.nbytes // _LINE) * _LINE if needed else 0
        staging.append(addresses)
    backing, at = place_sections(sections, node.position, at)
    start = node.heap.take(at, mmap.PAGESIZE)
    heap = node.heap.bytes
    heap[start : start + _LINE] = 0
    for channel, slots in zip(channels, layout.slots, strict=True):
        if channel.processes[0] == node.position:
            heap[start + slots : start + slots + SLOTS * SLOT_BYTES] = 0
    mine = {c.number: (s, r) for c, s, r in zip(channels, layout.slots, layout.records, strict=True)}
    everybody = node.messages.exchange_objects((start, mine, backing, mappable(node.heap, rows, sections)))
    blocks = [a + offset for a, (offset, *_) in zip(node.heaps.addresses, everybody, strict=True)]
    found = {key: (p, start + at) for p, (start, _, b, _) in enumerate(everybody) for key, at in b.items()}
    willing = frozenset(d for *_, devices in everybody for d in devices)
    own = blocks[node.position]
    return ProgramMemory(
        slots={c.number: blocks[(p := c.processes[0])] + everybody[p][1][c.number][0] for c in channels},
        records={c.number: [blocks[p] + everybody[p][1][c.number][1] for p in c.processes] for c in channels},
        staging=[[0 if a < 0 else own + a for a in addresses] for addresses in staging],
        node=node,
        start=start,
        nbytes=at,
        blocks=blocks,
        sections=map_sections(node.heaps, rows, sections, found, willing),
    )


def _close(
    node: ComputeNode,
    place: tuple[int, int],
    blocks: Sequence[int],
    sections: MappedSections,
    state: StateRecord,
    thread: threading.Thread | None,
    keep: list[Any],
) -> None:
    if os.getpid() != node.heaps.offers[node.position].pid:
        return  # a child after fork: the program is the parent's
    if thread is not None:
        state.queue.stop.store(1, RELEASE)
        node.code.arrive(ctypes.addressof(state.queue.posted), state.queue.handed + 1)
        thread.join()
    sections.restore(node.heap)
    for block in blocks:
        node.code.arrive(block, len(blocks))
    closed = ctypes.c_int32.from_address(blocks[node.position])
    node.heap.release(*place, unused=lambda: closed.value == len(blocks))
    keep.clear()
