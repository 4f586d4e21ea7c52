"""The memory through which the processes of a node see each other's operands and results, for one program.

Each process has a block in its heap (`shardc.collectives.shared_memory.heap`): a line that says who has left; for each
channel the headers that it shows; for each collective a word per operand and result, where it says at which offset of
its heap it lies now, and, in the block of the first of those who meet, the meetings; and stand-ins for what lies
elsewhere.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardc.collectives.call.call import BufferRef, CollectiveCall
from shardc.collectives.engine.engine_calls import cell_of
from shardc.collectives.engine.steps import StepPlace
from shardc.collectives.shared_memory.node import ComputeNode
from shardc.native.collectives.messages import HEADS, MEETING_BYTES, Cell, Channel, Entry, Import
from shardc.native.lowlevel.records import reference
from shardc.native.threads.pool import Row

__all__ = ["NodeMeeting", "NodeMemory"]

_LINE = 64


@dataclass(frozen=True, slots=True)
class NodeMeeting:
    """A collective whose ``mates`` (positions in the node) meet there, as channel ``channel`` of the program;
    ``devices`` are those of each mate."""

    call: CollectiveCall
    channel: int
    mates: tuple[int, ...]
    devices: tuple[tuple[int, ...], ...]

    def entries(self, mate: int) -> list[tuple[int, int, str, BufferRef]]:
        """The (device, operand number, space, place) of a mate, in the order of its words."""
        return [
            (d, i, space, ref)
            for d in self.devices[self.mates.index(mate)]
            for i, o in enumerate(self.call.operands)
            for space, ref in (("operand", o.operand), ("result", o.result))
        ]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where in a heap the parts of a process's block are: by channel, by collective."""

    start: int
    nbytes: int
    heads: Mapping[int, int]
    meetings: Mapping[int, int]
    words: Mapping[int, int]
    staging: Mapping[tuple[int, int], int]


@dataclass
class NodeMemory:
    """This process's part in it. Making one is collective over the node's processes."""

    node: ComputeNode
    meetings: Sequence[NodeMeeting]
    rows: Mapping[int, Row]
    keep: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        node = self.node
        self._mine = self._reserve()
        self._all: list[_Layout] = node.messages.exchange_objects(self._mine)
        self._cells: dict[int, dict[tuple[int, int, str], Cell]] = {}
        self._leave = weakref.finalize(self, _leave, node, self._mine, [layout.start for layout in self._all])

    def close(self) -> None:
        """This process will look at nobody's block again."""
        self._leave()

    def fill(self, record: Channel, meeting: NodeMeeting) -> None:
        """The fields of a channel's record that have to do with the node."""
        heads = [self._address(m, self._all[m].heads[meeting.channel]) for m in meeting.mates]
        record.heads = reference(self._keep_alive((ctypes.c_int64 * len(heads))(*heads)))
        record.members = len(meeting.mates)
        record.position = meeting.mates.index(self.node.position)
        record.number = meeting.channel

    def address_of(self, meeting: NodeMeeting) -> int:
        """The address of the two meetings of a collective."""
        first = meeting.mates[0]
        return self._address(first, self._all[first].meetings[meeting.call.index])

    def entries(self, meeting: NodeMeeting) -> tuple[int, int]:
        """The table of this process's `Entry` records, and how many they are."""
        wanted = meeting.entries(self.node.position)
        table = (Entry * max(1, len(wanted)))()
        index = meeting.call.index
        word = self.node.heap.address + self._mine.words[index]
        for k, (row, (device, _, space, ref)) in enumerate(zip(table, wanted, strict=False)):
            cell = cell_of(self.rows[device], ref)
            row.cell, row.nbytes = cell, ref.nbytes
            row.staging = self.node.heap.address + self._mine.staging.get((index, k), 0)
            row.published, row.operand = word + 8 * k, int(space == "operand")
        return self._keep_alive(table), len(wanted)

    def imports(self, meeting: NodeMeeting) -> tuple[int, int]:
        """The table of `Import` records of all mates, and how many they are."""
        index = meeting.call.index
        found = [(m, k, e) for m in meeting.mates for k, e in enumerate(meeting.entries(m))]
        out = (ctypes.c_int64 * max(1, len(found)))()
        table = (Import * max(1, len(found)))()
        start = self._keep_alive(out)
        cells = self._cells.setdefault(index, {})
        for n, (row, (mate, k, (device, operand, space, _))) in enumerate(zip(table, found, strict=False)):
            row.word = self._address(mate, self._all[mate].words[index]) + 8 * k
            row.heap, row.out = self.node.heaps.addresses[mate], start + 8 * n
            cells[device, operand, space] = Cell(start + 8 * n, 0)
        return self._keep_alive(table), len(found)

    def cell(self, call: CollectiveCall, place: StepPlace) -> Cell:
        """Where a place of a collective that meets here is found, after `imports`."""
        cell = self._cells[call.index][place.device, place.index, place.space]
        return Cell(cell.base, place.offset)

    def _address(self, position: int, offset: int) -> int:
        return self.node.heaps.addresses[position] + offset

    def _keep_alive(self, table: ctypes.Array[Any]) -> int:
        self.keep.append(table)
        return ctypes.addressof(table)

    def _reserve(self) -> _Layout:
        """Take this process's block, zeros where others look before anything is written."""
        node, me = self.node, self.node.position
        at = _lines(8 * len(node.ranks))
        heads: dict[int, int] = {}
        meetings: dict[int, int] = {}
        words: dict[int, int] = {}
        staging: dict[tuple[int, int], int] = {}
        for m in self.meetings:
            if m.channel not in heads:
                heads[m.channel], at = at, at + HEADS * _LINE
            if m.mates[0] == me:
                meetings[m.call.index], at = at, at + MEETING_BYTES
            words[m.call.index], at = at, at + _lines(8 * len(m.entries(me)))
        cleared = at
        for index, k, nbytes in self._outsiders():
            staging[index, k], at = at, at + _lines(nbytes)
        start = node.heap.take(at)
        node.heap.bytes[start : start + cleared] = 0

        def moved(offsets: Mapping[Any, int]) -> dict[Any, int]:
            return {key: start + offset for key, offset in offsets.items()}

        return _Layout(start, at, moved(heads), moved(meetings), moved(words), moved(staging))

    def _outsiders(self) -> Iterator[tuple[int, int, int]]:
        """(collective, entry, bytes) of what may lie outside of the heap."""
        heap = self.node.heap
        for m in self.meetings:
            for k, (device, _, _, ref) in enumerate(m.entries(self.node.position)):
                if ref.space != "arena" or heap.offset_of(self.rows[device].arena or 0) is None:
                    yield m.call.index, k, ref.nbytes


def _lines(nbytes: int) -> int:
    return -(-nbytes // _LINE) * _LINE


def _leave(node: ComputeNode, mine: _Layout, starts: Sequence[int]) -> None:
    """Say in everybody's block that we have left; ours is free when all have."""
    for position, start in enumerate(starts):
        left = node.heaps.maps[position][start : start + 8 * len(starts)].view("i8")
        left[node.position] = 1
    here = node.heap.bytes[mine.start : mine.start + 8 * len(starts)].view("i8")
    node.heap.release(mine.start, mine.nbytes, lambda: bool(here.all()))
