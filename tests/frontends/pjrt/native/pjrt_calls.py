"""A client of the plug-in's native part: calls as jaxlib makes them, on devices that need no client."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from shardc.frontends.pjrt.abi.base import (
    ErrorDestroyArgs,
    ErrorGetCodeArgs,
    ErrorMessageArgs,
    EventAwaitArgs,
    EventDestroyArgs,
)
from shardc.frontends.pjrt.abi.buffers import (
    BufferDestroyArgs,
    BufferDimensionsArgs,
    BufferElementTypeArgs,
    BufferToHostBufferArgs,
)
from shardc.frontends.pjrt.abi.clients import ClientBufferFromHostBufferArgs
from shardc.frontends.pjrt.abi.functions import FUNCTIONS
from shardc.frontends.pjrt.api import Api, build_api
from shardc.frontends.pjrt.native.entries import args_of, struct_size
from shardc.frontends.pjrt.native.library import Library, library
from shardc.frontends.pjrt.native.records import DescriptionRecord, DeviceRecord, MemoryRecord
from shardc.hlo.config import Config
from shardc.native.lowlevel.records import RELAXED, Record, address_of, reference

#: PJRT's numbers of element types.
ELEMENTS = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9,
    "float16": 10, "float32": 11, "float64": 12, "complex64": 14, "complex128": 15,
}  # fmt: skip
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class PjrtProblem(Exception):
    """An error of PJRT's, with its code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Caller:
    """Calls functions of an `Api`, and raises what they answer."""

    def __init__(self, functions: Mapping[str, Callable[[Any], None]] | None = None) -> None:
        self.library: Library = library(Config.from_environment().cache_dir)
        self.api: Api = build_api(self.library, functions or {})
        self.functions = {name: _FUNCTION(self.api.table[5 + n]) for n, name in enumerate(FUNCTIONS)}
        self.devices = [_device(n) for n in range(2)]

    def raw(self, name: str, args: Record) -> int:
        """The address of the error, 0 without one."""
        args.struct_size = struct_size(type(args))
        return self.functions[name](address_of(args)) or 0

    def call(self, name: str, **fields: Any) -> Any:
        """The structure as it comes back."""
        values = {k: address_of(v) if not isinstance(v, float) else v for k, v in fields.items()}
        args = args_of(name)(**values)
        self.check(self.raw(name, args))
        return args

    def check(self, error: int | None) -> None:
        """Raise an error, which is destroyed."""
        if error:
            message, code = ErrorMessageArgs(error=error), ErrorGetCodeArgs(error=error)
            self.raw("Error_Message", message)
            self.raw("Error_GetCode", code)
            problem = PjrtProblem(code.code, ctypes.string_at(message.message, message.message_size).decode())
            self.raw("Error_Destroy", ErrorDestroyArgs(error=error))
            raise problem

    def put(self, value: Any, semantics: int = 0, device: int = 0, **fields: Any) -> tuple[int, int]:
        """A buffer of a NumPy array, and the event that tells that its memory is not needed any more."""
        dims, strides = _numbers(value.shape), _numbers(value.strides)
        args: ClientBufferFromHostBufferArgs = self.call(
            "Client_BufferFromHostBuffer", data=value.ctypes.data, type=ELEMENTS[value.dtype.name], dims=dims,
            num_dims=value.ndim, byte_strides=strides, num_byte_strides=value.ndim, host_buffer_semantics=semantics,
            device=self.devices[device], **fields,
        )  # fmt: skip
        return args.buffer, args.done_with_host_buffer

    def get(self, buffer: int, layout: Record | None = None, into: Any = None) -> Any:
        """The array of a buffer; ``into`` is the memory of a ``layout``."""
        shape: BufferDimensionsArgs = self.call("Buffer_Dimensions", buffer=buffer)
        dims = [ctypes.c_int64.from_address(shape.dims + 8 * k).value for k in range(shape.num_dims)]
        kind: BufferElementTypeArgs = self.call("Buffer_ElementType", buffer=buffer)
        out = np.empty(dims, next(n for n, k in ELEMENTS.items() if k == kind.type)) if into is None else into
        args: BufferToHostBufferArgs = self.call(
            "Buffer_ToHostBuffer", src=buffer, host_layout=layout, dst=out.ctypes.data, dst_size=out.nbytes
        )
        try:
            self.check(self.raw("Event_Await", EventAwaitArgs(event=args.event)))
        finally:
            self.raw("Event_Destroy", EventDestroyArgs(event=args.event))
        return out

    def destroy(self, *buffers: int) -> None:
        for buffer in buffers:
            self.check(self.raw("Buffer_Destroy", BufferDestroyArgs(buffer=buffer)))

    def release_event(self, event: int) -> None:
        self.check(self.raw("Event_Destroy", EventDestroyArgs(event=event)))

    def in_use(self, device: int = 0) -> int:
        """Bytes of blocks on a device."""
        return self.devices[device].bytes_in_use.load(RELAXED)


@cache
def caller() -> Caller:
    """One without functions in Python."""
    return Caller()


def _numbers(values: tuple[int, ...]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def _device(number: int) -> DeviceRecord:
    """A device with one memory; what it points to stays with it."""
    description = DescriptionRecord(id=number)
    device = DeviceRecord(local_hardware_id=number, is_addressable=1)
    handles = (ctypes.c_uint64 * 1)(ctypes.addressof(device))
    memory = MemoryRecord(id=number, num_devices=1)
    memory.devices = reference(ctypes.addressof(handles))
    device.description = reference(ctypes.addressof(description))
    device.default_memory = ctypes.addressof(memory)
    _KEPT.append((description, device, handles, memory))
    return device


_KEPT: list[Any] = []
