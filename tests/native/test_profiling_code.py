"""What profiles are made with: the clock in emitted code, the log of chunks, the loops that measure the machine."""

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np
from llvmlite import ir

from shardc.native.llvm.jit import compile_ir, emit_assembly, load_object, new_module
from shardc.native.llvm.target import named_target
from shardc.native.math.vector import I64
from shardc.native.memory import speed
from shardc.native.threads.chunk_log import chunk_log
from shardc.native.threads.clock import emit_nanoseconds
from shardc.native.threads.pool import pool, pool_object

CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
CHUNKS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def monotonic() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def clock_module(cpu: str = "") -> ir.Module:
    module = new_module("clock", named_target(cpu, "macos") if cpu else None)
    function = ir.Function(module, ir.FunctionType(I64, []), "now")
    b = ir.IRBuilder(function.append_basic_block())
    b.ret(emit_nanoseconds(b))
    return module


def test_emitted_clock_is_pythons() -> None:
    loaded = load_object(compile_ir(clock_module()), ["now"])
    now = ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.address("now"))
    before, inside, after = (
        time.clock_gettime_ns(time.CLOCK_MONOTONIC),
        now(),
        time.clock_gettime_ns(time.CLOCK_MONOTONIC),
    )
    assert before <= inside <= after


def test_the_clock_has_another_number_on_macos() -> None:
    assert "clock_gettime" in emit_assembly(clock_module("apple-m1"), named_target("apple-m1", "macos"))
    assert "i32 6" in str(clock_module("apple-m1"))


def test_every_chunk_is_logged_once() -> None:
    log = chunk_log(pool(pool_object()))
    done: list[tuple[int, int, int | None]] = []
    work = CHUNKS(lambda context, begin, end: done.append((begin, end, context)))
    start = monotonic()
    CALL(log.address)(ctypes.cast(work, ctypes.c_void_p), 77, 10, 1000)
    end = monotonic()
    rows = log.read()
    assert sorted(n for low, high, _ in done for n in range(low, high)) == list(range(10))
    assert {context for *_, context in done} == {77}
    assert sorted((low, high) for low, high, _ in done) == sorted(map(tuple, rows[:, 3:].tolist()))
    assert start <= rows[:, 1].min() <= rows[:, 2].max() <= end
    log.clear()
    assert len(log.read()) == 0


def test_a_full_log_keeps_what_came_first() -> None:
    log = chunk_log(pool(pool_object()))
    nothing = CHUNKS(lambda context, begin, end: None)
    call, function = CALL(log.address), ctypes.cast(nothing, ctypes.c_void_p)
    log._log_as_integers()[0] = (1 << 15) - 1
    for _ in range(3):
        call(function, None, 1, 0)
    assert len(log.read()) == 1 << 15


def test_threads_are_told_apart() -> None:
    log = chunk_log(pool(pool_object()))
    nothing = CHUNKS(lambda context, begin, end: None)
    function = ctypes.cast(nothing, ctypes.c_void_p)
    CALL(log.address)(function, None, 1, 0)
    other = threading.Thread(target=lambda: CALL(log.address)(function, None, 1, 0))
    other.start()
    other.join()
    assert len(set(log.read()[:, 0].tolist())) == 2


def test_the_measured_loops_do_what_they_say() -> None:
    code = speed._load("copy", speed._emit_copy)
    copy = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code.address("copy"))
    source, target = speed._lines(1 << 12, 7), speed._lines(1 << 12, 0)
    source[:] = np.arange(1 << 12) % 251
    copy(target.ctypes.data, source.ctypes.data, 1 << 12)
    np.testing.assert_array_equal(source, target)
    peak = speed._load("peak", speed._emit_peak)
    for name in ("f32", "f64"):
        # x = x / 2 + 1 ends at 2 in each of the chains.
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(peak.address(name))(1000) == 2 * speed._CHAINS
