"""The plug-in's native code in this process, and what Python does with it.

All of it is one module, compiled once for a kind of machine and kept in the cache on disk under the text of what it is
made of, so that a later process neither makes LLVM's text nor compiles.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from shardc.compiler.cache.cache import fetch_object
from shardc.frontends.pjrt.native import (
    blocks,
    buffers,
    clients,
    contexts,
    devices,
    entries,
    errors,
    events,
    executables,
    execute,
    layouts,
    memory_pool,
    queue,
    trampoline,
    transfers,
)
from shardc.frontends.pjrt.native.entries import entries_text, entry_symbol
from shardc.frontends.pjrt.native.trampoline import ENTRIES, INTERPRETER, EntryTable
from shardc.hlo.config import Config
from shardc.hlo.errors import EnvironmentProblem, InputError, RunError, ShardcError, UnsupportedError
from shardc.launcher.driver import native_step
from shardc.native.llvm.jit import Loaded, compile_ir, load_object
from shardc.native.llvm.target import Target, host_target
from shardc.native.lowlevel.builtins import symbol_of
from shardc.native.lowlevel.module import compile_functions
from shardc.native.memory.transposing import transposing_module
from shardc.native.threads import meeting

__all__ = ["Library", "error_code_of", "library", "library_ir"]

#: Modules whose exported functions are in the native module.
_MODULES = (
    memory_pool, errors, events, blocks, buffers, transfers, layouts, devices, clients, contexts, executables, queue,
    execute, native_step, trampoline, meeting,
)  # fmt: skip

#: What an error of ours is called by PJRT's numbers.
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (UnsupportedError, errors.UNIMPLEMENTED),
    (NotImplementedError, errors.UNIMPLEMENTED),
    (RunError, errors.INTERNAL),
    (EnvironmentProblem, errors.FAILED_PRECONDITION),
    (InputError, errors.INVALID_ARGUMENT),
    (ShardcError, errors.INVALID_ARGUMENT),
    (KeyboardInterrupt, errors.CANCELLED),
    (MemoryError, errors.RESOURCE_EXHAUSTED),
)

_A, _I32, _I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


def error_code_of(problem: BaseException) -> int:
    """PJRT's number for an exception."""
    return next((code for kind, code in _CODES if isinstance(problem, kind)), errors.INTERNAL)


