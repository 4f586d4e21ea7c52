"""What the processes of a collective have alike, and how they find out that they have not."""

from __future__ import annotations

from shardc.native.lowlevel.kinds import i64
from shardc.native.lowlevel.records import RELAXED, RELEASE, Atomic, Record

__all__ = ["Head", "Stamp", "heads_agree", "write_head"]


class Stamp(Record):
    """The program, the number of its step, and its plain arguments' sums (`shardc.collectives.call.stamp`)."""

    program: i64
    step: i64
    values: i64
    weighted: i64


class Head(Record):
    """What processes show and send each other of a collective: the ``sequence`` of it among those of its channel, its
    ``index`` in the program, its ``signature`` and the ``stamp`` of the step; and ``when`` the process came to it,
    where that is asked for."""

    sequence: Atomic[i64]
    index: i64
    signature: i64
    stamp: Stamp
    when: i64


def write_head(head: Head, sequence: i64, index: i64, signature: i64, stamp: Stamp) -> None:
    """Say what is exchanged; who reads it meanwhile finds no sequence, or all of it."""
    head.sequence.store(0, RELEASE)
    head.index = index
    head.signature = signature
    head.stamp = stamp
    head.sequence.store(sequence, RELEASE)


def heads_agree(head: Head, sequence: i64, index: i64, signature: i64, stamp: Stamp) -> bool:
    """Whether another process describes the same collective in its head."""
    other = head.stamp
    return (
        head.sequence.load(RELAXED) == sequence
        and head.index == index
        and head.signature == signature
        and other.program == stamp.program
        and other.step == stamp.step
        and other.values == stamp.values
        and other.weighted == stamp.weighted
    )
