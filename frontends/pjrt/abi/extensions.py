"""Extensions of the interface: each is a structure behind `PjrtExtensionBase` in a linked list."""

from __future__ import annotations

from shardc.frontends.pjrt.abi.base import PjrtExtensionBase
from shardc.native.lowlevel.kinds import address, i64
from shardc.native.lowlevel.records import Record

__all__ = ["FFI_EXTENSION", "FfiExtension", "FfiUserDataAddArgs"]

#: `PjrtExtensionBase.type` of each.
FFI_EXTENSION = 5


class FfiUserDataAddArgs(Record):
    struct_size: i64
    extension_start: address
    context: address
    type_id: i64
    data: address


class FfiExtension(Record):
    base: PjrtExtensionBase
    type_id_register: address
    user_data_add: address
    register_handler: address
