"""Collectives as the native engine takes them: what `shardc.native.collectives.work` is told about a call, and its
code.

One `WorkCode` serves a process; the function of a reduction of an element type is made, or read from the cache, when
the first call needs it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial

from shardc.collectives.call.call import BufferRef, CollectiveCall
from shardc.hlo.ir.types import DType
from shardc.native.collectives.ragged import RaggedRows
from shardc.native.collectives.reducing import REDUCE, reducing_module
from shardc.native.collectives.work import (
    COPY,
    OPS,
    RESOLVE,
    ROWS,
    WORK,
    WORK_SYMBOLS,
    Cell,
    WorkCall,
    WorkOperand,
    work_ir,
)
from shardc.native.llvm.jit import Loaded, compile_ir, load_object
from shardc.native.llvm.target import Target, host_target
from shardc.native.memory.copying import LINE, copying_module
from shardc.native.threads.pool import Row

__all__ = ["Keep", "MadeCall", "WorkCode", "cell_of", "make_object", "rows_of", "strips_of", "work_code"]

#: Keeps objects: (IR text, target, what compiles it) -> the object file.
Keep = Callable[[str, Target, Callable[[], bytes]], bytes]

#: Bytes of a result from which on it is written past the caches.
_STREAMED = 8 << 20


def make_object(module: object, target: Target, keep: Keep | None) -> bytes:
    """The object file of a module, or of its text, from ``keep`` if that is given."""
    text = str(module)
    make = partial(compile_ir, text, target)
    return make() if keep is None else keep(text, target, make)


@dataclass(frozen=True, eq=False)
class MadeCall:
    """A call over groups of ``members`` as native code reads it; lives as long as that may."""

    record: WorkCall
    table: ctypes.Array[WorkOperand]
    code: WorkCode

    @property
    def address(self) -> int:
        return ctypes.addressof(self.record)


@dataclass(frozen=True, eq=False)
class WorkCode:
    """The engine's functions in this process."""

    target: Target
    keep: Keep | None
    loaded: Loaded
    _reducers: dict[tuple[str, str], Loaded] = field(default_factory=dict)

    @property
    def work(self) -> int:
        """The address of ``void (ptr call, ptr operands, ptr results, i64 part, i64 parts)``."""
        return self.loaded.address(WORK)

    @property
    def resolve(self) -> int:
        """The address of ``void (ptr cells, i64 count, ptr out)``."""
        return self.loaded.address(RESOLVE)

    @property
    def copy(self) -> int:
        """The address of ``void (ptr to, ptr from, i64 bytes, i64 streaming)``."""
        return self.loaded.address(COPY)

    @property
    def rows(self) -> int:
        """The address of ``i64 (ptr call, ptr operands)``, which checks a ragged exchange."""
        return self.loaded.address(ROWS)

    def reducer(self, reduction: str, dtype: DType) -> int:
        """The address of the function that reduces elements of ``dtype``, see `shardc.native.collectives.reducing`."""
        key = (reduction, dtype.name)
        found = self._reducers.get(key)
        if found is None:
            made = make_object(reducing_module(reduction, dtype, self.target), self.target, self.keep)
            found = self._reducers.setdefault(key, load_object(made, [REDUCE]))
        return found.address(REDUCE)

    def call(self, call: CollectiveCall, members: int) -> MadeCall:
        """What the engine is told about ``call`` over groups of ``members`` (a permute's pairs have one)."""
        members = 1 if call.op == "collective-permute" else members
        reduces = call.op in ("all-reduce", "reduce-scatter")
        table = (WorkOperand * max(1, len(call.operands)))()
        lines = moved = most = 0
        for row, o in zip(table, call.operands, strict=False):
            row.count, row.nbytes = o.count, o.dtype.nbytes
            row.reduce = self.reducer(call.reduction, o.dtype) if reduces else None
            length = o.result.nbytes if call.ragged else o.count * o.dtype.nbytes
            strips, length = strips_of(call.op, members, length)
            lines += strips * -(-length // LINE)
            moved += members * (o.operand.nbytes + o.result.nbytes)
            most = max(most, o.result.nbytes)
        record = WorkCall(
            OPS.index(call.op),
            members,
            len(call.operands),
            ctypes.addressof(table),
            lines,
            moved,
            int(most >= _STREAMED),
            rows_of(call, members),
        )
        return MadeCall(record, table, self)


def rows_of(call: CollectiveCall, members: int) -> RaggedRows:
    """The sizes of a ragged exchange; zeros for other collectives."""
    s = call.ragged
    if s is None:
        return RaggedRows()
    return RaggedRows(call.operands[2].count // members, s.data_rows, s.output_rows, s.row_bytes)


def strips_of(op: str, members: int, nbytes: int) -> tuple[int, int]:
    """(strips of an operand of ``nbytes``, bytes of one)."""
    return {
        "all-gather": (members, nbytes),
        "reduce-scatter": (members, nbytes // members),
        "all-to-all": (members * members, nbytes // members),
    }.get(op, (1, nbytes))


@cache
def work_code(target: Target | None = None, keep: Keep | None = None) -> WorkCode:
    """The engine's code for this process, one per ``keep``."""
    target = target or host_target()
    objects = [make_object(text, target, keep) for text in (work_ir(target), copying_module(target))]
    return WorkCode(target, keep, load_object(objects, WORK_SYMBOLS))


def cell_of(row: Row, ref: BufferRef) -> Cell:
    """Where ``ref`` of the device of ``row`` lies, found anew in its tables whenever it is asked.

    ``row`` and its tables must stay where they are.
    """
    if ref.space in ("argument", "result"):
        tables = row.arguments if ref.space == "argument" else row.results
        return Cell(tables + ctypes.sizeof(ctypes.c_void_p) * ref.index, ref.offset)
    field = "arena" if ref.space == "arena" else "constants"
    return Cell(ctypes.addressof(row) + Row.offset_of(field), ref.offset)
