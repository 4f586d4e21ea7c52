"""LLVM's two long calls without llvmlite's lock, so that several modules compile at the same time.

llvmlite holds one lock around every call. LLVM asks only that threads share neither a context nor a target machine,
which holds where each makes its own. Its functions are the same ones, called through a handle of our own to the same
library; a llvmlite that names them otherwise is called as it wants to be, one thread at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

__all__ = ["emit_object", "emit_text", "run_passes"]


@lru_cache(maxsize=8)
def _function(name: str) -> Callable[..., Any] | None:
    try:
        locked = getattr(llvm.ffi.lib, name)
        function = getattr(ctypes.CDLL(llvm.ffi.lib._name), name)
    except (AttributeError, OSError):
        return None
    function.argtypes, function.restype = locked.argtypes, locked.restype
    found: Callable[..., Any] = function
    return found


def run_passes(passes: Any, module: Any, builder: Any) -> None:
    """Run a module pass manager over a parsed module, as ``passes.run(module, builder)``."""
    run = _function("LLVMPY_RunNewModulePassManager")
    if run is None:
        passes.run(module, builder)
    else:
        run(passes, module, builder)


def emit_object(machine: Any, module: Any) -> bytes:
    """The object file of a parsed module, as ``machine.emit_object(module)``; RuntimeError with LLVM's words."""
    return _emit(machine, module, True)


def emit_text(machine: Any, module: Any) -> bytes:
    """The assembly of a parsed module, as ``machine.emit_assembly(module)``; RuntimeError with LLVM's words."""
    return _emit(machine, module, False)


def _emit(machine: Any, module: Any, binary: bool) -> bytes:
    emit = _function("LLVMPY_TargetMachineEmitToMemory")
    if emit is None:
        return bytes(machine.emit_object(module)) if binary else str(machine.emit_assembly(module)).encode()
    with llvm.ffi.OutputString() as problem:
        buffer = emit(machine, module, int(binary), problem)
        if not buffer:
            raise RuntimeError(str(problem))
    library = llvm.ffi.lib
    try:
        return ctypes.string_at(library.LLVMPY_GetBufferStart(buffer), library.LLVMPY_GetBufferSize(buffer))
    finally:
        library.LLVMPY_DisposeMemoryBuffer(buffer)
