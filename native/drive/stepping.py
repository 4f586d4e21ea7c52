"""The drive loop in the low-level language; see `shardc.native.drive.drive_loop`."""

from __future__ import annotations

from shardc.native.drive.records import (
    ANSWERED,
    DONE_PHASE,
    FAILED,
    FINISHED,
    HOST,
    HOSTED,
    PAUSED,
    RING,
    WAIT,
    WAITING,
    CollectiveSums,
    DriveJob,
    Event,
)
from shardc.native.lowlevel.builtins import as_i32, exported, fill_memory, inline
from shardc.native.lowlevel.kinds import i32, i64
from shardc.native.lowlevel.records import RELAXED, RELEASE, SEQ_CST, Atomic, Record, Span
from shardc.native.lowlevel.system import now
from shardc.native.threads.rows import Row, run_rows

__all__ = ["AT_THE_END", "CLAIM", "DRIVE", "claim", "drive", "rewind"]

#: Names in the object.
DRIVE, CLAIM = "shardc_drive", "shardc_claim"

#: Nanoseconds that a phase may take that never ran, and below which other threads are not worth calling.
_UNKNOWN, _TINY = 10_000_000, 1_500
#: Bytes at the start of an arena that hold the step's resume point.
_HEADER = 8

#: `DriveJob.where`.
_OUTSIDE, _IN_STEP, _IN_COLLECTIVE = 0, 1, 2
#: `DriveJob.waiting`: how `drive` goes on when it is called again. From the beginning, with the collective that waits,
#: with the step behind one that is done, or with what the devices answer after they have called Python.
_ANEW, _PERFORM, _ADVANCE, _ARRIVE = 0, 1, 2, 3
#: What a step answers at its end.
AT_THE_END = -1


@exported(DRIVE)
def drive(job: DriveJob) -> i32:
    """From one stop of the devices to the next, and through the collectives between them."""
    goes_on = job.waiting
    job.waiting = _ANEW
    time = now()
    due = time + job.deadline
    if goes_on == _ANEW:
        rewind(job.rows, job.count)
        _show(job, 1)
        job.stop = -1
        goes_on = _ADVANCE
    while True:
        if goes_on == _ADVANCE:
            job.where = _IN_STEP
            time = _advance(job, time)
        if goes_on != _PERFORM:
            answer = job.rows[0].answer
            if not _agree(job.rows, job.count, answer):
                return _leave_to_python(job)
            if answer == AT_THE_END:
                return _leave(job, FINISHED)
            if not _is_collective(job, answer):
                return _leave_to_python(job)
            job.stop = answer
            job.where = _IN_COLLECTIVE
            _begin_event(job, answer & (WAIT - 1), _phase(job, answer), time)
        code = job.perform(job.state, as_i32(job.stop & (WAIT - 1)), as_i32(_phase(job, job.stop)), job.deadline)
        if code > 0:
            job.waiting = _PERFORM
            _newest_event(job).waits += 1
            return WAITING
        if code < 0:
            job.code = code
            return FAILED
        time = now()
        _finish(job, job.stop & (WAIT - 1), _phase(job, job.stop), time)
        if time > due:
            job.waiting = _ADVANCE
            return PAUSED
        goes_on = _ADVANCE


def rewind(rows: Span[Row], count: i64) -> None:
    """Every device starts at the beginning."""
    for k in range(count):
        fill_memory(rows[k].arena, 0, _HEADER)


def _agree(rows: Span[Row], count: i64, first: i64) -> bool:
    """Whether all devices gave the first one's answer."""
    for k in range(1, count):  # noqa: SIM110 - the language has loops only
        if rows[k].answer != first:
            return False
    return True


@inline
def _is_collective(job: DriveJob, answer: i64) -> bool:
    """Whether ``answer`` names a collective of the job."""
    index = answer & (WAIT - 1)
    return answer >= 0 and index < job.calls and job.records[index].kind != 0


@inline
def _phase(job: DriveJob, stop: i64) -> i64:
    """What the executor is asked for at a stop."""
    return DONE_PHASE if stop & WAIT != 0 else job.records[stop & (WAIT - 1)].kind - 1


def _leave_to_python(job: DriveJob) -> i32:
    """Some device has stopped to call Python, or Python must say what their answers mean."""
    for k in range(job.count):
        if job.rows[k].answer // HOST == 1:
            job.waiting = _ARRIVE
            return HOSTED
    return _leave(job, ANSWERED)


def _leave(job: DriveJob, result: i32) -> i32:
    job.where = _OUTSIDE
    _show(job, 0)
    return result


def _advance(job: DriveJob, begin: i64) -> i64:
    """All devices to their next stop, on the pool's threads if what lies before it takes longer than calling them.

    What a phase took is believed to last: a shorter time counts by an eighth. Returns the time.
    """
    if job.count == 1:
        run_rows(job.step, job.rows, 0, 1)
        return now()
    stop = job.stop
    slot = 0 if stop < 0 else 2 * (stop & (WAIT - 1)) + (2 if stop & WAIT != 0 else 1)
    known = job.expected[slot]
    expected = _UNKNOWN if known == 0 else known
    if expected < _TINY:
        run_rows(job.step, job.rows, 0, job.count)
    else:
        job.advance(job.step, job.rows, job.count, expected)
    end = now()
    job.expected[slot] = max(end - begin, known - (known >> 3)) | 1
    return end


def _finish(job: DriveJob, index: i64, phase: i64, time: i64) -> None:
    """A collective, or its start or its done, that has ended: into the flight recorder and the sums."""
    event = _newest_event(job)
    event.end = time
    taken = time - event.begin
    sums: CollectiveSums = job.records[index]
    if phase == DONE_PHASE:
        sums.dones += 1
        sums.done_nanoseconds += taken
    else:
        sums.count += 1
        sums.nanoseconds += taken
        job.done += 1


@inline
def _newest_event(job: DriveJob) -> Event:
    return job.events[job.made.load(RELAXED) - 1 & RING - 1]


def _begin_event(job: DriveJob, index: i64, phase: i64, time: i64) -> None:
    """Whoever reads it from outside sees it once ``made`` counts it."""
    made = job.made.load(RELAXED)
    event = job.events[made & RING - 1]
    event.index = index
    event.phase = phase
    event.begin = time
    event.end = 0
    event.waits = 0
    job.made.store(made + 1, RELEASE)


class _SharedNumber(Record):
    """A number that other processes read."""

    value: Atomic[i64]


def _show(job: DriveJob, inside: i64) -> None:
    """Show the other processes whether this one is in a step, if there is a place for it."""
    if job.shown != 0:
        _SharedNumber.at(job.shown).value.store(job.inside * inside, RELAXED)
        _SharedNumber.at(job.recorder).value.store(job.number, RELAXED)


@exported(CLAIM)
def claim(word: Atomic[i64], value: i64) -> i64:
    """Put a value into a word that holds 0. Returns what the word holds now."""
    held = word.compare_exchange(0, value, SEQ_CST)
    return value if held == 0 else held
