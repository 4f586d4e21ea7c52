"""A queue from the thread that runs a program to the one that helps it with collectives."""

from __future__ import annotations

from shardc.native.lowlevel.builtins import as_i32
from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.records import ACQUIRE, Atomic, Record, Span
from shardc.native.threads.meeting import Meeting, arrive, monotonic_now, wait_sharing

__all__ = ["HELPER_WAIT", "HelperQueue", "await_call", "hand_over", "is_stopped", "next_call"]

#: Nanoseconds that a helper waits before it looks whether it shall end.
HELPER_WAIT = 20_000_000


class HelperQueue(Record):
    """``calls`` has ``mask`` + 1 entries, more than are ever under way; ``handed`` were put there so far, which the
    meeting ``posted`` counts. The helper ends when it is told to ``stop``."""

    calls: Span[address]
    mask: i64
    handed: i64
    posted: Meeting
    stop: Atomic[i64]


def hand_over(queue: HelperQueue, call: address) -> None:
    """The helper shall do what is left of a call."""
    queue.calls[queue.handed & queue.mask] = call
    queue.handed += 1
    arrive(queue.posted, as_i32(queue.handed))


def await_call(queue: HelperQueue, taken: i64, spin: i64, cores: i32) -> bool:
    """Wait a while for a call behind those that were ``taken``."""
    return wait_sharing(queue.posted, as_i32(taken + 1), spin, monotonic_now() + HELPER_WAIT, cores)


def next_call(queue: HelperQueue, taken: i64) -> address:
    """The call behind those that were ``taken``."""
    return queue.calls[taken & queue.mask]


def is_stopped(queue: HelperQueue) -> bool:
    """Whether the helper is to end."""
    return queue.stop.load(ACQUIRE) != 0
