"""What the pool's threads did: a stand-in for the pool's call that notes who computed which chunks, and when.

Only steps compiled for profiling are linked to it; it hands every job on to the pool itself.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.native.llvm.jit import Loaded, compile_ir, load_object
from shardc.native.llvm.target import host_target
from shardc.native.threads.clock import now_ir
from shardc.native.threads.pool import PARALLEL, Pool

__all__ = ["ChunkLog", "chunk_log"]

_CALL, _LOG = "shardc_parallel_logged", "shardc_chunk_log"
#: Entries that are kept, and the words of one: thread, begin and end in nanoseconds, first chunk, behind the last.
_ENTRIES, _WORDS = 1 << 15, 5

_TEXT = """
@{log} = global [{size} x i64] zeroinitializer
declare void @{parallel}(ptr, ptr, i64, i64)
declare ptr @pthread_self()

define internal void @chunks(ptr %job, i64 %begin, i64 %end) {{
  %function = load ptr, ptr %job
  %place = getelementptr ptr, ptr %job, i64 1
  %context = load ptr, ptr %place
  %start = call i64 @now()
  call void %function(ptr %context, i64 %begin, i64 %end)
  %stop = call i64 @now()
  %number = atomicrmw add ptr @{log}, i64 1 monotonic
  %fits = icmp ult i64 %number, {entries}
  br i1 %fits, label %note, label %done
note:
  %before = mul i64 %number, {words}
  %first = add i64 %before, 1
  %entry = getelementptr i64, ptr @{log}, i64 %first
  %self = call ptr @pthread_self()
  %thread = ptrtoint ptr %self to i64
  store i64 %thread, ptr %entry
  %e1 = getelementptr i64, ptr %entry, i64 1
  store i64 %start, ptr %e1
  %e2 = getelementptr i64, ptr %entry, i64 2
  store i64 %stop, ptr %e2
  %e3 = getelementptr i64, ptr %entry, i64 3
  store i64 %begin, ptr %e3
  %e4 = getelementptr i64, ptr %entry, i64 4
  store i64 %end, ptr %e4
  br label %done
done:
  ret void
}}

define void @{call}(ptr %function, ptr %context, i64 %count, i64 %work) {{
  %job = alloca {{ ptr, ptr }}
  store ptr %function, ptr %job
  %place = getelementptr ptr, ptr %job, i64 1
  store ptr %context, ptr %place
  call void @{parallel}(ptr @chunks, ptr %job, i64 %count, i64 %work)
  ret void
}}
"""


@dataclass(frozen=True)
class ChunkLog:
    """The stand-in of one step. `address` is what its kernels call; jobs of other steps are not noted."""

    loaded: Loaded

    @property
    def address(self) -> int:
        return self.loaded.address(_CALL)

    def _words(self) -> NDArray[np.int64]:
        kind = ctypes.c_int64 * (1 + _ENTRIES * _WORDS)
        words: NDArray[np.int64] = np.ctypeslib.as_array(kind.from_address(self.loaded.address(_LOG)))
        return words

    def clear(self) -> None:
        """Forget everything; nothing may run meanwhile."""
        self._words()[0] = 0

    def read(self) -> NDArray[Any]:
        """Rows (thread, begin, end, first chunk, behind the last) in order of their ends, as far as there was room."""
        words = self._words()
        count = min(int(words[0]), _ENTRIES)
        return words[1 : 1 + count * _WORDS].reshape(-1, _WORDS).copy()


def chunk_log(pool: Pool) -> ChunkLog:
    """A stand-in for the call into ``pool``."""
    text = now_ir(host_target().triple) + _TEXT.format(
        log=_LOG, call=_CALL, parallel=PARALLEL, entries=_ENTRIES, words=_WORDS, size=1 + _ENTRIES * _WORDS
    )
    return ChunkLog(load_object(compile_ir(text, opt=1), [_CALL, _LOG], {PARALLEL: pool.address()}))
