"""The performer of a program all of whose devices live in this process: see `shardc.native.virtual`."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from shardc.collectives.call import CollectiveCall, CollectiveOperand
from shardc.collectives.memory import wants_result
from shardc.collectives.work import MadeCall, WorkCode, cell_of, make_object
from shardc.hlo.errors import RunError
from shardc.native.jit import Loaded, load_object
from shardc.native.pool import Pool, Row
from shardc.native.symbols import PARALLEL
from shardc.native.virtual import VIRTUAL, VirtualCall, virtual_module
from shardc.native.work import RESOLVE, WORK, Cell

__all__ = ["VirtualPerformer"]

#: Bytes read and written that are worth a call of the pool, and those of a share.
_PARALLEL, _SHARE = 256 << 10, 256 << 10
#: Bytes that one thread moves in a microsecond, roughly.
_SPEED = 10_000
#: The spaces that are where they were in every step.
_FIXED = frozenset({"arena", "constant"})
#: Where nothing is read or written.
_NOBODY = Cell(None, 0)


@dataclass(frozen=True, eq=False)
class _Made:
    """A collective's native record, and what it points to."""

    record: VirtualCall
    call: MadeCall
    cells: ctypes.Array[Cell]
    pointers: ctypes.Array[ctypes.c_void_p]


class VirtualPerformer:
    """Does ``calls`` among the devices of ``rows``, which are all there are.

    ``members`` are the groups (or pairs) of each call. Rows and their tables stay where they are.
    """

    def __init__(
        self,
        calls: Sequence[CollectiveCall],
        members: Sequence[Sequence[Sequence[int]]],
        rows: ctypes.Array[Row],
        pool: Pool,
        code: WorkCode,
    ) -> None:
        self._loaded = _load(code, pool)
        self.function = self._loaded.address(VIRTUAL)
        by_device = {int(row.device): row for row in rows}
        self._made = [_make(call, groups, by_device, code) for call, groups in zip(calls, members, strict=True)]
        self._table = (VirtualCall * (1 + max((c.index for c in calls), default=0)))()
        for call, made in zip(calls, self._made, strict=True):
            self._table[call.index] = made.record
        self._keep = (rows, code, pool)
        self.state = ctypes.addressof(self._table)

    def tick(self) -> None:
        """Never called: nobody waits for anybody."""

    def failure(self, code: int, index: int) -> BaseException:
        return RunError(f"collective {index} failed with {code}", fix="this cannot be: please report it")

    def close(self) -> None:
        """Nothing outlives the performer."""


@cache
def _load(code: WorkCode, pool: Pool) -> Loaded:
    made = make_object(virtual_module(code.target), code.keep)
    addresses = {WORK: code.work, RESOLVE: code.resolve, PARALLEL: pool.address()}
    return load_object(made, [VIRTUAL], addresses)


def _make(call: CollectiveCall, members: Sequence[Sequence[int]], rows: Mapping[int, Row], code: WorkCode) -> _Made:
    operands, results = (
        _permuted(call, members, rows) if call.op == "collective-permute" else _grouped(call, members, rows)
    )
    size = len(members[0]) if members and call.op != "collective-permute" else 1
    groups = len(operands) // max(1, size * len(call.operands))
    made = code.call(call, size)
    cells = (Cell * max(1, 2 * len(operands)))(*operands, *results)
    pointers = (ctypes.c_void_p * len(cells))()
    resolve = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(code.resolve)
    resolve(cells, len(cells), pointers)
    refs = [r for o in call.operands for r in (o.operand, o.result)]
    moved = made.record.bytes * groups
    shares = -(-made.record.bytes // _SHARE) if moved >= _PARALLEL else 0
    record = VirtualCall(
        made.address,
        groups,
        size * len(call.operands),
        ctypes.addressof(pointers),
        ctypes.addressof(cells),
        0 if all(r.space in _FIXED for r in refs) else len(cells),
        shares,
        moved * 1000 // _SPEED,
    )
    return _Made(record, made, cells, pointers)


def _grouped(
    call: CollectiveCall, members: Sequence[Sequence[int]], rows: Mapping[int, Row]
) -> tuple[list[Cell], list[Cell]]:
    """Cells of operands and of results: group by group, operand by operand, member by member."""
    operands = [cell_of(rows[d], o.operand) for group in members for o in call.operands for d in group]
    results = [_result_of(rows[d], o) for group in members for o in call.operands for d in group]
    return operands, results


def _result_of(row: Row, operand: CollectiveOperand) -> Cell:
    return cell_of(row, operand.result) if wants_result(row, operand) else _NOBODY


def _permuted(
    call: CollectiveCall, pairs: Sequence[Sequence[int]], rows: Mapping[int, Row]
) -> tuple[list[Cell], list[Cell]]:
    """The same with every device as a target; who has no source gets zeros."""
    source_of = {target: source for source, target in pairs}
    operands = [
        cell_of(rows[source_of[d]], o.operand) if d in source_of else _NOBODY for d in rows for o in call.operands
    ]
    return operands, [_result_of(rows[d], o) for d in rows for o in call.operands]
