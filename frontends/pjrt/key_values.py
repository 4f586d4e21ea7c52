"""The store of values by name that ``jax.distributed`` gives a plug-in: two functions in C."""

from __future__ import annotations

import ctypes
from typing import Any

from shardc.frontends.pjrt.abi.clients import ClientCreateArgs, KeyValueGetCallbackArgs, KeyValuePutCallbackArgs
from shardc.hlo.errors import RunError

__all__ = ["ClientKeyValues"]

#: A function of the store: it takes a structure and gives the address of an error, or 0.
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
#: Makes an error of a code and a message; what it gives comes back as the function's answer.
_MAKE_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t)
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
#: The code of an error for a value that did not come in time.
_DEADLINE_EXCEEDED = 4
_FAILED = 1


class ClientKeyValues:
    """The store behind the functions in the arguments of Client_Create, which live as long as the client.

    Both raise `RunError` where the store itself fails.
    """

    def __init__(self, args: ClientCreateArgs) -> None:
        self._get, self._get_argument = _FUNCTION(args.kv_get_callback), args.kv_get_user_arg
        self._put, self._put_argument = _FUNCTION(args.kv_put_callback), args.kv_put_user_arg

    def put(self, name: str, value: bytes) -> None:
        key, held = name.encode(), ctypes.create_string_buffer(value, len(value))
        args = KeyValuePutCallbackArgs(
            struct_size=ctypes.sizeof(KeyValuePutCallbackArgs),
            key=_address(key),
            key_size=len(key),
            value=ctypes.addressof(held),
            value_size=len(value),
            user_arg=self._put_argument,
        )
        error = _call(self._put, args)
        if error is not None:
            raise RunError(f"the key-value store of jax.distributed takes no value: {error[1]}", where=name)

    def get(self, name: str, seconds: float) -> bytes | None:
        key = name.encode()
        args = KeyValueGetCallbackArgs(
            struct_size=ctypes.sizeof(KeyValueGetCallbackArgs),
            key=_address(key),
            key_size=len(key),
            timeout_in_ms=round(1000 * seconds),
            user_arg=self._get_argument,
        )
        error = _call(self._get, args)
        if error is not None:
            if error[0] == _DEADLINE_EXCEEDED:
                return None
            raise RunError(f"the key-value store of jax.distributed gives no value: {error[1]}", where=name)
        value = ctypes.string_at(args.value, args.value_size)
        _DELETER(args.value_deleter_callback)(args.value)
        return value


def _call(function: Any, args: Any) -> tuple[int, str] | None:
    """Call a function of the store; the code and message of its error, if there is one."""
    told: list[tuple[int, str]] = []

    def make(code: int, message: int, size: int) -> int:
        told.append((code, ctypes.string_at(message, size).decode(errors="replace")))
        return _FAILED

    maker = _MAKE_ERROR(make)
    place = ctypes.c_void_p(ctypes.cast(maker, ctypes.c_void_p).value)
    args.callback_error = ctypes.addressof(place)
    if not function(ctypes.addressof(args)):
        return None
    return told[0] if told else (0, "it does not say why")


def _address(text: bytes) -> int:
    """Where the bytes lie, as long as they are held."""
    return ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value or 0
