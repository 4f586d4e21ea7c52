"""The thread pool: every index once, whoever calls, however many workers there are, in children too."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardc.native.llvm import jit
from shardc.native.llvm.target import Target
from shardc.native.threads.pool import PARALLEL, Pool, Row, pool, pool_ir, pool_object

#: ``many(counters, count, times, nested)``: so many jobs, each adding 1 to ``count`` counters; with ``nested`` every
#: index is a job of its own over the ``nested`` counters behind its number.
CALLERS = """
declare void @shardc_parallel(ptr, ptr, i64, i64)

define void @add(ptr %counters, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %k = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %p = getelementptr i64, ptr %counters, i64 %k
  %v = load i64, ptr %p
  %w = add i64 %v, 1
  store i64 %w, ptr %p
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}

define void @outer(ptr %counters, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %k = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %p = getelementptr [16 x i64], ptr %counters, i64 %k
  call void @shardc_parallel(ptr @add, ptr %p, i64 16, i64 1000000)
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}

define void @many(ptr %counters, i64 %count, i64 %times, i64 %nested) {
entry:
  %deep = icmp ne i64 %nested, 0
  %function = select i1 %deep, ptr @outer, ptr @add
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @shardc_parallel(ptr %function, ptr %counters, i64 %count, i64 1000000)
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %times
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


@cache
def made(futex: bool) -> tuple[Pool, jit.Loaded]:
    made = pool(pool_object(futex=futex))
    return made, jit.load_object(jit.compile_ir(CALLERS), ["many"], {PARALLEL: made.address()})


def many(futex: bool, counters: Any, count: int, times: int, nested: int = 0) -> None:
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    signature(made(futex)[1].address("many"))(counters.ctypes.data, count, times, nested)


HOW = pytest.mark.parametrize("futex", [True, False], ids=["futex", "condition"])


@HOW
@pytest.mark.parametrize("workers", [0, 1, 3, 8])
@pytest.mark.parametrize("spin", [0, 20_000])
def test_every_index_once_per_job(futex: bool, workers: int, spin: int) -> None:
    made(futex)[0].configure(workers, spin)
    for count in (0, 1, 2, 3, 7, 64, 257):
        counters = np.zeros(300, np.int64)
        many(futex, counters, count, 20)
        assert (counters[:count] == 20).all()
        assert not counters[count:].any()
    assert made(futex)[0].started() >= workers


@pytest.mark.parametrize("count", [1, 3, 100, 513])
@pytest.mark.parametrize("nanoseconds", [0, 5_000, 40_000, 1_000_000_000])
def test_every_row_once_however_many_go_together(count: int, nanoseconds: int) -> None:
    threads = pool(pool_object())
    threads.configure(2)
    counters = np.zeros(count, np.int32)

    def step(arena: int, arguments: int, results: int, constants: int, device: int) -> int:
        counters[device] += 1
        return device + 7

    function = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_void_p,) * 4, ctypes.c_int32)(step)
    rows = (Row * count)(*(Row(0, 0, 0, 0, d, -1) for d in range(count)))
    threads.advance(ctypes.cast(function, ctypes.c_void_p).value or 0, rows, nanoseconds)
    assert (counters == 1).all()
    assert [r.answer for r in rows] == [d + 7 for d in range(count)]


@HOW
def test_more_indices_than_a_ticket_counts(futex: bool) -> None:
    made(futex)[0].configure(2)
    for count in (65_535, 65_536, 65_537, 200_001):
        counters = np.zeros(count + 3, np.int64)
        many(futex, counters, count, 3)
        assert (counters[:count] == 3).all()
        assert not counters[count:].any()


@HOW
def test_several_callers_share_the_workers(futex: bool) -> None:
    made(futex)[0].configure(3)
    counters = [np.zeros(40, np.int64) for _ in range(12)]  # more callers than job slots
    threads = [threading.Thread(target=many, args=(futex, c, 33, 300)) for c in counters]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for c in counters:
        assert (c[:33] == 300).all()
        assert not c[33:].any()


@HOW
def test_a_piece_may_call_the_pool(futex: bool) -> None:
    made(futex)[0].configure(3)
    counters = np.zeros((20, 16), np.int64)
    many(futex, counters, 20, 10, nested=1)
    assert (counters == 10).all()


@HOW
@pytest.mark.filterwarnings("ignore:.*fork.*")  # Python's, and JAX's where a test before imported it
def test_a_child_process_starts_workers_of_its_own(futex: bool) -> None:
    threads = made(futex)[0]
    threads.configure(2)
    counters = np.zeros(64, np.int64)
    many(futex, counters, 64, 5)
    before = threads.started()
    child = os.fork()
    if child == 0:  # nothing but the pool runs here
        ok = threads.started() == 0
        many(futex, counters, 64, 5)
        ok = ok and threads.started() == 2 and bool((counters == 10).all())
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    many(futex, counters, 64, 5)
    assert (counters == 10).all()
    assert threads.started() == before


@pytest.mark.parametrize(
    ("triple", "words"),
    [
        ("x86_64-unknown-linux-gnu", ["syscall", "x86.sse2.pause"]),
        ("aarch64-unknown-linux-gnu", ["syscall(i64 98", "aarch64.hint"]),
        ("arm64-apple-darwin23.0.0", ["pthread_cond_wait", "clock_gettime(i32 6", "aarch64.hint"]),
        ("riscv64-unknown-linux-gnu", ["pthread_cond_wait"]),
    ],
)
def test_how_threads_sleep_depends_on_the_target(triple: str, words: list[str]) -> None:
    text = pool_ir(Target(triple, "", ""))
    assert "$" not in text
    for word in words:
        assert word in text


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not say where threads may run")
def test_workers_stay_free_to_run_anywhere() -> None:
    """A worker leaves the core of a caller, but nobody, it least of all, keeps it away from there afterwards."""
    made(True)[0].configure(2)
    counters = np.zeros((20, 16), np.int64)
    many(True, counters, 20, 500, nested=1)
    made(True)[0].configure(0)
    allowed, end = os.sched_getaffinity(0), time.monotonic() + 5
    while any(os.sched_getaffinity(int(t.name)) != allowed for t in Path("/proc/self/task").iterdir()):
        assert time.monotonic() < end  # one that has just woken may be on its way
        time.sleep(0.01)
