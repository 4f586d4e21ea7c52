"""Functions of the C library that native code calls, and what they mean in a simulation."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Annotated

from shardc.native.lowlevel.builtins import external, inline, local
from shardc.native.lowlevel.kinds import Count, OwnLine, address, i32, i64, u8, u64
from shardc.native.lowlevel.platform import platform
from shardc.native.lowlevel.records import Atomic, Record, Span, address_of, current_run

__all__ = [
    "EVERYBODY", "FUTEX_PRIVATE", "ConditionVariable", "Mutex", "Time", "aligned_alloc", "clock_gettime", "free",
    "futex_wait", "futex_wake", "getpid", "nanosleep", "now", "pause", "pthread_attr_destroy", "pthread_attr_init",
    "pthread_attr_setdetachstate", "pthread_attr_setstacksize", "pthread_cond_broadcast", "pthread_cond_init",
    "pthread_cond_wait", "pthread_create", "pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock",
    "pthread_self", "pthread_sigmask", "put_time", "sched_getaffinity", "sched_getcpu", "sched_setaffinity",
    "sched_yield", "sigfillset",
]  # fmt: skip

#: As many sleepers as there are.
EVERYBODY = 2**31 - 1
#: What is added to an operation on a futex that only one process uses.
FUTEX_PRIVATE = 128
_WAIT, _WAKE = 0, 1


class Time(Record):
    """C's timespec."""

    seconds: i64
    nanoseconds: i64


@inline
def put_time(time: Time, nanoseconds: i64) -> None:
    """Write nanoseconds as a `Time`."""
    time.seconds = nanoseconds // 1_000_000_000
    time.nanoseconds = nanoseconds % 1_000_000_000


@external("clock_gettime")
def clock_gettime(clock: i32, time: Time) -> i32:
    put_time(time, current_run().now())
    return 0


@inline
def now() -> i64:
    """Nanoseconds of the monotonic clock, the same for all threads of a machine."""
    time = local(Time)
    clock_gettime(platform().clock, time)
    return time.seconds * 1_000_000_000 + time.nanoseconds


@external("nanosleep")
def nanosleep(time: Time, rest: address) -> i32:
    current_run().sleep(time.seconds * 1_000_000_000 + time.nanoseconds)
    return 0


@external("sched_yield")
def sched_yield() -> i32:
    current_run().pass_turn()
    return 0


@external("aligned_alloc")
def aligned_alloc(alignment: i64, nbytes: i64) -> address:
    """Memory, or null; ``nbytes`` is a multiple of ``alignment``."""
    return current_run().allocate(alignment, nbytes)


@external("free")
def free(memory: address) -> None:
    current_run().free(memory)


@external("getpid")
def getpid() -> i32:
    return current_run().process()


@external("pthread_self")
def pthread_self() -> address:
    return current_run().thread()


@external("syscall", variadic=True)
def syscall(number: i64, word: Atomic[i32], operation: i32, value: i32, time: address) -> i64:
    """The futex call: to sleep until a word is woken, unless it is not ``value`` any more; or to wake."""
    run = current_run()
    if operation & ~FUTEX_PRIVATE == _WAKE:
        run.wake(word.address, value)
    elif ctypes.c_int32.from_address(word.address).value == value:
        limit = Time.at(time) if time else None
        run.wait_on(word.address, None if limit is None else limit.seconds * 1_000_000_000 + limit.nanoseconds)
    return 0


@inline
def futex_wait(word: Atomic[i32], old: i32, kind: i32, time: address) -> None:
    """Sleep until somebody wakes ``word``, the time is over, or for no reason; not at all if it is not ``old``."""
    syscall(platform().futex, word, _WAIT | kind, old, time)


@inline
def futex_wake(word: Atomic[i32], count: i32, kind: i32) -> None:
    """Wake up to ``count`` who sleep on ``word``."""
    syscall(platform().futex, word, _WAKE | kind, count, 0)


@external("sched_getcpu")
def sched_getcpu() -> i32:
    return current_run().thread()


@external("sched_getaffinity")
def sched_getaffinity(process: i32, nbytes: i64, cores: Span[u64]) -> i32:
    return 0


@external("sched_setaffinity")
def sched_setaffinity(process: i32, nbytes: i64, cores: Span[u64]) -> i32:
    return 0


@external("pthread_create")
def pthread_create(thread: Span[u64], attributes: Span[u8], run: Callable[[i64], address], argument: i64) -> i32:
    current_run().start_thread(run, argument)
    return 0


@external("pthread_attr_init")
def pthread_attr_init(attributes: Span[u8]) -> i32:
    return 0


@external("pthread_attr_destroy")
def pthread_attr_destroy(attributes: Span[u8]) -> i32:
    return 0


@external("pthread_attr_setstacksize")
def pthread_attr_setstacksize(attributes: Span[u8], nbytes: i64) -> i32:
    return 0


@external("pthread_attr_setdetachstate")
def pthread_attr_setdetachstate(attributes: Span[u8], state: i32) -> i32:
    return 0


@external("sigfillset")
def sigfillset(signals: Span[u8]) -> i32:
    return 0


@external("pthread_sigmask")
def pthread_sigmask(how: i32, signals: Span[u8], before: Span[u8] | None) -> i32:
    return 0


class Mutex(Record):
    """Memory for any system's ``pthread_mutex_t``; in a simulation, whether it is held."""

    held: OwnLine[i64]
    memory: Annotated[Span[u8], Count(120)]


class ConditionVariable(Record):
    """Memory for any system's ``pthread_cond_t``."""

    memory: OwnLine[Annotated[Span[u8], Count(128)]]


@external("pthread_mutex_init")
def pthread_mutex_init(mutex: Mutex, attributes: address) -> i32:
    mutex.held = 0
    return 0


@external("pthread_mutex_lock")
def pthread_mutex_lock(mutex: Mutex) -> i32:
    current_run().before_atomic()
    while mutex.held:
        current_run().wait_on(address_of(mutex), None)
    mutex.held = 1
    return 0


@external("pthread_mutex_unlock")
def pthread_mutex_unlock(mutex: Mutex) -> i32:
    mutex.held = 0
    current_run().wake(address_of(mutex), EVERYBODY)
    return 0


@external("pthread_cond_init")
def pthread_cond_init(condition: ConditionVariable, attributes: address) -> i32:
    return 0


@external("pthread_cond_wait")
def pthread_cond_wait(condition: ConditionVariable, mutex: Mutex) -> i32:
    pthread_mutex_unlock(mutex)
    current_run().wait_on(address_of(condition), None)
    return pthread_mutex_lock(mutex)


@external("pthread_cond_broadcast")
def pthread_cond_broadcast(condition: ConditionVariable) -> i32:
    current_run().wake(address_of(condition), EVERYBODY)
    return 0


@external("llvm.x86.sse2.pause")
def pause_x86() -> None:
    """Nothing that others see."""


@external("llvm.aarch64.hint")
def hint_arm(kind: i32) -> None:
    """Nothing that others see."""


@inline
def pause() -> None:
    """Tell the core that it watches memory."""
    if platform().x86:
        pause_x86()
    if platform().arm:
        hint_arm(1)
