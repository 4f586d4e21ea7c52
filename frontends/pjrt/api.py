"""PJRT's table of functions, which JAX is given.

Each entry is native code, or calls what ``functions`` has for it, or answers that the plug-in lacks it. An exception of
a function in Python becomes the error that JAX raises.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardc.frontends.pjrt.abi.functions import FUNCTIONS, MINOR
from shardc.frontends.pjrt.native.entries import NATIVE, args_of, entry_symbol
from shardc.frontends.pjrt.native.library import Library
from shardc.frontends.pjrt.native.records import TextRecord
from shardc.hlo.errors import EnvironmentProblem
from shardc.native.lowlevel.records import reference

__all__ = ["Api", "MakeEntry", "build_api", "set_entry"]

#: Words of the table before its functions: its size, its extensions, and the version (three words).
_HEAD = 5
_VERSION_BYTES = 24
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True, eq=False)
class Api:
    """A ``PJRT_Api``, and what must stay for it."""

    table: ctypes.Array[ctypes.c_uint64]
    library: Library
    keep: tuple[Any, ...]

    @property
    def address(self) -> int:
        return ctypes.addressof(self.table)


#: Between two looks at calls that should end with the process, and until they are told so again.
_LOOK_SECONDS, _AGAIN_SECONDS = 0.005, 2.0
#: A thread that sleeps at so many looks has nothing to do; it is waited for so long (all of it where none tells).
_IDLE_LOOKS, _REST_SECONDS = 10, 1.0

#: Functions that cannot be had in Python: jaxlib holds Python's lock while another thread calls them.
_LACKING = {
    "Compile": "compiling for devices that do not exist here\n  fix: compile for this client's devices "
    "(SHARDC_NUM_DEVICES says how many), and serialize that",
}

#: Gives a function in Python an entry of its own: a name for errors, the function, its structure; the entry's address.
MakeEntry = Callable[[str, Callable[[Any], None], Any], int]


def build_api(
    library: Library,
    functions: Mapping[str, Callable[[Any], None]],
    extensions: Callable[[MakeEntry], tuple[int, tuple[Any, ...]]] = lambda make: (0, ()),
) -> Api:
    """The table whose entries call ``functions`` (by PJRT's names, without prefix) with their structures.

    ``extensions`` gives the address of the first of them, and what must stay for all. Example:
    ``build_api(library, {"Client_Create": create})`` with ``def create(args: ClientCreateArgs) -> None``.
    """
    unknown = [name for name in functions if name not in FUNCTIONS or name in NATIVE]
    if unknown:
        raise ValueError(f"no entries for Python's functions: {', '.join(unknown)}")
    keep: list[Any] = []
    calls = _PythonCalls(library)
    atexit.register(calls.end)
    numbers = itertools.count(len(FUNCTIONS))

    def make_entry(name: str, function: Callable[[Any], None], structure: Any) -> int:
        number = next(numbers)
        keep.extend(_set_texts(library, number, name))
        keep.append(set_entry(library, number, _entry(library, calls, function, structure)))
        return library.address(entry_symbol(number))

    first, kept = extensions(make_entry)
    words = [0, first, _VERSION_BYTES, 0, MINOR << 32]
    words += [library.address(entry_symbol(number)) for number in range(len(FUNCTIONS))]
    words[0] = 8 * len(words)
    for number, name in enumerate(FUNCTIONS):
        keep += _set_texts(library, number, name)
        if name in functions:
            keep.append(set_entry(library, number, _entry(library, calls, functions[name], args_of(name))))
    return Api((ctypes.c_uint64 * len(words))(*words), library, (*keep, *kept))


def set_entry(library: Library, number: int, function: Callable[[int], int]) -> Any:
    """Let an entry call ``function``, which takes and gives addresses and never raises; what must be kept for it."""
    thunk = _ENTRY(function)
    library.entry_table.functions[number] = reference(ctypes.cast(thunk, ctypes.c_void_p).value or 0)
    return thunk


class _PythonCalls:
    """Threads of the client in functions in Python, such as one that compiles what a user has interrupted.

    Python ends such a thread when the process ends, and the client then waits for it forever; so they are told to
    return before, and no other begins. ``threads`` has their numbers in Python, and those of the system.
    ``interrupted``: the user's interrupt ended a call within one that goes on.
    """

    def __init__(self, library: Library) -> None:
        self.threads: dict[int, int] = {}
        self.interrupted = False
        self._process = os.getpid()
        self._library = library

    @property
    def has_ended(self) -> bool:
        """Whether the process is ending, in another thread than this one."""
        return self._library.entry_table.ender not in (0, _thread.get_ident())

    def end(self) -> None:
        if os.getpid() != self._process:
            return
        self._library.entry_table.ender = _thread.get_ident()
        told, interrupted = float("-inf"), dict[int, int]()
        while others := self._others():
            if time.monotonic() - told > _AGAIN_SECONDS:
                told = time.monotonic()
                interrupted |= others
                for thread in others:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(SystemExit))
            time.sleep(_LOOK_SECONDS)
        for thread in interrupted.values():
            _wait_for_rest(thread)

    def _others(self) -> dict[int, int]:
        """Other threads that are in Python. One that was told may have left without taking itself off the list."""
        inside = sys._current_frames().keys() - {_thread.get_ident()}
        return {t: n for t, n in list(self.threads.items()) if t in inside}


def _wait_for_rest(thread: int) -> None:
    """Wait until a thread of the system has nothing to do: behind an interrupted compilation jaxlib drops what it made
    for it, and takes Python's lock for that."""
    told, end, looks = Path(f"/proc/self/task/{thread}/stat"), time.monotonic() + _REST_SECONDS, 0
    while looks < _IDLE_LOOKS and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
        try:
            state = told.read_text().rpartition(")")[2].split()[0]
        except OSError:  # it has ended, or the system tells nothing
            state = ""
        looks = looks + 1 if state == "S" else 0


def _entry(
    library: Library, calls: _PythonCalls, function: Callable[[Any], None], structure: Any
) -> Callable[[int], int]:
    threads = calls.threads

    def call(at: int) -> int:
        thread = _thread.get_ident()
        outermost = thread not in threads
        threads.setdefault(thread, threading.get_native_id())
        try:
            if calls.has_ended:  # as native code says it to those that come later
                raise EnvironmentProblem("the Python interpreter is shutting down")
            function(structure.at(at))
        except BaseException as problem:
            if isinstance(problem, KeyboardInterrupt):
                calls.interrupted = True
            return library.make_error(problem)
        finally:
            if outermost:
                threads.pop(thread, None)
                if calls.interrupted:  # ctypes would drop it here
                    calls.interrupted, library.entry_table.interrupted = False, 1
        return 0

    return call


def _set_texts(library: Library, number: int, name: str) -> list[Any]:
    """What an entry says when it cannot do what it is for."""
    table = library.entry_table
    table.ending[number] = name.endswith("_Destroy")
    lacking = _LACKING.get(name, f"PJRT_{name} is not implemented by shardc")
    older = f"PJRT_{name}: the client's structure is older than version 0.{MINOR} of PJRT; take a newer jaxlib"
    kept = []
    for texts, text in ((table.lacking, lacking), (table.older, older)):
        content = ctypes.create_string_buffer(text.encode())
        texts[number] = TextRecord(data=ctypes.addressof(content), nbytes=len(text.encode()))
        kept.append(content)
    return kept
