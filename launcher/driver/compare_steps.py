"""Steps that no collective connects, compared in shared memory.

A process writes the stamp of each step (`shardc.collectives.call.stamp`) into a ring that the others of its node can
read, and looks at the entries of the ranks before and after it: of two neighbours the later one finds a difference.
Entries are sums over all steps so far: one that the other has overwritten meanwhile shows in the next that it has not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.call import CollectiveCall
from shardc.collectives.call.control_table import ControlTable
from shardc.collectives.call.membership import Ownership, connected_processes, members_of
from shardc.collectives.call.stamp import StepStamp, Told
from shardc.collectives.call.transport import Transport

__all__ = ["Neighbours", "connects_all"]

#: Entries of a ring; words of one: program, step, and the two sums.
_ENTRIES, _WORDS = 64, 4
_WORD = (1 << 64) - 1


def connects_all(calls: Sequence[CollectiveCall], ownership: Ownership) -> bool:
    """Whether each step synchronises all processes, in every branch."""
    table, count = ownership.table(), ownership.num_processes
    return any(len(set(connected_processes(members_of(c, ownership.num_devices), table, count))) == 1 for c in calls)


class Neighbours:
    """The ring of this process for the program ``number``, and those beside it."""

    def __init__(self, transport: Transport, table: ControlTable, number: int, told: Told) -> None:
        self._number, self._told, self._rank = number, told, transport.ranks[transport.process_index]
        self._mine = transport.empty(8 * _ENTRIES * _WORDS).view(np.int64).reshape(_ENTRIES, _WORDS)
        self._mine[:] = 0
        self._values = self._weighted = 0
        start = int(table.heaps[table.position].ctypes.data)
        #: Where in this process's heap its ring lies.
        self.offset = int(self._mine.ctypes.data) - start
        self._table, self._ranks, self._everybody = table, transport.node_ranks, transport.ranks
        self._others: list[tuple[int, NDArray[np.int64]]] = []

    def meet(self, offsets: Sequence[int]) -> None:
        """Find the neighbours by everybody's `offset`."""
        me, size = self._table.position, self._mine.nbytes
        for position in sorted({me - 1, me + 1} & set(range(len(self._ranks)))):
            rank = self._ranks[position]
            start = offsets[self._everybody.index(rank)]
            ring = self._table.heaps[position][start : start + size]
            self._others.append((rank, ring.view(np.int64).reshape(_ENTRIES, _WORDS)))

    def compare(self, step: int, values: int, weighted: int) -> None:
        """Raise the error for a neighbour that was given something else in this step."""
        place = step % _ENTRIES
        entry = self._mine[place]
        # Odd factors: what is exchanged between steps does not cancel, and the ratio that tells the argument stays.
        self._values = (self._values + (2 * step + 1) * values) & _WORD
        self._weighted = (self._weighted + (2 * step + 1) * weighted) & _WORD
        mine = StepStamp(step, self._values, self._weighted)
        entry[1] = 0
        entry[2:] = np.array([mine.values, mine.weighted], np.uint64).view(np.int64)
        entry[0], entry[1] = self._number, step
        for rank, ring in self._others:
            program, other, *sums = ring[place].tolist()
            if program == self._number and other == step:
                found = self._told.difference(mine, StepStamp(step, *sums), (self._rank, rank), when="in or before")
                if found is not None:
                    raise found
