"""Copies of arrays between memory whose dimensions lie in different orders, with strides of any sign.

`StridesRecord` is a plan: dimensions of one element are left out, those that lie alike on both sides are merged, and
what remains innermost is copied as one piece where it is dense. Else planes of two dimensions are copied one after the
other. Where elements of up to 8 bytes lie side by side along one dimension in the target and along another one in the
source, it is these two, and planes are transposed by vector code; else the innermost ones, in tiles.
"""

from __future__ import annotations

from typing import Annotated

from shardc.native.lowlevel.builtins import as_i64, as_u64, copy_memory, fence, inline, local, local_array
from shardc.native.lowlevel.kinds import Count, address, i64, u8, u32, u64
from shardc.native.lowlevel.records import SEQ_CST, Record, Span
from shardc.native.memory.transposing import LINE, PART, transpose_block, transpose_part

__all__ = ["MAX_RANK", "StridesRecord", "add_dimension", "begin_strides", "copy_strided"]

#: Dimensions that an array may have.
MAX_RANK = 64

#: Elements of two dimensions that are copied together. In a transposition a tile reads as many cache lines as it has
#: columns, often with the same place in a cache, which has room for eight such at least.
_ROWS, _COLUMNS = 16, 8
#: From so many bytes on the target of a transposition is written past the caches.
_STREAMED = 8 << 20


class StridesRecord(Record):
    """``rank`` dimensions, the outermost first: how many, and the bytes from one to the next in the target and in the
    source. Innermost lie ``piece`` bytes that are the same in both."""

    rank: i64
    piece: i64
    dims: Annotated[Span[i64], Count(MAX_RANK)]
    to: Annotated[Span[i64], Count(MAX_RANK)]
    source: Annotated[Span[i64], Count(MAX_RANK)]


class _OneByte(Record):
    value: u8


class _TwoBytes(Record):
    """Elements of two bytes need not lie at even addresses."""

    low: u8
    high: u8


class _FourBytes(Record):
    value: u32


class _EightBytes(Record):
    value: u64


def begin_strides(plan: StridesRecord, element: i64) -> None:
    """A plan of one element; `add_dimension` adds the others, the innermost first."""
    plan.rank = 0
    plan.piece = element


def add_dimension(plan: StridesRecord, count: i64, to: i64, source: i64) -> None:
    """One more dimension around what is planned. Dimensions lie in the plan in reverse until it is used."""
    last = plan.rank - 1
    if count == 1:
        return
    if plan.rank == 0 and to == plan.piece and source == plan.piece:
        plan.piece *= count
    elif plan.rank > 0 and to == plan.to[last] * plan.dims[last] and source == plan.source[last] * plan.dims[last]:
        plan.dims[last] *= count
    else:
        plan.dims[plan.rank] = count
        plan.to[plan.rank] = to
        plan.source[plan.rank] = source
        plan.rank += 1


def copy_strided(plan: StridesRecord, to: address, source: address) -> None:
    """Copy all elements."""
    nbytes = plan.piece
    for k in range(plan.rank):
        nbytes *= plan.dims[k]
    if nbytes == 0:
        return
    if plan.rank == 0:
        copy_memory(to, source, nbytes)
        return
    plane = local(_PlaneRecord)
    _choose_plane(plane, plan)
    transposes = plane.to_column == plan.piece and plane.source_row == plan.piece and plan.piece in (1, 2, 4, 8)
    streams = nbytes >= _STREAMED and as_i64(to) % LINE == 0 and plane.to_row % LINE == 0
    at = local_array(64, MAX_RANK)
    for k in range(plan.rank):
        at[k] = 0
    k = 0
    while k < plan.rank:
        if transposes:
            _transpose_plane(plane, to, source, plan.piece, streams and as_i64(to) % LINE == 0)
        else:
            _copy_part(plane, to, source, plan.piece, 0, plane.rows, 0, plane.columns)
        k = 0
        while k < plan.rank:
            if k != plane.column and k != plane.row:  # noqa: PLR1714 - the language has no such tuples
                at[k] += 1
                to += plan.to[k]
                source += plan.source[k]
                if at[k] < as_u64(plan.dims[k]):
                    break
                at[k] = 0
                to -= plan.to[k] * plan.dims[k]
                source -= plan.source[k] * plan.dims[k]
            k += 1
    if streams:
        fence(SEQ_CST)


class _PlaneRecord(Record):
    """The dimensions ``column`` and ``row`` of a plan (the latter -1, where it has one only): how many there are, and
    the bytes from one to the next."""

    column: i64
    row: i64
    columns: i64
    rows: i64
    to_column: i64
    to_row: i64
    source_column: i64
    source_row: i64


