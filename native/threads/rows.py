"""Devices that run a step function, one call for each; the pool and the drive loop share it."""

from __future__ import annotations

from collections.abc import Callable

from shardc.native.lowlevel.builtins import as_i32
from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.records import Record, Span

__all__ = ["Row", "Step", "run_rows"]

#: A program's function: from an arena, tables of arguments and results, constants and a device to an answer.
Step = Callable[[address, address, address, address, i32], i32]


class Row(Record):
    """A call of a step function: its arguments, and the place of its answer."""

    arena: address
    arguments: address
    results: address
    constants: address
    device: i64
    answer: i64


def run_rows(step: Step, rows: Span[Row], begin: i64, end: i64) -> None:
    """The devices of rows ``begin`` to ``end`` to their next stop, one after the other on this thread."""
    for k in range(begin, end):
        row = rows[k]
        row.answer = step(row.arena, row.arguments, row.results, row.constants, as_i32(row.device))
