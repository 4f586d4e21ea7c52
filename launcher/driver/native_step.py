"""A loaded step as native code runs it: its tables of addresses, its devices, and the loop over its collectives.

Who runs steps natively fills the tables, calls `run_step`, and asks the driver for what that cannot do
(`shardc.launcher.driver.step_driver.StepDriver.attend`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.native.drive.drive_loop import ANSWERED, FINISHED, HOST, HOSTED, WAIT, Prepared
from shardc.native.drive.records import DriveJob
from shardc.native.drive.stepping import AT_THE_END, rewind
from shardc.native.lowlevel.builtins import exported
from shardc.native.lowlevel.kinds import Pointer, i32, i64
from shardc.native.lowlevel.records import Record, Span, reference
from shardc.native.threads.pool import CONFIGURE, Pool
from shardc.native.threads.rows import Row, Step, run_rows

__all__ = ["DriverRecord", "NativeResult", "NativeStep", "ResultColumn", "native_step", "run_step"]


class NativeResult(Record):
    """A result: the bytes of a shard, and the argument whose memory it may take over (-1: none).

    ``block_of`` is by device the number of the block of memory with its shard, among those of all results. A device in
    ``follows`` writes its copy to memory that is never read, whose address in the table stays.
    """

    nbytes: i64
    source: i64
    block_of: Span[i64]
    follows: Span[i64]


class DriverRecord(Record):
    """A loaded step. The address of argument k of the device in row d is ``argument_table[d * argument_columns + k]``,
    that of a result likewise. ``job`` is the loop over its collectives; without one there is one row, and ``step`` is
    called for it. ``configure`` lets ``workers`` threads help, unless these are negative. ``argument_bytes`` are those
    of a shard. All results' shards are in ``blocks`` blocks of memory.
    """

    devices: i64
    arguments: i64
    results: i64
    argument_table: Span[i64]
    argument_columns: i64
    result_table: Span[i64]
    result_columns: i64
    argument_bytes: Span[i64]
    result_records: Span[NativeResult]
    blocks: i64
    job: Pointer[DriveJob] | None
    drive: Callable[[DriveJob], i32]
    step: Step
    rows: Span[Row]
    configure: Callable[[i32, i64], None]
    workers: i32
    spin: i64


@exported("shardc_run_step")
def run_step(step: DriverRecord) -> i32:
    """Run all devices from the beginning, or from the point where the loop returned, with the addresses of the tables.

    It answers as `shardc.native.drive.drive_loop` says; without a loop `FINISHED`, `HOSTED` or `ANSWERED`.
    """
    if step.workers >= 0:
        step.configure(step.workers, step.spin)
    job = step.job
    if job is not None:
        return step.drive(job)
    row = step.rows[0]
    rewind(step.rows, 1)
    run_rows(step.step, step.rows, 0, 1)
    if row.answer == AT_THE_END:
        return FINISHED
    return HOSTED if row.answer >= HOST and row.answer < WAIT else ANSWERED


@dataclass(frozen=True, eq=False)
class ResultColumn:
    """What a `NativeResult` is made of: by device which of its distinct shards it has, and whether it follows another
    device."""

    nbytes: int
    source: int
    shard_of: NDArray[np.int64]
    follows: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class NativeStep:
    """A `DriverRecord`, and what it points to."""

    record: DriverRecord
    keep: list[Any]

    def connect(self, loop: Prepared | None, helpers: tuple[Pool, int, int] | None) -> None:
        """Steps go over collectives by ``loop``, and workers help: ``helpers`` are a pool, how many of its workers may,
        and how long they watch for work."""
        record = self.record
        if loop is not None:
            record.job = reference(ctypes.addressof(loop.job))
            record.drive = reference(loop.drive)
        if helpers is not None:
            pool, record.workers, record.spin = helpers
            record.configure = reference(pool.address(CONFIGURE))
        self.keep.extend((loop, helpers))


def native_step(
    arguments: NDArray[np.int64],
    results: NDArray[np.int64],
    columns: Sequence[ResultColumn],
    argument_bytes: Sequence[int],
    step: int,
    rows: ctypes.Array[Row],
) -> NativeStep:
    """The record of a step over tables of addresses by device, still without a loop over collectives."""
    records = (NativeResult * max(1, len(columns)))()
    keep: list[Any] = [arguments, results, rows, records]
    blocks = 0
    for record, column in zip(records, columns, strict=False):
        block_of, follows = column.shard_of.astype(np.int64) + blocks, column.follows.astype(np.int64)
        keep += [block_of, follows]
        record.__init__(column.nbytes, column.source, block_of.ctypes.data, follows.ctypes.data)
        blocks += int(column.shard_of.max(initial=-1)) + 1
    sizes = np.array(argument_bytes, np.int64)
    keep.append(sizes)
    record = DriverRecord(
        len(rows),
        len(argument_bytes),
        len(columns),
        arguments.ctypes.data,
        arguments.shape[1],
        results.ctypes.data,
        results.shape[1],
        sizes.ctypes.data,
        ctypes.addressof(records),
        blocks,
        step=step,
        rows=ctypes.addressof(rows),
        workers=-1,
    )
    return NativeStep(record, keep)
