"""Compiled programs as handles; what they say is Python's to tell, but nobody calls Python to end them."""

from __future__ import annotations

from shardc.frontends.pjrt.abi.executables import ExecutableDestroyArgs
from shardc.native.lowlevel.builtins import exported
from shardc.native.lowlevel.kinds import address, i64
from shardc.native.lowlevel.records import RELEASE, Atomic, Record

__all__ = ["EXECUTABLE_FUNCTIONS", "ExecutableRecord", "delete_nothing"]


class ExecutableRecord(Record):
    """PJRT_Executable. Python forgets it some time after its last handle."""

    vtable: address
    number: i64
    handles: Atomic[i64]


@exported("shardc_pjrt_executable_destroy")
def _destroy_executable(args: ExecutableDestroyArgs) -> address:
    if args.executable != 0:
        ExecutableRecord.at(args.executable).handles.add(-1, RELEASE)
    return 0


@exported("shardc_pjrt_delete_nothing")
def delete_nothing(at: address) -> None:
    """The deleter of what stays as long as the handle that it was asked of."""


#: By PJRT's names.
EXECUTABLE_FUNCTIONS = {"Executable_Destroy": _destroy_executable}
