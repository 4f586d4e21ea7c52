"""Python that programs call: ``jax.debug.print``, ``pure_callback``, ``io_callback``; and that compiling calls:
``jax.debug.inspect_array_sharding``.

JAX lowers a call of the first kind to a custom call with a number, keeps the functions with its executable, and passes
them with each execution (`shardc.frontends.pjrt.native.contexts`), also to a program that it took from its cache. One
of the second kind has two addresses: of a C function of jaxlib, and of its data.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

from shardc.frontends.pjrt.native.contexts import HostFunctionsRecord
from shardc.frontends.pjrt.protos.shardings import sharding_message
from shardc.hlo.errors import RunError
from shardc.hlo.ir.custom_calls import INSPECTION
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module

__all__ = ["HostFunctions", "drop_inspections", "mentions_inspections", "tell_shardings"]


class HostFunctions(Sequence[Callable[..., Any]]):
    """The functions of the execution that runs, by their number in the program."""

    def __init__(self) -> None:
        self._address = 0

    @contextmanager
    def of(self, address: int) -> Iterator[None]:
        """Within the block they are those of the `HostFunctionsRecord` at ``address``; 0: there are none."""
        before, self._address = self._address, address
        try:
            yield
        finally:
            self._address = before

    def __len__(self) -> int:
        return HostFunctionsRecord.from_address(self._address).count if self._address else 0

    @overload
    def __getitem__(self, index: int) -> Callable[..., Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Callable[..., Any]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[k] for k in range(len(self))[index]]
        if not 0 <= index < len(self):
            raise RunError(
                "the program calls Python, but its functions are not available in this process",
                fix="compile the function in this process: a serialized program does not contain Python functions",
            )
        record = HostFunctionsRecord.from_address(self._address)
        items = ctypes.c_void_p * len(self)
        found: Any = items.from_address(ctypes.c_void_p.from_buffer(record).value or 0)[index]
        return ctypes.cast(found, ctypes.py_object).value


# --- who asks for shardings ------------------------------------------------------------------------------------------


class _ShardingAnswer(ctypes.Structure):
    """What jaxlib's function takes: the message of a sharding; and where it leaves an error, with what frees that."""


_Free = ctypes.CFUNCTYPE(None, ctypes.POINTER(_ShardingAnswer))
_ShardingAnswer._fields_ = [
    ("sharding", ctypes.c_char_p),
    ("size", ctypes.c_size_t),
    ("error", ctypes.c_char_p),
    ("kept", ctypes.c_void_p),
    ("free", _Free),
]
_Tell = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_ShardingAnswer))

#: Bytes of the two addresses.
_ADDRESSES = 16
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


def mentions_inspections(code: bytes) -> bool:
    """Whether a program asks for shardings."""
    return INSPECTION.encode() in code


def drop_inspections(module: Module) -> Module:
    """``module`` without the calls that ask for shardings."""

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        return operands[0] if _asks(old) else None

    return rebuild_module(module, change, {"custom-call"})


def tell_shardings(propagated: Module) -> None:
    """Call all that ask for the sharding of a value of the propagated program, in their order.

    Raises `RunError` where a function of the user's does not return.
    """
    for i in filter(_asks, propagated.instructions()):
        addresses = _ESCAPED.sub(lambda m: bytes([int(m[1], 16)]), str(i.attrs["backend_config"]).encode())
        assert len(addresses) == _ADDRESSES, "jaxlib's addresses"
        function, data = (int.from_bytes(addresses[k : k + 8], "little") for k in (0, 8))
        message = sharding_message(i.operands[0].sharding).to_bytes()
        answer = _ShardingAnswer(message, len(message))
        _Tell(function)(data, ctypes.byref(answer))
        if answer.error:
            told = answer.error.decode(errors="replace")
            answer.free(ctypes.byref(answer))
            raise RunError(f"the callback of jax.debug.inspect_array_sharding failed: {told}", where=i.place)


def _asks(i: Instruction) -> bool:
    return i.opcode == "custom-call" and i.attrs["custom_call_target"] == INSPECTION
