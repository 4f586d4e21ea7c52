"""The thread pool: one per process, shared by all compiled programs in it and by the threads that run their devices.

It is made of IR, like all that runs inside a step. `PARALLEL` is the call that kernels make::

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
time adds up to that (`_WAKE`). In a child after ``fork`` there are no threads but the caller's, which shows in the
process number: everything is reset and new workers start.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

from shardc.native.drive.rows_ir import ROWS
from shardc.native.llvm.jit import Loaded, compile_ir, load_object
from shardc.native.llvm.symbols import PARALLEL
from shardc.native.llvm.target import Target, host_target
from shardc.native.threads.clock import now_ir
from shardc.native.threads.pool_jobs import JOBS, STARTING, TYPES
from shardc.native.threads.pool_waiting import CONDITION, FUTEX, SPINNING

__all__ = [
    "ADVANCE",
    "CONFIGURE",
    "PARALLEL",
    "SPIN",
    "STARTED",
    "SYMBOLS",
    "Pool",
    "Row",
    "futex_number",
    "pause_of",
    "pool",
    "pool_ir",
    "pool_object",
]

#: Names in the object: the call of kernels; ``void (i32 workers, i64 spin)``; ``i32 ()``, how many workers there are;
#: ``void (ptr step, ptr rows, i64 count, i64 nanoseconds)``, see `Row`.
CONFIGURE, STARTED, ADVANCE = "shardc_pool_configure", "shardc_pool_started", "shardc_pool_advance"
SYMBOLS = (PARALLEL, CONFIGURE, STARTED, ADVANCE)

#: Nanoseconds that a thread without work watches memory before it sleeps: about as long as waking one takes.
SPIN = 50_000

#: Nanoseconds of work that are worth waking sleepers.
_WAKE = 50_000

#: Nanoseconds of rows that one thread takes together: many short ones stay with the thread that has them in its cache.
_PIECE = 4_000

#: Jobs at a time, and the bytes of a worker's stack.
_SLOTS, _STACK = 8, 8 << 20


class Row(ctypes.Structure):
    """A call of a step function: its arguments, and the place of its answer."""

    _fields_ = (
        ("arena", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("results", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        ("device", ctypes.c_int64),
        ("answer", ctypes.c_int64),
    )


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
    triple = (target or host_target()).triple
    wait = FUTEX if (futex_number(triple) if futex is None else futex) else CONDITION
    pause, declaration = pause_of(triple)
    apple = any(word in triple for word in ("darwin", "macos", "apple"))
    values = {
        "SLOTS": _SLOTS,
        "STACK": _STACK,
        "WAKE": _WAKE,
        "PIECE": _PIECE,
        "DETACHED": 2 if apple else 1,  # PTHREAD_CREATE_DETACHED
        "SETMASK": 3 if apple else 2,  # SIG_SETMASK
        "PAUSE": pause,
        "SYS_FUTEX": futex_number(triple),
    }
    text = f'target triple = "{triple}"\n{TYPES}{declaration}\n{wait}{now_ir(triple)}{SPINNING}{ROWS}{JOBS}{STARTING}'
    for name, value in values.items():
        text = text.replace(f"${name}$", str(value))
    return text


def futex_number(triple: str) -> int:
    """The number of the futex call on Linux, 0 where there is none or none is known."""
    numbers = {"x86_64": 202, "aarch64": 98}
    return numbers.get(triple.split("-", maxsplit=1)[0], 0) if "linux" in triple else 0


def pause_of(triple: str) -> tuple[str, str]:
    """What tells a core that it watches memory, and its declaration."""
    return next((p for start, p in _PAUSES.items() if triple.startswith(start)), ("", ""))


#: By the beginning of the triple, see `pause_of`.
_PAUSES = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
    "arm64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
}
