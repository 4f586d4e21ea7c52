"""Ragged exchanges: rows whose number each sender decides, checked and copied; functions of the low-level language.

A member sends update ``u`` of its ``members * per_peer`` to the member at position ``u // per_peer``: ``sizes[u]`` rows
of its data from row ``starts[u]`` on, which begin at row ``targets[u]`` of the receiver's output. The receiver is told
in ``received`` how many rows come, sender by sender. All of these are tables of i64.
"""

from __future__ import annotations

from typing import Annotated

from shardc.native.lowlevel.builtins import copy_memory, inline
from shardc.native.lowlevel.kinds import Count, Pointer, address, i64
from shardc.native.lowlevel.records import Record, Span

__all__ = ["RaggedRows", "RaggedTables", "copy_rows", "is_inside", "keep_output", "row_bytes_received", "rows_fit"]


class RaggedRows(Record):
    """The sizes of an exchange: updates from each member to each, rows of the data and of the output, and their
    bytes."""

    per_peer: i64
    data_rows: i64
    output_rows: i64
    row_bytes: i64


class RaggedTables(Record):
    """What one receiver reads: where ``members`` senders have their tables, of which its updates begin at ``first``.

    A sender's starts are null where it is far away and checks them itself.
    """

    rows: Pointer[RaggedRows]
    starts: Span[address]
    sizes: Span[address]
    targets: Span[address]
    received: address
    first: i64
    members: i64


class _TableWords(Record):
    word: Annotated[Span[i64], Count(0)]


@inline
def _word(table: address, k: i64) -> i64:
    return _TableWords.at(table).word[k]


@inline
def is_inside(begin: i64, size: i64, rows: i64) -> bool:
    """Whether there are ``size`` rows from row ``begin`` on."""
    return begin >= 0 and size >= 0 and size <= rows and begin <= rows - size


def rows_fit(t: RaggedTables) -> bool:
    """Whether all rows that come lie in the data and in the output, as many as the receiver expects, none twice."""
    rows = t.rows
    for sender in range(t.members):
        for n in range(rows.per_peer):
            u = t.first + n
            size = _word(t.sizes[sender], u)
            if _word(t.received, sender * rows.per_peer + n) != size:
                return False
            if not is_inside(_word(t.targets[sender], u), size, rows.output_rows):
                return False
            if t.starts[sender] != 0 and not is_inside(_word(t.starts[sender], u), size, rows.data_rows):
                return False
    return _ascends(t, 1) or _ascends(t, 0) or _are_apart(t)


def _ascends(t: RaggedTables, by_sender: i64) -> bool:
    """Whether every update ends where the next one begins, or before, in the order of senders, or of their updates."""
    reached = 0
    each = t.rows.per_peer
    for k in range(t.members * each):
        sender = k // each if by_sender != 0 else k % t.members
        u = t.first + (k % each if by_sender != 0 else k // t.members)
        size = _word(t.sizes[sender], u)
        if size > 0:
            begin = _word(t.targets[sender], u)
            if begin < reached:
                return False
            reached = begin + size
    return True


def _are_apart(t: RaggedTables) -> bool:
    """Whether no two updates have a row in common."""
    each = t.rows.per_peer
    for k in range(t.members * each):
        size = _word(t.sizes[k // each], t.first + k % each)
        begin = _word(t.targets[k // each], t.first + k % each)
        for m in range(k):
            other = _word(t.targets[m // each], t.first + m % each)
            count = _word(t.sizes[m // each], t.first + m % each)
            if count > 0 and size > 0 and begin < other + count and other < begin + size:
                return False
    return True


def row_bytes_received(t: RaggedTables) -> i64:
    """The bytes of the rows that come."""
    total = 0
    for k in range(t.members * t.rows.per_peer):
        total += _word(t.received, k)
    return total * t.rows.row_bytes


def keep_output(output: address, result: address, low: i64, high: i64) -> None:
    """Bytes ``low`` to ``high`` of a result that has memory of its own begin as the output's."""
    if output != result and high > low:
        copy_memory(result + low, output + low, high - low)


def copy_rows(t: RaggedTables, sender: i64, data: address, result: address, low: i64, high: i64) -> None:
    """Bytes ``low`` to ``high`` of the result get the rows of a sender that lie there; wrong updates are left out."""
    rows = t.rows
    for u in range(t.first, t.first + rows.per_peer):
        begin = _word(t.starts[sender], u)
        size = _word(t.sizes[sender], u)
        target = _word(t.targets[sender], u)
        if is_inside(begin, size, rows.data_rows) and is_inside(target, size, rows.output_rows):
            first = max(target * rows.row_bytes, low)
            last = min((target + size) * rows.row_bytes, high)
            if first < last:
                copy_memory(result + first, data + ((begin - target) * rows.row_bytes + first), last - first)
