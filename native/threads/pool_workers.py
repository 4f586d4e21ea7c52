"""How the pool's workers start, and how many there may be; see `shardc.native.threads.pool`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from shardc.native.lowlevel.builtins import as_i32, exported, fill_memory, local_array
from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.platform import platform
from shardc.native.lowlevel.records import ACQ_REL, ACQUIRE, RELAXED, RELEASE, SEQ_CST, address_of
from shardc.native.lowlevel.system import (
    EVERYBODY,
    getpid,
    pthread_attr_destroy,
    pthread_attr_init,
    pthread_attr_setdetachstate,
    pthread_attr_setstacksize,
    pthread_create,
    pthread_sigmask,
    sigfillset,
)
from shardc.native.threads.pool_records import POOL, SLOTS, Slot
from shardc.native.threads.pool_waiting import reset_sleep, wake

__all__ = ["CONFIGURE", "STARTED", "configure", "started", "workers_ready"]

CONFIGURE, STARTED = "shardc_pool_configure", "shardc_pool_started"

#: Bytes of a worker's stack, and of all slots.
_STACK, _SLOT_BYTES = 8 << 20, ctypes.sizeof(Slot) * SLOTS
#: At least the bytes of C's ``pthread_attr_t`` and ``sigset_t``.
_C_BYTES = 128

Run = Callable[[i64], address]


def workers_ready(wanted: i32, run: Run) -> bool:
    """Whether ``wanted`` workers (or as many as can be had) are in this process. Starts them to do ``run``."""
    process = getpid()
    if POOL.owner.load(ACQUIRE) == process and POOL.started.load(ACQUIRE) >= wanted:
        return True
    return _start(wanted, process, run)


def _start(wanted: i32, process: i32, run: Run) -> bool:
    """One thread starts workers; others go on alone meanwhile. A lock left by a parent process is taken over."""
    holder = POOL.starting.load(ACQUIRE)
    if holder == process or POOL.starting.compare_exchange(holder, process, ACQ_REL) != holder:
        return False
    if POOL.owner.load(ACQUIRE) != process:
        fill_memory(address_of(POOL.slots), 0, _SLOT_BYTES)
        POOL.sleepers.store(0, SEQ_CST)
        POOL.started.store(0, SEQ_CST)
        reset_sleep()
        POOL.owner.store(process, SEQ_CST)
    _create(wanted, run)
    POOL.starting.store(0, RELEASE)
    return True


def _create(wanted: i32, run: Run) -> None:
    """Workers take no signals: those are for the threads of the program."""
    attributes = local_array(8, _C_BYTES)
    signals = local_array(8, _C_BYTES)
    before = local_array(8, _C_BYTES)
    thread = local_array(64, 1)
    pthread_attr_init(attributes)
    pthread_attr_setstacksize(attributes, _STACK)
    pthread_attr_setdetachstate(attributes, platform().detached)
    sigfillset(signals)
    pthread_sigmask(platform().set_mask, signals, before)
    while True:
        count = POOL.started.load(ACQUIRE)
        if count >= wanted:
            break
        if pthread_create(thread, attributes, run, count) != 0:
            POOL.limit.store(count, RELEASE)
            break
        POOL.started.store(as_i32(count + 1), RELEASE)
    pthread_sigmask(platform().set_mask, before, None)
    pthread_attr_destroy(attributes)


@exported(CONFIGURE)
def configure(workers: i32, spin: i64) -> None:
    """From now on at most ``workers`` threads help callers; they watch ``spin`` nanoseconds before they sleep."""
    POOL.spin.store(spin, RELAXED)
    if POOL.limit.exchange(workers, SEQ_CST) < workers and POOL.owner.load(ACQUIRE) == getpid():
        wake(POOL.limit, EVERYBODY)


@exported(STARTED)
def started() -> i32:
    """How many workers this process has."""
    return POOL.started.load(ACQUIRE) if POOL.owner.load(ACQUIRE) == getpid() else 0
