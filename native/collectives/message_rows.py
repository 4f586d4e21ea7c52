"""Rows of ragged exchanges among the steps of a collective; see `shardc.native.collectives.messages`."""

from __future__ import annotations

from shardc.native.collectives.message_records import IncomingRows, PartRecord, StepRecord, Word
from shardc.native.collectives.ragged import (
    RaggedTables,
    copy_rows,
    is_inside,
    keep_output,
    row_bytes_received,
    rows_fit,
)
from shardc.native.collectives.work import place_of_cell
from shardc.native.lowlevel.builtins import inline, local
from shardc.native.lowlevel.kinds import address, i64

__all__ = ["MISFIT", "bytes_of_part", "check_incoming", "copy_incoming", "place_of_part"]

#: Of `bytes_of_part`, where rows lie outside.
MISFIT = -1
#: Groups of ``members`` cells, and the three that follow them.
_STARTS, _SIZES, _TARGETS, _DATA, _BEHIND = range(5)
_RECEIVED, _OUTPUT, _RESULT = range(3)


@inline
def _find(incoming: IncomingRows, tables: RaggedTables) -> None:
    """Where everything lies now."""
    m = incoming.members
    for k in range(_BEHIND * m + 3):
        cell = incoming.cells[k]
        incoming.pointers[k] = 0 if cell.base == 0 else place_of_cell(cell)
    tables.rows = incoming.rows
    tables.starts = incoming.pointers.behind(_STARTS * m)
    tables.sizes = incoming.pointers.behind(_SIZES * m)
    tables.targets = incoming.pointers.behind(_TARGETS * m)
    tables.received = incoming.pointers[_BEHIND * m + _RECEIVED]
    tables.first = 0
    tables.members = m


def check_incoming(incoming: IncomingRows) -> bool:
    """Whether all rows that come fit. If so, they are counted."""
    tables = local(RaggedTables)
    _find(incoming, tables)
    if not rows_fit(tables):
        return False
    incoming.arrived += row_bytes_received(tables)
    return True


def copy_incoming(incoming: IncomingRows) -> None:
    """Make the result of the output and the rows of senders whose data can be addressed."""
    tables = local(RaggedTables)
    _find(incoming, tables)
    m = incoming.members
    result = incoming.pointers[_BEHIND * m + _RESULT]
    nbytes = incoming.rows.output_rows * incoming.rows.row_bytes
    keep_output(incoming.pointers[_BEHIND * m + _OUTPUT], result, 0, nbytes)
    for sender in range(m):
        data = incoming.pointers[_DATA * m + sender]
        if data != 0:
            copy_rows(tables, sender, data, result, 0, nbytes)


def bytes_of_part(step: StepRecord) -> i64:
    """How many bytes of a part there are; `MISFIT`."""
    part = PartRecord.at(step.table)
    size = Word.at(place_of_cell(part.size)).value
    if not is_inside(Word.at(place_of_cell(part.begin)).value, size, part.rows):
        return MISFIT
    return max(0, min(size * part.row_bytes - part.low, step.nbytes))


def place_of_part(step: StepRecord) -> address:
    """Where they begin."""
    part = PartRecord.at(step.table)
    return place_of_cell(step.cell) + (Word.at(place_of_cell(part.begin)).value * part.row_bytes + part.low)
