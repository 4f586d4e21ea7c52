"""Copies of arrays between memory whose dimensions lie in different orders, with strides of any sign.

`StridesRecord` is a plan: dimensions of one element are left out, those that lie alike on both sides are merged, and
what remains innermost is copied as one piece where it is dense. Else the loops go through the elements in blocks of the
two innermost dimensions, so that a transposition uses each cache line that it loads.
"""

from __future__ import annotations

from typing import Annotated

from shardc.native.lowlevel.builtins import as_u64, copy_memory, inline, local_array
from shardc.native.lowlevel.kinds import Count, address, i64, u8, u32, u64
from shardc.native.lowlevel.records import Record, Span

__all__ = ["MAX_RANK", "StridesRecord", "add_dimension", "begin_strides", "copy_strided"]

#: Dimensions that an array may have.
MAX_RANK = 64

#: Elements of two dimensions that are copied together. In a transposition a tile reads as many cache lines as it has
#: columns, often with the same place in a cache, which has room for eight such at least.
_ROWS, _COLUMNS = 16, 8


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
    for k in range(plan.rank):
        if plan.dims[k] == 0:
            return
    if plan.rank == 0:
        copy_memory(to, source, plan.piece)
        return
    inner = min(plan.rank, 2)
    at = local_array(64, MAX_RANK)
    for k in range(plan.rank):
        at[k] = 0
    while True:
        _copy_plane(plan, to, source)
        k = inner
        while k < plan.rank:
            at[k] += 1
            to += plan.to[k]
            source += plan.source[k]
            if at[k] < as_u64(plan.dims[k]):
                break
            at[k] = 0
            to -= plan.to[k] * plan.dims[k]
            source -= plan.source[k] * plan.dims[k]
            k += 1
        if k == plan.rank:
            return


def _copy_plane(plan: StridesRecord, to: address, source: address) -> None:
    """The one or two innermost dimensions, in tiles."""
    rows = plan.dims[1] if plan.rank > 1 else 1
    to_row = plan.to[1] if plan.rank > 1 else 0
    source_row = plan.source[1] if plan.rank > 1 else 0
    columns = plan.dims[0]
    for row in range(0, rows, _ROWS):
        for column in range(0, columns, _COLUMNS):
            count = min(_COLUMNS, columns - column)
            target = to + (row * to_row + column * plan.to[0])
            origin = source + (row * source_row + column * plan.source[0])
            for _ in range(row, min(row + _ROWS, rows)):
                _copy_row(target, origin, plan.to[0], plan.source[0], plan.piece, count)
                target += to_row
                origin += source_row


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
    else:
        for _ in range(count):
            copy_memory(to, source, piece)
            to += to_stride
            source += source_stride
