"""A program as a table of calls of routines: the calls lie one after another, each as long as it says."""

from __future__ import annotations

from shardc.native.lowlevel.kinds import i32, i64
from shardc.native.lowlevel.records import Record
from shardc.native.memory.strided_copies import StridesRecord

__all__ = [
    "ARENA", "ARGUMENT", "CLEAR", "CONSTANT", "END", "MOVE", "PRODUCT_F32", "PRODUCT_F64", "RESULT", "ROUTINE_STEP",
    "SORT", "ClearCall", "MoveCall", "Place", "ProductCall", "RoutineCall", "SortCall",
]  # fmt: skip

#: The name of the step that goes through a table.
ROUTINE_STEP = "shardc_routine_step"

#: Where an array lies, as in `BufferRef`.
ARENA, CONSTANT, ARGUMENT, RESULT = range(4)

#: What is called; `END` ends the table.
END, MOVE, CLEAR, PRODUCT_F32, PRODUCT_F64, SORT = range(6)


class Place(Record):
    """``offset`` bytes behind the beginning of the arena, the constants, or argument or result ``index``."""

    space: i32
    index: i32
    offset: i64


class RoutineCall(Record):
    """How every call begins: which routine, and where the next call is, in bytes behind this one."""

    routine: i64
    nbytes: i64


class MoveCall(Record):
    """``to`` becomes elements of ``source``, which do not overlap."""

    head: RoutineCall
    to: Place
    source: Place
    plan: StridesRecord


class ClearCall(Record):
    """``count`` bytes at ``to`` become zero."""

    head: RoutineCall
    to: Place
    count: i64


class ProductCall(Record):
    """``to[b, r, c] = sum over d of left[b, r, d] * right[b, d, c]``; all sizes are at least 1.

    The rest are elements from one index to the next; columns lie next to each other in ``right`` and ``to``.
    """

    head: RoutineCall
    to: Place
    left: Place
    right: Place
    batches: i64
    rows: i64
    columns: i64
    depth: i64
    to_batch: i64
    to_row: i64
    left_batch: i64
    left_row: i64
    left_depth: i64
    right_batch: i64
    right_depth: i64


class SortCall(Record):
    """Every row of elements of 4 bytes in rising order, stable: signed integers, or floats with NaNs at the end.

    ``rows`` have ``length`` elements that lie ``stride`` elements apart; between them lie those of ``stride`` - 1 other
    rows. ``scratch`` has 16 bytes for each element of a row.
    """

    head: RoutineCall
    to: Place
    source: Place
    scratch: Place
    rows: i64
    length: i64
    stride: i64
    is_float: i64
