"""What a thread that performs collectives shows of itself: a part of its process's row in the control table.

Nobody locks it: the watchdogs of other processes read it at any time (`shardc.collectives.call.control_table`).
"""

from __future__ import annotations

from shardc.native.lowlevel.builtins import inline
from shardc.native.lowlevel.kinds import i64
from shardc.native.lowlevel.records import Record

__all__ = [
    "ARRIVING", "COMPUTING", "EXCHANGING", "EXPECTING", "FINISHING", "GONE", "OUTSIDE", "WORKING", "Status",
    "show_state",
]  # fmt: skip

#: ``Status.state``, see the control table.
OUTSIDE, ARRIVING, WORKING, FINISHING, COMPUTING, GONE, EXPECTING, EXCHANGING = range(8)


class Status(Record):
    """Fields as the control table explains them."""

    state: i64
    program: i64
    channel: i64
    sequence: i64
    index: i64
    phase: i64
    completed: i64
    since: i64


@inline
def show_state(status: Status, state: i64, since: i64) -> None:
    """Say what this thread does, and since when."""
    status.since = since
    status.state = state
