"""Reductions and copies among places of a collective; see `shardc.native.collectives.messages`."""

from __future__ import annotations

from shardc.native.collectives.message_records import State, TableRecord
from shardc.native.collectives.work import place_of_cell
from shardc.native.lowlevel.kinds import address, i64
from shardc.native.lowlevel.records import address_of
from shardc.native.threads.pool_records import Piece

__all__ = ["copy_piece", "do_pieces", "reduce_piece"]

#: Reductions and copies that touch more bytes than this use the thread pool, in pieces of so many bytes.
_PARALLEL_BYTES, _PIECE_BYTES = 1 << 19, 1 << 16
#: Bytes that are moved in a nanosecond, about.
_SPEED = 10


def do_pieces(state: State, table: TableRecord, piece: Piece) -> None:
    """All pieces of a table's elements, on the pool's threads where it pays."""
    for k in range(table.sources + table.targets):
        table.pointers[k] = place_of_cell(table.cells[k])
    each = _PIECE_BYTES // table.item
    pieces = (table.elements + each - 1) // each
    moved = table.elements * table.item * (table.sources + table.targets)
    if moved > _PARALLEL_BYTES:
        state.parallel(piece, address_of(table), pieces, moved // _SPEED)
    else:
        piece(address_of(table), 0, pieces)


def reduce_piece(context: address, begin: i64, end: i64) -> None:
    """Pieces ``begin`` to ``end`` of a reduction."""
    table = TableRecord.at(context)
    each = _PIECE_BYTES // table.item
    first = begin * each
    count = min(end * each, table.elements) - first
    offset = first * table.item
    results = table.pointers.behind(table.sources)
    table.reduce(table.pointers, table.sources, offset, results, table.targets, offset, count, False)


def copy_piece(context: address, begin: i64, end: i64) -> None:
    """The same for a copy: to every target that is neither the source nor the target before."""
    table = TableRecord.at(context)
    source = table.pointers[0]
    first = begin * _PIECE_BYTES
    nbytes = min(end * _PIECE_BYTES, table.elements) - first
    for k in range(table.targets):
        target = table.pointers[k + 1]
        if target != source and target != table.pointers[k]:
            table.copy(target + first, source + first, nbytes, 0)
