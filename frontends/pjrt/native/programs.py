"""Loaded programs as native code sees them: the record behind a ``PJRT_LoadedExecutable*``."""

from __future__ import annotations

from shardc.native.lowlevel.kinds import address, i64
from shardc.native.lowlevel.records import Atomic, Record

__all__ = ["ProgramRecord"]


class ProgramRecord(Record):
    """A loaded program's handle. ``number`` is what Python knows it by, in functions behind trampolines."""

    vtable: address
    number: i64
    deleted: Atomic[i64]
