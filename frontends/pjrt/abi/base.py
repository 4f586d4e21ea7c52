"""Versions, errors, events, named values, and what a plug-in is asked at first."""

from __future__ import annotations

from shardc.native.lowlevel.kinds import address, i32, i64, u8
from shardc.native.lowlevel.records import Record

__all__ = [
    "ErrorDestroyArgs", "ErrorForEachPayloadArgs", "ErrorGetCodeArgs", "ErrorMessageArgs", "EventAwaitArgs",
    "EventCreateArgs", "EventDestroyArgs", "EventErrorArgs", "EventIsReadyArgs", "EventOnReadyArgs", "EventSetArgs",
    "PjrtApiVersion", "PjrtError", "PjrtErrorFunctionTable", "PjrtExtensionBase", "PjrtNamedValue",
    "PluginAttributesArgs", "PluginInitializeArgs",
]  # fmt: skip


class PjrtExtensionBase(Record):
    struct_size: i64
    type: i32
    next: address


class PjrtApiVersion(Record):
    struct_size: i64
    extension_start: address
    major_version: i32
    minor_version: i32


class ErrorDestroyArgs(Record):
    struct_size: i64
    extension_start: address
    error: address


class ErrorMessageArgs(Record):
    struct_size: i64
    extension_start: address
    error: address
    message: address
    message_size: i64


class PjrtErrorFunctionTable(Record):
    struct_size: i64
    instance_size: i64
    extension_start: address
    destroy: address
    message: address
    get_code: address
    for_each_payload: address


class PjrtError(Record):
    vtable: address


class ErrorGetCodeArgs(Record):
    struct_size: i64
    extension_start: address
    error: address
    code: i32


class ErrorForEachPayloadArgs(Record):
    struct_size: i64
    extension_start: address
    error: address
    visitor: address
    user_arg: address


class PjrtNamedValue(Record):
    struct_size: i64
    extension_start: address
    name: address
    name_size: i64
    type: i32
    u: i64  # text, a number, numbers, the bits of a float, or a truth value
    value_size: i64


class PluginInitializeArgs(Record):
    struct_size: i64
    extension_start: address


class PluginAttributesArgs(Record):
    struct_size: i64
    extension_start: address
    attributes: address
    num_attributes: i64


class EventDestroyArgs(Record):
    struct_size: i64
    extension_start: address
    event: address


class EventIsReadyArgs(Record):
    struct_size: i64
    extension_start: address
    event: address
    is_ready: u8


class EventErrorArgs(Record):
    struct_size: i64
    extension_start: address
    event: address


class EventAwaitArgs(Record):
    struct_size: i64
    extension_start: address
    event: address


class EventOnReadyArgs(Record):
    struct_size: i64
    extension_start: address
    event: address
    callback: address
    user_arg: address


class EventCreateArgs(Record):
    struct_size: i64
    extension_start: address
    event: address


class EventSetArgs(Record):
    struct_size: i64
    extension_start: address
    event: address
    error_code: i32
    error_message: address
    error_message_size: i64