def _choose_plane(plane: _PlaneRecord, plan: StridesRecord) -> None:
    """Along the columns elements lie side by side in the target and along the rows in the source, if they do; else
    these are the innermost dimensions."""
    column = _dense(plan.to, plan)
    row = _dense(plan.source, plan)
    if column < 0 or row < 0 or row == column:
        column = 0
        row = 1 if plan.rank > 1 else -1
    plane.column = column
    plane.row = row
    plane.columns = plan.dims[column]
    plane.to_column = plan.to[column]
    plane.source_column = plan.source[column]
    plane.rows = 1
    plane.to_row = 0
    plane.source_row = 0
    if row >= 0:
        plane.rows = plan.dims[row]
        plane.to_row = plan.to[row]
        plane.source_row = plan.source[row]


def _dense(strides: Span[i64], plan: StridesRecord) -> i64:
    """The dimension along which elements lie side by side, or -1."""
    for k in range(plan.rank):
        if strides[k] == plan.piece:
            return k
    return -1


def _transpose_plane(plane: _PlaneRecord, to: address, source: address, element: i64, streams: bool) -> None:
    """Whole blocks, vectors beside them, and single elements behind those."""
    step = LINE // element
    rows = plane.rows - plane.rows % step
    columns = plane.columns - plane.columns % step
    for n in range(columns // step):
        target = to + n * LINE
        origin = source + n * step * plane.source_column
        for _ in range(rows // step):
            transpose_block(target, plane.to_row, origin, plane.source_column, element, streams)
            target += step * plane.to_row
            origin += LINE
    part = PART // element
    part_rows = plane.rows - plane.rows % part
    part_columns = plane.columns - plane.columns % part
    _transpose_parts(plane, to, source, element, rows, part_rows, 0, part_columns)
    _transpose_parts(plane, to, source, element, 0, rows, columns, part_columns)
    _copy_part(plane, to, source, element, part_rows, plane.rows, 0, plane.columns)
    _copy_part(plane, to, source, element, 0, part_rows, part_columns, plane.columns)


def _transpose_parts(
    plane: _PlaneRecord,
    to: address,
    source: address,
    element: i64,
    row: i64,
    rows: i64,
    column: i64,
    columns: i64,
) -> None:
    """Rows and columns whose numbers are those of whole vectors."""
    step = PART // element
    for n in range((columns - column) // step):
        target = to + (row * plane.to_row + column * element + n * PART)
        origin = source + (row * element + (column + n * step) * plane.source_column)
        for _ in range((rows - row) // step):
            transpose_part(target, plane.to_row, origin, plane.source_column, element)
            target += step * plane.to_row
            origin += PART


def _copy_part(
    plane: _PlaneRecord,
    to: address,
    source: address,
    piece: i64,
    first_row: i64,
    rows: i64,
    first_column: i64,
    columns: i64,
) -> None:
    """Rows and columns in tiles."""
    for row in range(first_row, rows, _ROWS):
        for column in range(first_column, columns, _COLUMNS):
            count = min(_COLUMNS, columns - column)
            target = to + (row * plane.to_row + column * plane.to_column)
            origin = source + (row * plane.source_row + column * plane.source_column)
            for _ in range(row, min(row + _ROWS, rows)):
                _copy_row(target, origin, plane.to_column, plane.source_column, piece, count)
                target += plane.to_row
                origin += plane.source_row


@inline
def _copy_row(to: address, source: address, to_stride: i64, source_stride: i64, piece: i64, count: i64) -> None:
    """Pieces of one dimension."""
    if piece == 4:
        for _ in range(count):
            _FourBytes.at(to).value = _FourBytes.at(source).value
            to += to_stride
            source += source_stride
    elif piece == 8:
        for _ in range(count):
            _EightBytes.at(to).value = _EightBytes.at(source).value
            to += to_stride
            source += source_stride
    elif piece == 1:
        for _ in range(count):
            _OneByte.at(to).value = _OneByte.at(source).value
            to += to_stride
            source += source_stride
    elif piece == 2:
        for _ in range(count):
            _TwoBytes.at(to).low = _TwoBytes.at(source).low
            _TwoBytes.at(to).high = _TwoBytes.at(source).high
            to += to_stride
            source += source_stride
    elif piece == 16:
        for _ in range(count):
            copy_memory(to, source, 16)
            to += to_stride
            source += source_stride
    else:
        for _ in range(count):
            copy_memory(to, source, piece)
            to += to_stride
            source += source_stride
