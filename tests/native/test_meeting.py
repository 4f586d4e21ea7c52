"""Counters that threads and processes meet at."""

from __future__ import annotations

import ctypes
import threading
import time

import pytest

from shardc.native.llvm.jit import Loaded, compile_ir, load_object
from shardc.native.llvm.target import Target, host_target
from shardc.native.lowlevel.module import compile_functions
from shardc.native.lowlevel.platform import platform_of
from shardc.native.threads.meeting import ARRIVE, NOW, WAIT, arrive, monotonic_now, wait, wait_sharing

ARRIVE_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)
WAIT_TYPE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)
NOW_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64)


def meeting_ir(target: Target | None = None, *, futex: bool | None = None) -> str:
    """The functions for ``target``; ``futex`` overrides how threads sleep."""
    target = target or host_target()
    functions = (monotonic_now, wait, wait_sharing, arrive)
    return compile_functions(functions, target, platform_of(target.triple, futex=futex))


@pytest.fixture(params=[None, False], ids=["system", "polling"], scope="module")
def loaded(request: pytest.FixtureRequest) -> Loaded:
    return load_object(compile_ir(meeting_ir(futex=request.param)), [WAIT, ARRIVE, NOW])


def test_all_pass_when_the_last_has_come(loaded: Loaded) -> None:
    arrive, wait = ARRIVE_TYPE(loaded.address(ARRIVE)), WAIT_TYPE(loaded.address(WAIT))
    now = NOW_TYPE(loaded.address(NOW))
    meeting = (ctypes.c_int32 * 2)(-5, 0)  # counters wrap around
    address = ctypes.addressof(meeting)
    threads, rounds = 4, 50
    behind: list[int] = []

    def come(spin: int) -> None:
        for n in range(rounds):
            target = -5 + threads * (n + 1)
            arrive(address, target)
            while not wait(address, target, spin, now() + 10_000_000):
                behind.append(n)

    workers = [threading.Thread(target=come, args=(spin,)) for spin in (0, 0, 1000, 100_000)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(60)
    assert list(meeting) == [-5 + threads * rounds, 0]


def test_who_waits_in_vain_comes_back_in_time(loaded: Loaded) -> None:
    wait, now = WAIT_TYPE(loaded.address(WAIT)), NOW_TYPE(loaded.address(NOW))
    meeting = (ctypes.c_int32 * 2)(2**31 - 1, 0)
    begin = time.monotonic_ns()
    assert begin <= now() <= time.monotonic_ns()
    assert not wait(ctypes.addressof(meeting), -(2**31), 0, now() + 3_000_000)
    assert time.monotonic_ns() - begin >= 3_000_000
    assert list(meeting) == [2**31 - 1, 0]
    assert wait(ctypes.addressof(meeting), 2**31 - 1, 0, 0)


@pytest.mark.parametrize("triple", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-apple-darwin23"])
def test_every_platform_has_a_way_to_sleep(triple: str) -> None:
    target = Target(triple, "generic", "")
    text = meeting_ir(target)
    assert ("@syscall" in text) == ("linux" in triple)
    assert "$" not in text
    assert compile_ir(text, target)
