"""How the pool's threads wait, and where they run; see `shardc.native.threads.pool`."""

from __future__ import annotations

from shardc.native.lowlevel.builtins import as_u64, fill_memory, inline, local_array
from shardc.native.lowlevel.kinds import i32, u64
from shardc.native.lowlevel.platform import platform
from shardc.native.lowlevel.records import ACQUIRE, RELAXED, SEQ_CST, Atomic, Span, address_of
from shardc.native.lowlevel.system import (
    FUTEX_PRIVATE,
    futex_wait,
    futex_wake,
    now,
    pause,
    pthread_cond_broadcast,
    pthread_cond_init,
    pthread_cond_wait,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    sched_getaffinity,
    sched_getcpu,
    sched_setaffinity,
)
from shardc.native.threads.pool_records import CORE_WORDS, CORES, POOL

__all__ = ["allowed_cores", "core", "leave_core", "reset_sleep", "sleep_on", "wake", "watch"]

#: Looks at a word between two at the clock, which takes as long as many of them.
_LOOKS = 32


def sleep_on(word: Atomic[i32], old: i32) -> None:
    """Return once the word is not ``old`` any more, or earlier."""
    if platform().futex != 0:
        futex_wait(word, old, FUTEX_PRIVATE, 0)
    else:
        pthread_mutex_lock(POOL.mutex)
        while word.load(SEQ_CST) == old:
            pthread_cond_wait(POOL.condition, POOL.mutex)
        pthread_mutex_unlock(POOL.mutex)


def wake(word: Atomic[i32], count: i32) -> None:
    """Let up to ``count`` who sleep on the word look, or more."""
    if platform().futex != 0:
        futex_wake(word, count, FUTEX_PRIVATE)
    else:
        pthread_mutex_lock(POOL.mutex)
        pthread_cond_broadcast(POOL.condition)
        pthread_mutex_unlock(POOL.mutex)


def reset_sleep() -> None:
    """Nobody sleeps: the threads of a parent process are not there."""
    if platform().futex == 0:
        pthread_mutex_init(POOL.mutex, 0)
        pthread_cond_init(POOL.condition, 0)


def watch(word: Atomic[i32], old: i32) -> bool:
    """Watch a word for as long as configured. Returns whether it has changed from ``old``."""
    spin = POOL.spin.load(RELAXED)
    start = now()
    while True:
        for _ in range(_LOOKS):
            if word.load(ACQUIRE) != old:
                return True
            pause()
        if now() - start >= spin:
            return False


@inline
def core() -> i32:
    """Where the thread runs; -1: who knows."""
    return sched_getcpu() if platform().futex != 0 else -1


@inline
def allowed_cores(cores: Span[u64]) -> None:
    """Where it may run, a bit for each of `CORES`."""
    if platform().futex != 0:
        fill_memory(address_of(cores), 0, CORES // 8)
        sched_getaffinity(0, CORES // 8, cores)


def leave_core(there: i32, cores: Span[u64]) -> None:
    """Go on another one of ``cores`` than ``there``; afterwards it may run on all of them again."""
    if platform().futex != 0:
        if there < 0 or there >= CORES:
            return
        others = local_array(64, CORE_WORDS)
        for k in range(CORE_WORDS):
            others[k] = cores[k]
        others[there >> 6] &= ~(as_u64(1) << as_u64(there & 63))
        sched_setaffinity(0, CORES // 8, others)
        sched_setaffinity(0, CORES // 8, cores)
