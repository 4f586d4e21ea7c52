"""How native code calls Python: with the GIL, and without touching an exception that is pending in the caller.

JAX's objects end where Python's do, also while an exception is on its way; a call of Python that finds one pending
breaks the interpreter. So it is put aside before the call and back after it.

`ENTRIES` is how many functions there may be. Those that nobody has set are the ones that the plug-in lacks, and say so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from shardc.frontends.pjrt.native.errors import FAILED_PRECONDITION, INVALID_ARGUMENT, UNIMPLEMENTED, fail, make_error
from shardc.frontends.pjrt.native.records import TextRecord
from shardc.native.lowlevel.builtins import exported, external, local_array, static, static_text
from shardc.native.lowlevel.kinds import Count, address, i32, i64, u8, u64
from shardc.native.lowlevel.records import Record, Span, address_of
from shardc.native.lowlevel.system import pthread_self

__all__ = ["ENTRIES", "INTERPRETER", "EntryTable", "call_python", "entry_table", "is_interrupted", "refuse_structure"]

#: More than PJRT has, for what its extensions add.
ENTRIES = 192

#: Python's own functions that are called here, with other names that some versions have for them.
INTERPRETER = (
    ("PyGILState_Ensure", "PyGILState_Ensure"),
    ("PyGILState_Release", "PyGILState_Release"),
    ("PyErr_Fetch", "PyErr_Fetch"),
    ("PyErr_Restore", "PyErr_Restore"),
    ("PyOS_InterruptOccurred", "PyOS_InterruptOccurred"),
    ("PyErr_SetInterrupt", "PyErr_SetInterrupt"),
    ("Py_IsInitialized", "Py_IsInitialized"),
    ("Py_IsFinalizing", "_Py_IsFinalizing"),
)


class EntryTable(Record):
    """By entry: the function in Python, what is said where there is none, and whether it may be left out at the end.

    ``ending`` entries are destructors: when the interpreter ends they do nothing, others fail. ``ender`` is the thread
    in which the process ends, once it does (0 before): no other one may begin a call of Python any more. A call that
    the user's interrupt ended sets ``interrupted``: JAX raises its error, and Python the interrupt, as it goes on.
    """

    functions: Annotated[Span[Callable[[address], address] | None], Count(ENTRIES)]
    lacking: Annotated[Span[TextRecord], Count(ENTRIES)]
    older: Annotated[Span[TextRecord], Count(ENTRIES)]
    ending: Annotated[Span[u8], Count(ENTRIES)]
    ender: address
    interrupted: i32


_TABLE = static(EntryTable, "shardc_pjrt_entries")
_ENDING_TEXT = static_text("shardc_pjrt_ending_text", "the Python interpreter is shutting down")


@external("PyGILState_Ensure")
def _take_gil() -> i32:
    return 0


@external("PyGILState_Release")
def _release_gil(state: i32) -> None:
    """Nothing that a simulation sees."""


@external("PyErr_Fetch")
def _put_aside(kind: Span[u64], value: Span[u64], traceback: Span[u64]) -> None:
    """Nothing that a simulation sees."""


@external("PyErr_Restore")
def _put_back(kind: u64, value: u64, traceback: u64) -> None:
    """Nothing that a simulation sees."""


@external("PyOS_InterruptOccurred")
def _take_interrupt() -> i32:
    return 0


@external("PyErr_SetInterrupt")
def _interrupt_again() -> None:
    """Nothing that a simulation sees."""


@external("Py_IsInitialized")
def _is_initialized() -> i32:
    return 1


@external("Py_IsFinalizing")
def _is_finalizing() -> i32:
    return 0


@exported("shardc_pjrt_entry_table")
def entry_table() -> address:
    """Where Python sets its functions."""
    return address_of(_TABLE)


def _has_ended() -> bool:
    """Whether this thread must stay out of Python. The interpreter, when it ends, ends the threads that wait for its
    lock, and whoever waits for those waits forever."""
    if _is_initialized() == 0 or _is_finalizing() != 0:
        return True
    return _TABLE.ender != 0 and _TABLE.ender != pthread_self()


@exported("shardc_pjrt_call_python")
def call_python(number: i64, args: address) -> address:
    """Entry ``number`` in Python, with a structure of PJRT's; an error or null."""
    function = _TABLE.functions[number]
    if function is None:
        text = _TABLE.lacking[number]
        return make_error(UNIMPLEMENTED, text.data, text.nbytes)
    if _has_ended():
        return 0 if _TABLE.ending[number] != 0 else fail(FAILED_PRECONDITION, _ENDING_TEXT)
    state = _take_gil()
    pending = local_array(64, 3)
    _put_aside(pending, pending.behind(1), pending.behind(2))
    error = function(args)
    _put_back(pending[0], pending[1], pending[2])
    if _TABLE.interrupted != 0:
        _TABLE.interrupted = 0
        _interrupt_again()
    _release_gil(state)
    return error


def is_interrupted() -> bool:
    """Whether the user has interrupted the process. Python says so as soon as the caller, its main thread, returns."""
    if _has_ended():
        return False
    state = _take_gil()
    found = _take_interrupt() != 0
    if found:
        _interrupt_again()
    _release_gil(state)
    return found


@exported("shardc_pjrt_refuse_structure")
def refuse_structure(number: i64) -> address:
    """The error for a structure that is too small for what entry ``number`` writes into it."""
    text = _TABLE.older[number]
    return make_error(INVALID_ARGUMENT, text.data, text.nbytes)
