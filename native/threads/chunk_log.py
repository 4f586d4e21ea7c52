"""What the pool's threads did: a stand-in for the pool's call that notes who computed which chunks, and when.

Only steps compiled for profiling are linked to it; it passes every job on to the pool itself.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from shardc.native.llvm.jit import Loaded, compile_ir, load_object
from shardc.native.lowlevel.builtins import exported, local, static
from shardc.native.lowlevel.kinds import Count, address, i64
from shardc.native.lowlevel.module import compile_functions
from shardc.native.lowlevel.records import RELAXED, Atomic, Record, Span, address_of
from shardc.native.lowlevel.system import now, pthread_self
from shardc.native.threads.pool import PARALLEL, Pool
from shardc.native.threads.pool_jobs import parallel
from shardc.native.threads.pool_records import Piece

__all__ = ["ChunkLog", "chunk_log"]

_CALL, _LOG = "shardc_parallel_logged", "shardc_chunk_log"
#: Entries that are kept.
_ENTRIES = 1 << 15


class _Entry(Record):
    """Chunks ``first`` up to ``behind`` of a job, computed by ``thread`` from ``begin`` to ``end`` (nanoseconds)."""

    thread: address
    begin: i64
    end: i64
    first: i64
    behind: i64


class _Log(Record):
    """``count`` entries, of which the first `_ENTRIES` are there."""

    count: Atomic[i64]
    entries: Annotated[Span[_Entry], Count(_ENTRIES)]


class _Job(Record):
    """A job of a kernel's."""

    function: Piece
    context: address


_CHUNKS = static(_Log, "chunks")


def _logged_piece(context: address, begin: i64, end: i64) -> None:
    job = _Job.at(context)
    start = now()
    job.function(job.context, begin, end)
    stop = now()
    number = _CHUNKS.count.add(1, RELAXED)
    if number < _ENTRIES:
        entry = _CHUNKS.entries[number]
        entry.thread = pthread_self()
        entry.begin = start
        entry.end = stop
        entry.first = begin
        entry.behind = end


@exported(_CALL)
def _parallel_logged(function: Piece, context: address, count: i64, nanoseconds: i64) -> None:
    job = local(_Job)
    job.function = function
    job.context = context
    parallel(_logged_piece, address_of(job), count, nanoseconds)


@exported(_LOG)
def _find_log() -> address:
    return address_of(_CHUNKS)


@dataclass(frozen=True)
class ChunkLog:
    """The stand-in of one step. `address` is what its kernels call; jobs of other steps are not noted."""

    loaded: Loaded

    @property
    def address(self) -> int:
        return self.loaded.address(_CALL)

    def _log_as_integers(self) -> NDArray[np.int64]:
        find = ctypes.CFUNCTYPE(ctypes.c_size_t)(self.loaded.address(_LOG))
        kind = ctypes.c_int64 * (ctypes.sizeof(_Log) // 8)
        words: NDArray[np.int64] = np.ctypeslib.as_array(kind.from_address(find()))
        return words

    def clear(self) -> None:
        """Forget everything; nothing may run meanwhile."""
        self._log_as_integers()[0] = 0

    def read(self) -> NDArray[Any]:
        """Rows (thread, begin, end, first chunk, behind the last) in order of their ends, as far as there was room."""
        words = self._log_as_integers()
        count, width = min(int(words[0]), _ENTRIES), ctypes.sizeof(_Entry) // 8
        return words[1 : 1 + count * width].reshape(-1, width).copy()


def chunk_log(pool: Pool) -> ChunkLog:
    """A stand-in for the call into ``pool``."""
    text = compile_functions((_parallel_logged, _find_log))
    return ChunkLog(load_object(compile_ir(text, opt=1), [_CALL, _LOG], {PARALLEL: pool.address()}))
