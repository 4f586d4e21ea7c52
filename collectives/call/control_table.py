"""The control table: what every process of a node shows the others, where it is and since when.

Each process has one row in the first page of its heap (`shardc.collectives.shared_memory.heap`), written by its native
code without a lock and read by the watchdogs of the others. A row of a dead process stays readable.

============ ===========================================================================================================
field        meaning
============ ===========================================================================================================
pid, rank    the process, and its number in the job
failed       in the row at position 0: 1 + the rank that said first that the job has failed, 0 if nobody has
recorder     where in its heap the `shardc.native.drive.records.DriveJob` that ran last lies, with its flight recorder;
             0: nowhere
state        `OUTSIDE` of any step; `COMPUTING` in a step; `ARRIVING`: waits until all have come to a collective;
             `WORKING` on one; `FINISHING`: waits until all have done their share; `GONE`: ended in good order;
             `EXPECTING`: waits in a collective for messages of other nodes; `EXCHANGING`: waits between steps until
             all ranks of ``group`` have come to what ``note`` says
program      a number of the program (`program_number`), the same on all ranks
channel      which processes the collective connects: the n-th set of them in the program
sequence     how many collectives of the channel came before this one
index, phase the collective, and what was asked for: `shardc.native.drive.drive_loop.WHOLE`, ``START``, ``DONE_PHASE``
completed    collectives done since the process began, all programs
since        when ``state`` was last changed to one that waits, ns of the monotonic clock (the same for a whole machine)
step         the step of the program, from 1
polls        how often it has found in vain that those whom it waits for are not there
group        the processes of the exchange that it is in, or was in last: a number of their ranks (`group_number`)
exchanges    how many exchanges with these it has begun; the same ones, in the same order, as the others
note, place  what it exchanges with them, and the line of the user's code that it does so in, as text
timeouts     how many times the usual time it waits for them
helper_*     the same of the communication thread, where there is one
met          how many exchanges it has begun with the process at each position
============ ===========================================================================================================
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.exchange import RankExchange
from shardc.native.collectives.status import (
    ARRIVING,
    COMPUTING,
    EXCHANGING,
    EXPECTING,
    FINISHING,
    GONE,
    OUTSIDE,
    WORKING,
    Status,
)
from shardc.native.lowlevel.records import places_of

__all__ = [
    "ARRIVING",
    "COMPUTING",
    "EXCHANGING",
    "EXPECTING",
    "FINISHING",
    "GONE",
    "OFFSET",
    "OUTSIDE",
    "ROW",
    "WORKING",
    "ControlTable",
    "control_table",
    "group_number",
    "program_number",
    "row_offset",
]

_PLACE = tuple(places_of(Status))
#: A row. Native code writes two parts of it, each a `Status`: from ``state`` on, and from ``helper_state`` on.
_NUMBERS = (
    "pid",
    "rank",
    "failed",
    "recorder",
    *_PLACE,
    *(f"helper_{n}" for n in _PLACE),
    "step",
    "polls",
    "group",
    "exchanges",
)
#: Processes of a node whose exchanges are counted.
_MOST = 1024
_TEXTS = [("note", "S512"), ("place", "S512")]
ROW = np.dtype([*((n, np.int64) for n in _NUMBERS), ("timeouts", np.float64), *_TEXTS, ("met", np.int32, _MOST)])
#: Where in a heap the row lies.
OFFSET = 1024


@dataclass(frozen=True)
class ControlTable:
    """The rows of a node's processes by position; ``position`` is this process's own.

    ``group`` is the `group_number` of who exchanges through this table, ``places`` are these processes' positions among
    all of the node (empty: they are all).
    """

    rows: Sequence[NDArray[Any]]
    position: int
    heaps: Sequence[NDArray[np.uint8]]
    #: The file of this process's heap, for others to open; -1 where it has none that they could.
    file: int = -1
    group: int = 0
    places: tuple[int, ...] = ()
    _exchanges: Iterator[int] = field(default_factory=lambda: itertools.count(1), compare=False)

    @property
    def mine(self) -> NDArray[Any]:
        """This process's row, to be written: ``table.mine["state"] = COMPUTING``."""
        return self.rows[self.position]

    @property
    def address(self) -> int:
        """Of this process's row, for native code."""
        return int(self.mine.ctypes.data)

    def read(self, position: int) -> dict[str, int]:
        """A copy of a row."""
        row = self.rows[position][0]
        return {name: int(row[name]) for name in _NUMBERS}

    def exchange(self, position: int) -> RankExchange:
        """What the process at ``position`` exchanges, or exchanged last."""
        row = self.rows[position][0]
        return RankExchange(*(bytes(row[name]).decode(errors="replace") for name, _ in _TEXTS))

    def met(self, position: int) -> list[int]:
        """How many exchanges the process at ``position`` has begun with each of this table's."""
        counts = self.rows[position][0]["met"]
        return [int(counts[p]) if p < _MOST else 0 for p in self._places]

    @property
    def _places(self) -> Sequence[int]:
        return self.places or range(len(self.rows))

    @contextmanager
    def show_exchange(self, exchange: RankExchange, timeouts: float = 1.0) -> Iterator[None]:
        """Show that this process waits for all of this table's, ``timeouts`` times the timeout."""
        row = self.mine
        before = int(row["state"][0])
        row["note"], row["place"] = exchange.what.encode(), exchange.where.encode()
        row["timeouts"], row["since"] = timeouts, time.monotonic_ns()
        row["group"], row["exchanges"] = self.group, next(self._exchanges)
        for place in self._places:
            row["met"][0, place : place + 1] += 1
        row["state"] = EXCHANGING
        try:
            yield
        finally:
            row["state"] = before


def row_offset(name: str) -> int:
    """Where in a row a field lies."""
    fields: Any = ROW.fields
    return int(fields[name][1])


def program_number(digest: str) -> int:
    """A program's hash as it stands in a row."""
    return int(digest[:15], 16)


def group_number(ranks: Sequence[int]) -> int:
    """A group of a job's ranks as it stands in a row; 0 for all of them, who need none."""
    return program_number(hashlib.sha256(repr(tuple(ranks)).encode()).hexdigest())


def control_table(
    heaps: Sequence[NDArray[np.uint8]], position: int, file: int = -1, group: int = 0, places: tuple[int, ...] = ()
) -> ControlTable:
    """The rows in the heaps of a node, or of a part of it."""
    rows = [h[OFFSET : OFFSET + ROW.itemsize].view(ROW) for h in heaps]
    return ControlTable(rows, position, heaps, file, group, places)
