"""The collective executor of virtual devices in this process: see `shardc.native.collectives.virtual`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.call import CollectiveCall
from shardc.collectives.call.membership import connected_processes
from shardc.collectives.call.ragged import ragged_fault
from shardc.collectives.engine.engine_calls import MadeCall, WorkCode, make_object
from shardc.collectives.in_process.places import VirtualPlaces
from shardc.collectives.in_process.sections import VirtualSections
from shardc.hlo.errors import RunError
from shardc.native.collectives.virtual import VIRTUAL, VirtualCall, virtual_ir
from shardc.native.collectives.work import RAGGED, RESOLVE, ROWS, WORK, WRONG_ROWS, Cell
from shardc.native.llvm.jit import Loaded, load_object
from shardc.native.llvm.symbols import PARALLEL
from shardc.native.lowlevel.records import Span, address_of
from shardc.native.threads.pool import Pool, Row

__all__ = ["DeviceMeeting", "InProcessExecutor"]

#: Bytes read and written that are worth a call of the pool, and those of a share.
_PARALLEL, _SHARE = 256 << 10, 256 << 10
#: Bytes that one thread moves in a microsecond, roughly.
_SPEED = 10_000
#: The spaces that are where they were in every step.
_FIXED = frozenset({"arena", "constant"})


@dataclass(frozen=True, eq=False)
class _InProcessCall:
    """A collective's native record, and what it points to."""

    record: VirtualCall
    call: MadeCall
    cells: NDArray[np.int64]
    pointers: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DeviceMeeting:
    """Devices that must have come to a collective, and the numbers of its groups that then can be done."""

    devices: tuple[int, ...]
    groups: tuple[int, ...]


class InProcessExecutor:
    """Does ``calls`` among the devices of ``rows``, which are all there are.

    ``members`` are the groups (or pairs) of each call. Rows and their tables stay where they are. What lies in
    ``sections`` is written by one device of a group.
    """

    threads = 0

    def __init__(
        self,
        calls: Sequence[CollectiveCall],
        members: Sequence[Sequence[Sequence[int]]],
        rows: ctypes.Array[Row],
        pool: Pool,
        code: WorkCode,
        sections: VirtualSections,
    ) -> None:
        self._loaded = _load(code, pool)
        self.function = self._loaded.address(VIRTUAL)
        places = VirtualPlaces(rows, sections)
        self._made = [_make(call, groups, places, code) for call, groups in zip(calls, members, strict=True)]
        self._table = (VirtualCall * (1 + max((c.index for c in calls), default=0)))()
        for call, made in zip(calls, self._made, strict=True):
            self._table[call.index] = made.record
        self._keep = (rows, pool, sections)
        self._code = code
        self._devices = tuple(int(row.device) for row in rows)
        self._calls = {c.index: (c, m) for c, m in zip(calls, members, strict=True)}
        self._meetings: dict[int, tuple[DeviceMeeting, ...]] = {}
        self.state = ctypes.addressof(self._table)

    @cached_property
    def _work(self) -> Callable[[int, Span[int], Span[int], int, int], None]:
        return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)(self._code.work)

    @cached_property
    def _rows(self) -> Callable[[int, Span[int]], int]:
        return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 2)(self._code.rows)

    def meetings(self, index: int) -> tuple[DeviceMeeting, ...]:
        """Who meets in collective ``index`` (nobody, if there is none); a device that meets nobody is there alone."""
        if index not in self._meetings and index in self._calls:
            call, members = self._calls[index]
            self._meetings[index] = _meetings(call, members, self._devices)
        return self._meetings.get(index, ())

    def meet(self, index: int, meeting: DeviceMeeting) -> None:
        """Do collective ``index`` for one meeting whose devices stand still; others may be elsewhere."""
        record = self._table[index]
        if record.moving:
            _resolve(self._code, record.cells, record.moving, record.pointers)
        for group in meeting.groups:
            operands = record.pointers.behind(group * record.pointers_per_group)
            if record.work.op == RAGGED:
                moved = self._rows(address_of(record.work), operands)
                if moved < 0:
                    raise self.failure(WRONG_ROWS, index)
                record.row_bytes += moved
            results = operands.behind(record.groups * record.pointers_per_group)
            self._work(address_of(record.work), operands, results, 0, 1)

    def tick(self) -> None:
        """Never called: nobody waits for anybody."""

    def failure(self, code: int, index: int) -> BaseException:
        fault = self._ragged_fault(index) if code == WRONG_ROWS else None
        return fault or RunError(
            f"collective {index} failed with {code}", fix="this is a compiler error: please report it"
        )

    def _ragged_fault(self, index: int) -> BaseException | None:
        """The first group whose rows do not fit."""
        record = self._table[index]
        call, groups = self._calls[index]
        words = record.pointers_per_group
        for n, group in enumerate(groups):
            found = ragged_fault(call, group, [record.pointers[n * words + k] for k in range(words)])
            if found is not None:
                return found
        return None

    def row_bytes(self) -> Mapping[int, float]:
        """For each ragged exchange by index: the bytes of rows that a device has sent so far, on average."""
        ragged = (n for n, (call, _) in self._calls.items() if call.ragged)
        return {n: self._table[n].row_bytes / len(self._devices) for n in ragged}

    def close(self) -> None:
        """Nothing outlives the collective executor."""


@cache
def _load(code: WorkCode, pool: Pool) -> Loaded:
    made = make_object(virtual_ir(code.target), code.target, code.keep)
    addresses = {WORK: code.work, RESOLVE: code.resolve, ROWS: code.rows, PARALLEL: pool.address()}
    return load_object(made, [VIRTUAL], addresses)


def _resolve(code: WorkCode, cells: Span[Cell] | int, count: int, pointers: Span[int] | int) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(code.resolve)(cells, count, pointers)


def _meetings(
    call: CollectiveCall, members: Sequence[Sequence[int]], devices: Sequence[int]
) -> tuple[DeviceMeeting, ...]:
    """Groups by their number in the record; in a permute every device has a group of its own."""
    if call.op != "collective-permute":
        return tuple(DeviceMeeting(tuple(group), (n,)) for n, group in enumerate(members))
    number = {d: n for n, d in enumerate(devices)}
    together: dict[int, list[int]] = {}
    for device, first in enumerate(connected_processes(members, np.arange(len(devices)), len(devices))):
        together.setdefault(first, []).append(device)
    return tuple(DeviceMeeting(tuple(group), tuple(number[d] for d in group)) for group in together.values())


def _make(
    call: CollectiveCall, members: Sequence[Sequence[int]], places: VirtualPlaces, code: WorkCode
) -> _InProcessCall:
    """The record of ``call``, which has something to do for each of the groups (or pairs) in ``members``."""
    permutes = call.op == "collective-permute"
    cells = places.permute_cells(call, members) if permutes else places.group_cells(call, members)
    size = len(members[0]) if members and not permutes else 1
    groups = cells.shape[1] // max(1, size * len(call.operands))
    made = code.call(call, size)
    pointers = np.zeros(cells.shape[:2], np.int64)
    _resolve(code, cells.ctypes.data, pointers.size, pointers.ctypes.data)
    refs = [r for o in call.operands for r in (o.operand, o.result)]
    moved = made.record.bytes * groups
    record = VirtualCall(
        made.address,
        groups,
        size * len(call.operands),
        pointers.ctypes.data,
        cells.ctypes.data,
        0 if all(r.space in _FIXED for r in refs) else pointers.size,
        -(-made.record.bytes // _SHARE) if moved >= _PARALLEL else 0,
        moved * 1000 // _SPEED,
    )
    return _InProcessCall(record, made, cells, pointers)
