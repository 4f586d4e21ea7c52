"""Compiled programs as bytes: for ``jax.experimental.serialize_executable``, and for JAX's cache of compilations.

Besides the executable they have the program and the options that it was made of, so that what is loaded can say and
explain all that a compiled program can. They are for machines of the kind that made them, and this version of shardc.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from shardc.compiler.cache.serialize import read_bytes, to_bytes
from shardc.compiler.executable import Executable
from shardc.compiler.load.step import need_machine
from shardc.frontends.pjrt.abi.executables import ExecutableDeserializeAndLoadArgs, ExecutableSerializeArgs
from shardc.frontends.pjrt.compile_options import CompileOptions
from shardc.frontends.pjrt.compiled_handles import CompiledHandle
from shardc.frontends.pjrt.protos.wire import Message, number
from shardc.hlo.errors import InputError
from shardc.hlo.units import count_text
from shardc.hlo.version import VERSION

__all__ = ["SerializedProgram", "hand_over", "serialize", "take_serialized"]

_FORM = "shardc program"
_COMPILE_AGAIN = "compile the program again, with this version of shardc"


class SerializedProgram(Message):
    """``form`` and ``version`` tell who wrote it; ``options`` are JAX's, ``code`` StableHLO."""

    form: str = number(1)
    version: str = number(2)
    options: bytes = number(3)
    code: bytes = number(4)
    executable: bytes = number(5)

    def read_executable(self, options: CompileOptions) -> Executable:
        """The executable, to run with ``options``.

        Raises `InputError` where these ask for other devices in number, or the bytes are damaged or another version's,
        and `EnvironmentProblem` for code of another kind of machine.
        """
        executable = read_bytes(self.executable, "the serialized program")
        need_machine(executable, executable.target)
        if executable.num_devices != options.num_devices:
            raise InputError(
                f"{executable.name} was compiled for {count_text(executable.num_devices, 'device')}, but is loaded on "
                f"{options.num_devices}",
                fix="load it on as many devices (execution_devices=), or compile it again",
            )
        return executable


def serialize(handle: CompiledHandle, args: ExecutableSerializeArgs) -> None:
    """The answer to PJRT's question; the client frees it."""
    program = handle.compiled.program
    executable = to_bytes(handle.compiled.executable)
    message = SerializedProgram(_FORM, VERSION, program.options.message, program.code, executable).to_bytes()
    args.serialized_bytes = args.serialized_executable = hand_over(message)
    args.serialized_bytes_size = len(message)
    args.serialized_executable_deleter = _memory_functions()[1]


def take_serialized(args: ExecutableDeserializeAndLoadArgs) -> tuple[SerializedProgram, CompileOptions]:
    """What the client passes to be loaded, and the options that count: the client's own, or those of the program."""
    data = ctypes.string_at(args.serialized_executable, args.serialized_executable_size)
    try:
        found = SerializedProgram.read(data)
    except InputError:
        found = SerializedProgram()
    if found.form != _FORM:
        raise InputError("these bytes are not a compiled program of shardc", fix=_COMPILE_AGAIN)
    if found.version != VERSION:
        raise InputError(
            f"the program was compiled by shardc {found.version}, but this is {VERSION}", fix=_COMPILE_AGAIN
        )
    size = args.overridden_serialized_compile_options_size
    given = ctypes.string_at(args.overridden_serialized_compile_options, size) if size else found.options
    return found, CompileOptions.read(given)


def hand_over(content: bytes) -> int:
    """The address of a copy that the client frees with C's own function, since it may do so at any time."""
    at = int(_memory_functions()[0](max(1, len(content))) or 0)
    if not at:
        raise MemoryError(f"no memory for {len(content)} bytes of a serialized program")
    ctypes.memmove(at, content, len(content))
    return at


@cache
def _memory_functions() -> tuple[Any, int]:
    """C's malloc, and the address of its free."""
    process = ctypes.CDLL(None)
    allocate = process.malloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    return allocate, ctypes.cast(process.free, ctypes.c_void_p).value or 0