@dataclass(frozen=True)
class Library:
    """The native code of this process. Records are given and taken by their addresses; 0 is none.

    What may call the client back (`complete_event`, `release_block`) runs without the GIL.
    """

    loaded: Loaded

    def address(self, symbol: str) -> int:
        """Where an exported function is."""
        return self.loaded.address(symbol)

    def function(self, symbol: str, result: Any, *arguments: Any, keeps_gil: bool = True) -> Callable[..., Any]:
        """An exported function for Python. With the GIL a call is quicker, and must not wait or call back."""
        kind = ctypes.PYFUNCTYPE if keeps_gil else ctypes.CFUNCTYPE
        function: Callable[..., Any] = kind(result, *arguments)(self.address(symbol))
        return function

    @cached_property
    def _make_error(self) -> Callable[..., int]:
        return self.function("shardc_pjrt_make_error", _A, _I32, ctypes.c_char_p, _I64)

    def make_error(self, problem: BaseException | str, code: int | None = None) -> int:
        """An error with an exception's message (and its type, where it is none of ours)."""
        if isinstance(problem, str):
            text = problem
        else:
            text = str(problem) if isinstance(problem, ShardcError) else f"{type(problem).__name__}: {problem}"
            code = error_code_of(problem) if code is None else code
        message = text.encode(errors="replace")
        return int(self._make_error(errors.INTERNAL if code is None else code, message, len(message)))

    @cached_property
    def release_error(self) -> Callable[[int], None]:
        return self.function("shardc_pjrt_release_error", None, _A)

    @cached_property
    def done_event(self) -> int:
        """The event that is complete from the beginning."""
        return int(self.function("shardc_pjrt_done_event", _A)())

    @cached_property
    def _make_event(self) -> Callable[..., int | None]:
        return self.function("shardc_pjrt_make_event", _A, _I32)

    def make_event(self, references: int = 2) -> int:
        """An event to be completed: one reference for who does that, the others for who gets it."""
        return _found(self._make_event(references))

    @cached_property
    def _complete_event(self) -> Callable[..., None]:
        return self.function("shardc_pjrt_complete_event", None, _A, _A, keeps_gil=False)

    def complete_event(self, event: int, problem: BaseException | int = 0) -> None:
        """Complete an event, with an exception or an error (which it takes over); gives up a reference to it."""
        self._complete_event(event, self.make_error(problem) if isinstance(problem, BaseException) else problem)

    @cached_property
    def release_event(self) -> Callable[[int], None]:
        return self.function("shardc_pjrt_release_event", None, _A)

    @cached_property
    def _make_block(self) -> Callable[..., int | None]:
        return self.function("shardc_pjrt_make_block", _A, _A, _I64)

    def make_block(self, device: int, nbytes: int) -> int:
        """A block of new memory with one reference, counted for ``device`` (or for none)."""
        return _found(self._make_block(device, nbytes))

    @cached_property
    def keep_block(self) -> Callable[[int], None]:
        return self.function("shardc_pjrt_keep_block", None, _A)

    @cached_property
    def release_block(self) -> Callable[[int], None]:
        return self.function("shardc_pjrt_release_block", None, _A, keeps_gil=False)

    @cached_property
    def _make_buffer(self) -> Callable[..., int | None]:
        return self.function("shardc_pjrt_make_buffer", _A, _A, _A, _I32, _A, _I32, _A, _A)

    def make_buffer(
        self, device: int, memory: int, element_type: int, dims: Sequence[int], block: int, ready: int = 0
    ) -> int:
        """A live buffer. It takes over a reference to ``block`` and one to ``ready`` (default: it is complete)."""
        rows = (_I64 * len(dims))(*dims)
        event = ready or self.done_event
        return _found(self._make_buffer(device, memory, element_type, rows, len(dims), block, event))

    @cached_property
    def hold_block(self) -> Callable[[int], int | None]:
        """The block of a live buffer, with a reference for the caller; None for one that is not live."""
        return self.function("shardc_pjrt_hold_block", _A, _A)

    @cached_property
    def pieces_in_use(self) -> Callable[[], int]:
        """How many errors, events, blocks, buffers and tasks there are."""
        return self.function("shardc_pjrt_pieces_in_use", _I64)

    @cached_property
    def entry_table(self) -> EntryTable:
        """Where Python's functions stand."""
        return EntryTable.at(int(self.function("shardc_pjrt_entry_table", _A)()))


def _found(at: int | None) -> int:
    if not at:
        raise MemoryError("there is no memory left on this machine")
    return at


@cache
def library(cache_dir: Path) -> Library:
    """The native code, with its object kept in a folder. There is one in a process."""
    machine = host_target()
    config = Config(cache_dir=cache_dir)
    key = _key()
    code = [
        fetch_object(key, machine, config, lambda: compile_ir(library_ir(machine), machine)),
        fetch_object(f"{key} transposing", machine, config, lambda: compile_ir(transposing_module(machine), machine)),
    ]
    return Library(load_object(code, _exports(), _interpreter()))


def library_ir(target: Target | None = None) -> str:
    """The IR text of the native module for ``target``."""
    return compile_functions(_functions(), target) + entries_text(ENTRIES)


def _functions() -> list[Callable[..., Any]]:
    """All exported functions of `_MODULES`."""
    found = (f for m in _MODULES for f in vars(m).values() if getattr(f, "__module__", None) == m.__name__)
    return [f for f in found if symbol_of(f) and not getattr(f, "external", False)]


def _exports() -> list[str]:
    return [*(symbol_of(f) or "" for f in _functions()), *map(entry_symbol, range(ENTRIES))]


def _interpreter() -> dict[str, int]:
    """Python's own functions, by the names that native code has for them."""
    python = ctypes.pythonapi
    names = {name: name if hasattr(python, name) else other for name, other in INTERPRETER}
    return {name: ctypes.cast(getattr(python, found), _A).value or 0 for name, found in names.items()}


def _key() -> str:
    """A digest of the source text of what the module is made of."""
    native = Path(entries.__file__).parents[3] / "native"
    folders = [Path(entries.__file__).parent, Path(entries.__file__).parents[1] / "abi"]
    folders += [native / part for part in ("lowlevel", "threads", "llvm", "drive", "collectives", "memory")]
    digest = hashlib.sha256()
    files = [Path(native_step.__file__), *(p for folder in folders for p in folder.glob("*.py"))]
    for path in sorted(files):
        digest.update(f"{path.parent.name}/{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()
