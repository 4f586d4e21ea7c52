"""Extensions of the interface: each is a structure behind `PjrtExtensionBase` in a linked list."""

from __future__ import annotations

from shardc.frontends.pjrt.abi.base import PjrtExtensionBase
from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.records import Record

__all__ = [
    "FFI_EXTENSION", "LAYOUTS_EXTENSION", "SHARDINGS_EXTENSION", "FfiExtension", "FfiUserDataAddArgs",
    "LayoutsBufferMemoryLayoutArgs", "LayoutsDefaultLayoutArgs", "LayoutsExecutableLayoutsArgs", "LayoutsExtension",
    "LayoutsMemoryLayoutDestroyArgs", "LayoutsMemoryLayoutSerializeArgs", "ShardingsArgs", "ShardingsExtension",
]  # fmt: skip

#: `PjrtExtensionBase.type` of each.
LAYOUTS_EXTENSION, FFI_EXTENSION, SHARDINGS_EXTENSION = 4, 5, 19


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


class LayoutsMemoryLayoutDestroyArgs(Record):
    struct_size: i64
    extension_start: address
    layout: address


class LayoutsMemoryLayoutSerializeArgs(Record):
    struct_size: i64
    extension_start: address
    layout: address
    serialized_bytes: address
    serialized_bytes_size: i64
    serialized_layout: address
    serialized_layout_deleter: address


class LayoutsBufferMemoryLayoutArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    layout: address


class LayoutsDefaultLayoutArgs(Record):
    """``of`` is a client or a topology: there are two functions."""

    struct_size: i64
    extension_start: address
    of: address
    type: i32
    dims: address
    num_dims: i64
    layout: address


class LayoutsExecutableLayoutsArgs(Record):
    """Of an executable's results or parameters: there are two functions."""

    struct_size: i64
    extension_start: address
    executable: address
    num_layouts: i64
    layouts: address


class LayoutsExtension(Record):
    base: PjrtExtensionBase
    memory_layout_destroy: address
    memory_layout_serialize: address
    client_get_default_layout: address
    buffer_memory_layout: address
    topology_get_default_layout: address
    executable_get_output_layouts: address
    executable_get_parameter_layouts: address


class ShardingsArgs(Record):
    """Of an executable's parameters or results: there are two functions."""

    struct_size: i64
    extension_start: address
    executable: address
    num_shardings: i64
    shardings: address
    sharding_sizes: address


class ShardingsExtension(Record):
    base: PjrtExtensionBase
    parameter_shardings: address
    output_shardings: address
