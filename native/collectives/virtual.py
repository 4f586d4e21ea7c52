"""Collectives among the devices of one process: pointers from the devices' tables, then the work, natively.

::

    i32 shardc_virtual(ptr state, i32 index, i32 phase, i64 deadline)

is a collective executor (`shardc.native.drive.drive_loop`) for a program all of whose devices stand still in this
process when it is called. It does a whole collective, or at its start; at its done there is nothing left. Small ones
are done by the caller; of large ones every group's shares are pieces of a job for the thread pool.
"""

from __future__ import annotations

from shardc.native.collectives.work import RAGGED, WRONG_ROWS, Cell, WorkCall, check_rows, do_work, resolve
from shardc.native.drive.drive_loop import DONE_PHASE
from shardc.native.llvm.target import Target
from shardc.native.lowlevel.builtins import exported
from shardc.native.lowlevel.kinds import Pointer, address, i32, i64
from shardc.native.lowlevel.module import compile_functions
from shardc.native.lowlevel.records import Record, Span, address_of
from shardc.native.threads.pool_jobs import parallel

__all__ = ["VIRTUAL", "VirtualCall", "perform_in_process", "virtual_ir"]

VIRTUAL = "shardc_virtual"


class VirtualCall(Record):
    """A collective of the program; the executor's state is an array of these by index.

    The operands of ``groups`` groups and then their results are at ``pointers``, ``pointers_per_group`` each. They are
    found anew in ``moving`` ``cells`` for every collective (0: they stay). ``shares`` are those of a group, 0 where the
    caller does everything itself; ``nanoseconds`` is about what all of it takes one thread. ``row_bytes`` are those of
    all rows that a ragged exchange has moved so far.
    """

    work: Pointer[WorkCall]
    groups: i64
    pointers_per_group: i64
    pointers: Span[address]
    cells: Span[Cell]
    moving: i64
    shares: i64
    nanoseconds: i64
    row_bytes: i64


@exported(VIRTUAL)
def perform_in_process(calls: Span[VirtualCall], index: i32, phase: i32, deadline: i64) -> i32:
    """A whole collective, or at its start; at its done there is nothing left."""
    if phase == DONE_PHASE:
        return 0
    call = calls[index]
    if call.moving != 0:
        resolve(call.cells, call.moving, call.pointers)
    if call.work.op == RAGGED:
        for group in range(call.groups):
            moved = check_rows(call.work, call.pointers.behind(group * call.pointers_per_group))
            if moved < 0:
                return WRONG_ROWS
            call.row_bytes += moved
    if call.shares == 0:
        _do_shares(address_of(call), 0, call.groups)
    else:
        parallel(_do_shares, address_of(call), call.groups * call.shares, call.nanoseconds)
    return 0


def _do_shares(context: address, begin: i64, end: i64) -> None:
    """Shares of groups, as the pool calls it."""
    call = VirtualCall.at(context)
    parts = max(call.shares, 1)
    results = call.pointers.behind(call.pointers_per_group * call.groups)
    for piece in range(begin, end):
        group = piece // parts
        skipped = group * call.pointers_per_group
        do_work(call.work, call.pointers.behind(skipped), results.behind(skipped), piece - group * parts, parts)


def virtual_ir(target: Target | None = None) -> str:
    """The IR text of `VIRTUAL`; it calls the work, the resolving of cells and the pool by their names."""
    return compile_functions((perform_in_process,), target)
