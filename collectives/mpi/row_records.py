"""What native code is told of the rows of ragged exchanges, and what it means when they do not fit."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.call import CollectiveCall
from shardc.collectives.call.ragged import name_devices
from shardc.collectives.engine.engine_calls import rows_of
from shardc.collectives.engine.steps import (
    CheckRowsStep,
    CopyRowsStep,
    MessageStep,
    ReceiveRowsStep,
    RowTables,
    SendRowsStep,
    StepPlace,
)
from shardc.hlo.errors import RunError
from shardc.hlo.ragged_rows import RaggedGroup
from shardc.native.collectives import messages as native

__all__ = ["RowRecords"]

_WORD = 8
_Tables = Sequence[NDArray[np.int64] | None]
_NOWHERE = native.Cell()


@dataclass
class RowRecords:
    """The records of one call over ``groups``; ``rank_of`` gives the rank that runs a device, for messages."""

    call: CollectiveCall
    groups: Sequence[tuple[int, ...]]
    cell_of: Callable[[StepPlace], native.Cell]
    rank_of: Callable[[int], int]
    keep: list[Any] = field(default_factory=list)
    _incoming: dict[int, native.IncomingRows] = field(default_factory=dict)

    def fill(self, row: native.StepRecord, step: MessageStep) -> None:
        """The record of a step that has to do with rows; others are left alone."""
        match step:
            case CheckRowsStep(tables):
                row.op, row.table = native.MessageOp.CHECK_ROWS, self._record(tables)
            case CopyRowsStep(tables):
                row.op, row.table = native.MessageOp.COPY_ROWS, self._record(tables, step)
            case SendRowsStep(process, part, kind) | ReceiveRowsStep(process, part, kind):
                op = native.MessageOp
                row.op = op.SEND_ROWS if isinstance(step, SendRowsStep) else op.RECEIVE_ROWS
                row.peer, row.kind, row.nbytes, row.cell = process, kind, part.nbytes, self.cell_of(part.place)
                assert self.call.ragged is not None
                words = (self.cell_of(part.begin), self.cell_of(part.size))
                row.table = self._keep_alive(native.PartRecord(*words, part.rows, self.call.ragged.row_bytes, part.low))

    def row_bytes(self) -> float:
        """The bytes of rows that have come to a device of this process, on average."""
        counts = [int(r.arrived) for r in self._incoming.values()]
        return sum(counts) / max(1, len(counts))

    def fault(self, step: MessageStep) -> RunError | None:
        """What did not fit in ``step``."""
        match step:
            case CheckRowsStep(tables):
                return self._incoming_fault(tables)
            case SendRowsStep(_, part, _):
                return self._sending_fault(part.place.device)
        return None

    def _record(self, tables: RowTables, copies: CopyRowsStep | None = None) -> int:
        """The record of what comes to a device; a copy completes that of the check."""
        m = len(tables.senders)
        known = self._incoming.get(tables.receiver)
        if known is None:
            cells, pointers = (native.Cell * (4 * m + 3))(), (ctypes.c_void_p * (4 * m + 3))()
            self.keep.append(pointers)
            rows = rows_of(self.call, m)
            known = native.IncomingRows(rows, m, self._keep_alive(cells), ctypes.addressof(pointers))
            self._incoming[tables.receiver] = known
            places = (*tables.starts, *tables.sizes, *tables.targets)
            for k, place in enumerate(places):
                cells[k] = _NOWHERE if place is None else self.cell_of(place)
            cells[4 * m] = self.cell_of(tables.received)
        if copies is not None:
            for k, place in enumerate(copies.data):
                known.cells[3 * m + k] = _NOWHERE if place is None else self.cell_of(place)
            known.cells[4 * m + 1], known.cells[4 * m + 2] = self.cell_of(copies.output), self.cell_of(copies.result)
        return ctypes.addressof(known)

    def _keep_alive(self, record: Any) -> int:
        self.keep.append(record)
        return ctypes.addressof(record)

    def _read(self, place: StepPlace, count: int) -> NDArray[np.int64]:
        """Words that lie at a place now."""
        cell = self.cell_of(place)
        base = ctypes.c_int64.from_address(cell.base).value
        return np.frombuffer(ctypes.string_at(base + cell.offset, _WORD * count), np.int64)

    def _fault(self, devices: Sequence[int], starts: _Tables, *others: Sequence[NDArray[np.int64]]) -> RunError | None:
        sizes, targets, received = others
        assert self.call.ragged is not None
        rows = (self.call.ragged.data_rows, self.call.ragged.output_rows)
        group = RaggedGroup(devices, starts, sizes, targets, received, *rows, name_devices(self.rank_of))
        return group.fault(self.call.source or f"%{self.call.name}")

    def _incoming_fault(self, tables: RowTables) -> RunError | None:
        """As if the senders had nothing for others."""
        m, total = len(tables.senders), self.call.operands[2].count
        at, count = tables.senders.index(tables.receiver) * (total // m), total // m

        def whole(place: StepPlace) -> NDArray[np.int64]:
            table = np.zeros(total, np.int64)
            table[at : at + count] = self._read(place, count)
            return table

        received = [np.zeros(total, np.int64) for _ in range(m)]
        received[tables.senders.index(tables.receiver)] = self._read(tables.received, total)
        starts = [None if p is None else whole(p) for p in tables.starts]
        sizes, targets = ([whole(p) for p in places] for places in (tables.sizes, tables.targets))
        return self._fault(tables.senders, starts, sizes, targets, received)

    def _sending_fault(self, device: int) -> RunError | None:
        """What the device would send, whatever others do."""
        (group,) = (g for g in self.groups if device in g)
        total = self.call.operands[2].count
        zeros = np.zeros(total, np.int64)

        def alone(operand: int) -> list[NDArray[np.int64]]:
            return [self._read(StepPlace("operand", d, operand, 0), total) if d == device else zeros for d in group]

        starts, sizes, targets = map(alone, range(2, 5))
        return self._fault(group, starts, sizes, targets, [zeros] * len(group))
