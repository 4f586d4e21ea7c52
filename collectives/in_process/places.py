"""Where the operands and results of virtual devices' collectives lie: columns over all devices at once."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.call import BufferRef, CollectiveCall, CollectiveOperand
from shardc.collectives.call.memory import PASSED_BY
from shardc.collectives.in_process.sections import VirtualSections
from shardc.native.threads.pool import Row

__all__ = ["VirtualPlaces"]

_Numbers = NDArray[np.int64]
_Mask = NDArray[np.bool_]
#: Words of a `Cell`: where the pointer is found, and what is added to it.
_BASE, _OFFSET, _WORDS = 0, 1, 2
_FIELDS = {"arena": Row.offset_of("arena"), "constant": Row.offset_of("constants")}


class VirtualPlaces:
    """The cells (`shardc.native.collectives.work.Cell`, as pairs of words) of ``rows``, which stay where they are.

    A cell is null where nothing is read or written: a device without a source, and one for which another device of its
    group gets the result in the same memory (``sections``), or computes on (`CollectiveOperand.wanted`).
    """

    def __init__(self, rows: ctypes.Array[Row], sections: VirtualSections) -> None:
        self._rows, self._sections = rows, sections
        words = np.frombuffer(memoryview(rows).cast("B"), np.int64).reshape(len(rows), -1)
        self._arenas, self._arguments, self._results = (words[:, n] for n in range(3))
        self._row_addresses = ctypes.addressof(rows) + ctypes.sizeof(Row) * np.arange(len(rows))
        self._devices = words[:, Row.offset_of("device") // 8]
        self._place = np.zeros(int(self._devices.max(initial=0)) + 1, np.int64)
        self._place[self._devices] = np.arange(len(rows))
        masks = [ctypes.c_uint64.from_address(int(a) + PASSED_BY).value for a in self._arenas]
        self._passed_by = np.array(masks, np.uint64)

    def group_cells(self, call: CollectiveCall, members: Sequence[Sequence[int]]) -> _Numbers:
        """Cells of operands, then of results: group by group, operand by operand, member by member."""
        places = self._place[np.array(members, np.int64)]
        cells = np.zeros((2, len(places), len(call.operands), places.shape[1], _WORDS), np.int64)
        for n, o in enumerate(call.operands):
            cells[0, :, n] = self._cells(o.operand)[places]
            cells[1, :, n] = self._result_cells(o)[places]
        return cells.reshape(2, -1, _WORDS)

    def permute_cells(self, call: CollectiveCall, pairs: Sequence[Sequence[int]]) -> _Numbers:
        """The same with every device as a target; who has no source gets zeros."""
        source = np.full(len(self._rows), -1)
        for begin, end in pairs:
            source[self._place[end]] = self._place[begin]
        cells = np.zeros((2, len(self._rows), len(call.operands), _WORDS), np.int64)
        for n, o in enumerate(call.operands):
            cells[0, :, n] = np.where(source[:, None] < 0, 0, self._cells(o.operand)[source])
            cells[1, :, n] = self._result_cells(o)
        return cells.reshape(2, -1, _WORDS)

    def _cells(self, ref: BufferRef) -> _Numbers:
        """Where ``ref`` of each row lies, found anew in its tables whenever it is asked."""
        cells = np.empty((len(self._rows), _WORDS), np.int64)
        if ref.space in _FIELDS:
            cells[:, _BASE] = self._row_addresses + _FIELDS[ref.space]
        else:
            tables = self._arguments if ref.space == "argument" else self._results
            cells[:, _BASE] = tables + ctypes.sizeof(ctypes.c_void_p) * ref.index
        cells[:, _OFFSET] = ref.offset
        return cells

    def _result_cells(self, operand: CollectiveOperand) -> _Numbers:
        """The cells of an operand's result, null for who needs none."""
        needed = ~self._sections.followers(self._arenas, operand.result)
        if operand.wanted >= 0:
            needed &= self._passed_by >> np.uint64(operand.wanted) & np.uint64(1) == 0
        return np.where(needed[:, None], self._cells(operand.result), 0)
