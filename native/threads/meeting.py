"""Threads of several processes meet: counters in memory that they share, and a sleep on them.

`wait` returns true when the counter of a `Meeting` is at ``target`` or past it, false when the monotonic clock has
passed ``end`` (nanoseconds) first; it watches for ``spin`` nanoseconds, then sleeps. `arrive` adds one, and wakes the
sleepers if that makes it ``target``: all who meet agree on when that is. What was written before an arrival can be
read after the wait.

Where more threads meet than there are ``cores``, one that watches may keep another from coming. `wait_sharing` watches
only when those who have not come are fewer than the cores, so that they have one. Else it lets others run as long as it
would have watched: a core where all sleep at once is slow to come back, on virtual machines some 40 us.

On Linux sleepers sleep in the kernel (a futex that processes share); elsewhere they look again after growing pauses.
"""

from __future__ import annotations

from shardc.native.lowlevel.builtins import as_i32, exported, inline, local
from shardc.native.lowlevel.kinds import i32, i64
from shardc.native.lowlevel.platform import platform
from shardc.native.lowlevel.records import ACQUIRE, SEQ_CST, Atomic, Record, address_of
from shardc.native.lowlevel.system import (
    EVERYBODY,
    Time,
    futex_wait,
    futex_wake,
    nanosleep,
    now,
    pause,
    put_time,
    sched_yield,
)

__all__ = [
    "ARRIVE", "NOW", "WAIT", "WAIT_SHARING", "Meeting", "arrive", "monotonic_now",
    "wait", "wait_sharing",
]  # fmt: skip

WAIT, WAIT_SHARING, ARRIVE, NOW = "shardc_wait", "shardc_wait_sharing", "shardc_arrive", "shardc_now"

#: Nanoseconds between looks where there is no futex: at first, and at most.
_FIRST_PAUSE, _LAST_PAUSE = 20_000, 1_000_000
#: Looks at a counter between two at the clock, which takes as long as many of them.
_LOOKS = 32


class Meeting(Record):
    """Zeros at first. ``count`` only grows, and wraps around; ``sleepers`` sleep until it has grown."""

    count: Atomic[i32]
    sleepers: Atomic[i32]


@exported(NOW)
def monotonic_now() -> i64:
    """Nanoseconds of the monotonic clock."""
    return now()


@exported(WAIT)
def wait(meeting: Meeting, target: i32, spin: i64, end: i64) -> bool:
    """Wait, on as many cores as one likes."""
    return wait_sharing(meeting, target, spin, end, EVERYBODY)


@exported(WAIT_SHARING)
def wait_sharing(meeting: Meeting, target: i32, spin: i64, end: i64, cores: i32) -> bool:
    """Wait for ``meeting`` to be at ``target``."""
    missing = _missing(meeting, target)
    if missing <= 0:
        return True
    if spin > 0:
        tired = now() + spin
        came = _watch(meeting, target, tired) if missing < cores else _yield(meeting, target, tired)
        if came:
            return True
    return _sleep(meeting, target, end)


@inline
def _missing(meeting: Meeting, target: i32) -> i32:
    """How many arrivals are missing; counters wrap around."""
    return as_i32(target - meeting.count.load(ACQUIRE))


def _watch(meeting: Meeting, target: i32, tired: i64) -> bool:
    while True:
        for _ in range(_LOOKS):
            if _missing(meeting, target) <= 0:
                return True
            pause()
        if now() >= tired:
            return False


def _yield(meeting: Meeting, target: i32, tired: i64) -> bool:
    while True:
        sched_yield()
        if _missing(meeting, target) <= 0:
            return True
        if now() >= tired:
            return False


def _sleep(meeting: Meeting, target: i32, end: i64) -> bool:
    """Who counts itself among the sleepers before it looks once more is seen by the one who arrives, or sees it."""
    nap = _FIRST_PAUSE
    while True:
        meeting.sleepers.add(1, SEQ_CST)
        value = meeting.count.load(SEQ_CST)
        met = as_i32(target - value) <= 0
        left = 0 if met else end - now()
        if left > 0:
            _sleep_on(meeting.count, value, left, nap)
        meeting.sleepers.add(-1, SEQ_CST)
        if met:
            return True
        if left <= 0:
            return False
        nap = min(2 * nap, _LAST_PAUSE)


@inline
def _sleep_on(count: Atomic[i32], value: i32, nanoseconds: i64, nap: i64) -> None:
    time = local(Time)
    if platform().futex != 0:
        put_time(time, nanoseconds)
        futex_wait(count, value, 0, address_of(time))
    else:
        put_time(time, min(nanoseconds, nap))
        nanosleep(time, 0)


@exported(ARRIVE)
def arrive(meeting: Meeting, target: i32) -> None:
    """Add one to ``meeting``."""
    count = as_i32(meeting.count.add(1, SEQ_CST) + 1)
    if platform().futex != 0 and count == target and meeting.sleepers.load(SEQ_CST) != 0:
        futex_wake(meeting.count, EVERYBODY, 0)
