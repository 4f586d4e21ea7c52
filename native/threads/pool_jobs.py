"""The pool's jobs and who does them; see `shardc.native.threads.pool`."""

from __future__ import annotations

from shardc.native.llvm.symbols import PARALLEL
from shardc.native.lowlevel.builtins import as_i32, as_i64, as_u64, exported, local, local_array
from shardc.native.lowlevel.kinds import address, i64
from shardc.native.lowlevel.records import (
    ACQ_REL,
    ACQUIRE,
    RELAXED,
    RELEASE,
    SEQ_CST,
    Record,
    Span,
    address_of,
)
from shardc.native.lowlevel.system import pthread_self
from shardc.native.threads.pool_records import CORE_WORDS, POOL, SLOTS, Piece, Slot
from shardc.native.threads.pool_waiting import allowed_cores, core, leave_core, sleep_on, wake, watch
from shardc.native.threads.pool_workers import workers_ready
from shardc.native.threads.rows import Row, Step, run_rows

__all__ = ["ADVANCE", "advance", "parallel", "worker"]

ADVANCE = "shardc_pool_advance"

#: Nanoseconds of work that are worth waking sleepers: about as long as waking one takes.
_WAKE = 50_000
#: Nanoseconds of rows that one thread takes together: many short ones stay with the thread that has them in its cache.
_PIECE = 4_000
#: What a ticket has room for, and the bits of an index in it.
_INDICES, _BITS = 65_535, 16


def _work(slot: Slot, backwards: bool) -> i64:
    """Do pieces of a slot's job while there are any, from the first on or from the last back. Returns how many were
    done.

    Threads that start at opposite ends mostly meet the same part of the data in one kernel after the other.
    """
    done = 0
    while True:
        ticket = slot.ticket.load(ACQUIRE)
        function = slot.function.load(ACQUIRE)
        context = slot.context.load(ACQUIRE)
        count = slot.count.load(ACQUIRE)
        grain = slot.grain.load(ACQUIRE)
        first = ticket >> _BITS & _INDICES
        past = ticket & _INDICES
        if first >= past:
            return done
        following = ticket - 1 if backwards else ticket + (1 << _BITS)
        if slot.ticket.compare_exchange(ticket, following, ACQ_REL) != ticket:
            continue
        begin = as_i64(past - 1 if backwards else first) * grain
        function(context, begin, min(begin + grain, count))
        done += 1
        if slot.pending.add(-1, SEQ_CST) == 1 and slot.waits.load(SEQ_CST) != 0:
            wake(slot.pending, 1)


def worker(number: i64) -> address:
    """A thread of the pool.

    Who found work watches for more; who was woken for nothing sleeps at once, since somebody else may want the core. A
    worker that finds itself on the core of a caller, where the system likes to wake it, goes to another one; unless it
    was the last caller itself, by a job of its own.
    """
    backwards = number & 1 == 0
    cores = local_array(64, CORE_WORDS)
    allowed_cores(cores)
    me = pthread_self()
    warm = False
    while True:
        limit = POOL.limit.load(ACQUIRE)
        if number >= limit:
            sleep_on(POOL.limit, limit)
            warm = False
            continue
        epoch = POOL.epoch.load(SEQ_CST)
        here = core()
        there = POOL.caller.load(RELAXED)
        whose = POOL.calling.load(RELAXED)
        if here == there and whose != me:
            leave_core(there, cores)
        done = 0
        for k in range(SLOTS):
            done += _work(POOL.slots[k], backwards)
        if done != 0:
            warm = True
        elif not warm or not watch(POOL.epoch, epoch):
            POOL.sleepers.add(1, SEQ_CST)
            sleep_on(POOL.epoch, epoch)
            POOL.sleepers.add(-1, SEQ_CST)
            warm = False


@exported(PARALLEL)
def parallel(function: Piece, context: address, count: i64, nanoseconds: i64) -> None:
    """Call ``function`` over disjoint pieces of ``[0, count)``, and return when all are done."""
    share(function, context, count, 1, nanoseconds)


def share(function: Piece, context: address, count: i64, least: i64, nanoseconds: i64) -> None:
    """The same with at least ``least`` indices together."""
    limit = POOL.limit.load(ACQUIRE)
    if limit > 0 and count > 1 and workers_ready(limit, worker):
        for k in range(SLOTS):
            slot = POOL.slots[k]
            if slot.taken.compare_exchange(0, 1, ACQ_REL) == 0:
                grain = max(least, (count + _INDICES - 1) // _INDICES)
                indices = (count + grain - 1) // grain
                _post(slot, function, context, count, grain, indices)
                _call_help(indices, nanoseconds)
                _work(slot, False)
                _join(slot)
                slot.taken.store(0, RELEASE)
                return
    if count != 0:
        function(context, 0, count)


def _post(slot: Slot, function: Piece, context: address, count: i64, grain: i64, indices: i64) -> None:
    """Open a slot's next job."""
    POOL.caller.store(core(), RELAXED)
    POOL.calling.store(pthread_self(), RELAXED)
    closed = as_u64(((slot.ticket.load(RELAXED) >> 2 * _BITS) + 1) << 2 * _BITS)
    slot.ticket.store(closed, SEQ_CST)
    slot.function.store(function, RELEASE)
    slot.context.store(context, RELEASE)
    slot.count.store(count, RELEASE)
    slot.grain.store(grain, RELEASE)
    slot.pending.store(as_i32(indices), RELEASE)
    slot.ticket.store(closed | as_u64(indices), SEQ_CST)
    POOL.epoch.add(1, SEQ_CST)


def _call_help(indices: i64, nanoseconds: i64) -> None:
    """Wake sleepers if too few workers are awake for a job, and work enough has met too few."""
    sleepers = POOL.sleepers.load(SEQ_CST)
    if sleepers <= 0:
        return
    limit = POOL.limit.load(ACQUIRE)
    missing = as_i32(min(indices - 1, limit) - (limit - sleepers))
    if missing > 0 and POOL.unshared.add(nanoseconds, RELAXED) + nanoseconds >= _WAKE:
        POOL.unshared.store(0, RELAXED)
        wake(POOL.epoch, missing)


def _join(slot: Slot) -> None:
    """Wait until the pieces that others took are done."""
    while True:
        left = slot.pending.load(ACQUIRE)
        if left == 0:
            return
        if watch(slot.pending, left):
            continue
        slot.waits.store(1, SEQ_CST)
        left = slot.pending.load(SEQ_CST)
        if left != 0:
            sleep_on(slot.pending, left)
        slot.waits.store(0, SEQ_CST)


class _Rows(Record):
    """A job: the step function, and a table of rows."""

    step: Step
    rows: Span[Row]


def _advance_rows(job: address, begin: i64, end: i64) -> None:
    found = _Rows.at(job)
    run_rows(found.step, found.rows, begin, end)


@exported(ADVANCE)
def advance(step: Step, rows: Span[Row], count: i64, nanoseconds: i64) -> None:
    """Call the step function for every row; all calls take one thread about ``nanoseconds``."""
    job = local(_Rows)
    job.step = step
    job.rows = rows
    pieces = nanoseconds // _PIECE
    share(_advance_rows, address_of(job), count, (count + pieces) // (pieces + 1), nanoseconds)
