"""The thread pool: one per process, shared by all compiled programs in it and by the threads that run their devices.

It is native code, like all that runs inside a step: `pool_jobs` has what threads do, `pool_workers` how they start,
`pool_waiting` how they wait, in the low-level language (`shardc.native.lowlevel`). `PARALLEL` is the call that kernels
make::

    void shardc_parallel(ptr function, ptr context, i64 count, i64 nanoseconds)

It calls ``void function(ptr context, i64 begin, i64 end)`` over disjoint pieces of ``[0, count)`` and returns when all
are done; the caller works too. Pieces are single indices (some together, where there are 65,536 and more) that threads
claim one by one, or all of ``[0, count)`` where the caller is alone. ``nanoseconds`` is about what all of it takes one
thread. Several threads may be inside at once, each with a job slot of its own that all workers serve; a caller who
finds no free slot does everything itself, and so a piece may itself call the pool.

A job's ``ticket`` holds its generation and the indices left. Claiming is a compare-and-swap on both, so a worker that
looked at a slot before its last job ended cannot take from the next one: a caller closes the ticket before it writes
the next job's function, context and count, and opens it afterwards.

Workers start at the first job. Without one they watch ``epoch`` for a while (`Pool.configure` says how long) and sleep
on it: with a futex on Linux, elsewhere with a mutex and a condition of the C library. Waking a sleeper takes the caller
as long as a small job (tens of microseconds on virtual machines), so it is done when the work posted since the last
time adds up to that. In a child after ``fork`` there are no threads but the caller's, which shows in the
process number: everything is reset and new workers start.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

from shardc.native.llvm.jit import Loaded, compile_ir, load_object
from shardc.native.llvm.symbols import PARALLEL
from shardc.native.llvm.target import Target, host_target
from shardc.native.lowlevel.module import compile_functions
from shardc.native.lowlevel.platform import platform_of
from shardc.native.threads.pool_jobs import ADVANCE, advance, parallel
from shardc.native.threads.pool_workers import CONFIGURE, STARTED, configure, started
from shardc.native.threads.rows import Row

__all__ = [
    "ADVANCE",
    "CONFIGURE",
    "PARALLEL",
    "SPIN",
    "STARTED",
    "SYMBOLS",
    "Pool",
    "Row",
    "pool",
    "pool_ir",
    "pool_object",
]

#: The functions that others call.
_FUNCTIONS = (parallel, configure, started, advance)
SYMBOLS = (PARALLEL, CONFIGURE, STARTED, ADVANCE)

#: Nanoseconds that a thread without work watches memory before it sleeps: about as long as waking one takes.
SPIN = 50_000


@dataclass(frozen=True)
class Pool:
    """The pool of this process."""

    loaded: Loaded

    @cached_property
    def _configure(self) -> Callable[[int, int], None]:
        return ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_int64)(self.address(CONFIGURE))

    def address(self, symbol: str = PARALLEL) -> int:
        """The address of one of `SYMBOLS`."""
        return self.loaded.address(symbol)

    def configure(self, workers: int, spin: int = SPIN) -> None:
        """From now on at most ``workers`` threads help callers; they watch ``spin`` nanoseconds before they sleep."""
        self._configure(workers, spin)

    @cached_property
    def _advance(self) -> Callable[[int, Any, int, int], None]:
        kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        return ctypes.CFUNCTYPE(None, *kinds)(self.address(ADVANCE))

    def advance(self, step: int, rows: ctypes.Array[Row], nanoseconds: int) -> None:
        """Call the step function at address ``step`` for every row, on the caller's thread and the workers.

        ``nanoseconds`` is about what all calls take one thread.
        """
        self._advance(step, rows, len(rows), nanoseconds)

    def started(self) -> int:
        """How many workers this process has."""
        return int(ctypes.CFUNCTYPE(ctypes.c_int32)(self.address(STARTED))())


@cache
def pool(code: bytes) -> Pool:
    """The pool of this process whose object is ``code`` (`pool_object`); one for equal code, and it stays.

    It has no workers until `Pool.configure` allows some and a kernel has work for them.
    """
    return Pool(load_object(code, SYMBOLS))


@lru_cache(maxsize=8)
def pool_object(target: Target | None = None, *, futex: bool | None = None) -> bytes:
    """The object file for ``target`` (default: this machine); ``futex`` overrides how threads sleep."""
    return compile_ir(pool_ir(target, futex=futex), target, opt=0)


def pool_ir(target: Target | None = None, *, futex: bool | None = None) -> str:
    """The IR text for ``target``; ``futex`` overrides how threads sleep."""
    target = target or host_target()
    return compile_functions(_FUNCTIONS, target, platform_of(target.triple, futex=futex))
