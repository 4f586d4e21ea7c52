"""Loaded programs as native code sees them: the record behind a ``PJRT_LoadedExecutable*``."""

from __future__ import annotations

from shardc.launcher.driver.native_step import DriverRecord
from shardc.native.lowlevel.kinds import Pointer, address, i32, i64
from shardc.native.lowlevel.records import Atomic, Record, Span

__all__ = ["ArgumentRecord", "OutputRecord", "ProgramRecord"]


class ArgumentRecord(Record):
    """An argument as a buffer: its number in the step (-1: a token, which the step does not take), and whether it is
    donated."""

    number: i64
    donated: i64


class OutputRecord(Record):
    """A result as a buffer: its number in the step (-1: a token, which has no elements), and by device the memory that
    it lies in."""

    number: i64
    element_type: i32
    rank: i32
    dims: Span[i64]
    memories: Span[address]


class ProgramRecord(Record):
    """A loaded program's handle. ``number`` is what Python knows it by, in functions behind trampolines.

    ``devices`` are the records of this process's, in the order of the step's rows. ``asks`` says that Python has
    something to do before each step, ``calls`` that the step calls Python. ``expected`` is how many nanoseconds a step
    takes: 0 before the first one. ``is_running`` while there is one, which has called Python on the thread ``caller``;
    then ``stands_before`` is the next of the programs whose steps have. A step that may not wait for that one runs on
    a ``copy`` (or null).
    """

    vtable: address
    number: i64
    deleted: Atomic[i64]
    step: Pointer[DriverRecord]
    devices: Span[address]
    arguments: Span[ArgumentRecord]
    num_arguments: i64
    num_donated: i64
    outputs: Span[OutputRecord]
    num_outputs: i64
    asks: i32
    calls: i32
    expected: i64
    is_running: i64
    caller: address
    stands_before: address
    copy: address
