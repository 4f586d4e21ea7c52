"""Devices, their descriptions and memories."""

from __future__ import annotations

from shardc.native.lowlevel.kinds import address, i32, i64, u8
from shardc.native.lowlevel.records import Record

__all__ = [
    "AsyncTrackingEventDestroyArgs", "DeviceAddressableMemoriesArgs", "DeviceClearMemoryStatsArgs",
    "DeviceCreateAsyncTrackingEventArgs", "DeviceDefaultMemoryArgs", "DeviceDescriptionAttributesArgs",
    "DeviceDescriptionDebugStringArgs", "DeviceDescriptionIdArgs", "DeviceDescriptionKindArgs",
    "DeviceDescriptionProcessIndexArgs", "DeviceDescriptionToStringArgs", "DeviceGetAttributesArgs",
    "DeviceGetDescriptionArgs", "DeviceIsAddressableArgs", "DeviceLocalHardwareIdArgs", "DeviceMemoryStatsArgs",
    "DevicePoisonExecutionArgs", "MemoryAddressableByDevicesArgs", "MemoryDebugStringArgs", "MemoryIdArgs",
    "MemoryKindArgs", "MemoryKindIdArgs", "MemoryToStringArgs", "PjrtMemory", "PjrtMemoryFunctionTable",
]  # fmt: skip


class PjrtMemoryFunctionTable(Record):
    struct_size: i64
    extension_start: address
    instance_struct_size: i64
    get_user_data: address
    set_user_data: address


class PjrtMemory(Record):
    vtable: address


class DeviceDescriptionIdArgs(Record):
    struct_size: i64
    extension_start: address
    device_description: address
    id: i32


class DeviceDescriptionProcessIndexArgs(Record):
    struct_size: i64
    extension_start: address
    device_description: address
    process_index: i32


class DeviceDescriptionAttributesArgs(Record):
    struct_size: i64
    extension_start: address
    device_description: address
    num_attributes: i64
    attributes: address


class DeviceDescriptionKindArgs(Record):
    struct_size: i64
    extension_start: address
    device_description: address
    device_kind: address
    device_kind_size: i64


class DeviceDescriptionDebugStringArgs(Record):
    struct_size: i64
    extension_start: address
    device_description: address
    debug_string: address
    debug_string_size: i64


class DeviceDescriptionToStringArgs(Record):
    struct_size: i64
    extension_start: address
    device_description: address
    to_string: address
    to_string_size: i64


class DeviceGetDescriptionArgs(Record):
    struct_size: i64
    extension_start: address
    device: address
    device_description: address


class DeviceIsAddressableArgs(Record):
    struct_size: i64
    extension_start: address
    device: address
    is_addressable: u8


class DeviceLocalHardwareIdArgs(Record):
    struct_size: i64
    extension_start: address
    device: address
    local_hardware_id: i32


class DeviceAddressableMemoriesArgs(Record):
    struct_size: i64
    extension_start: address
    device: address
    memories: address
    num_memories: i64


class DeviceDefaultMemoryArgs(Record):
    struct_size: i64
    extension_start: address
    device: address
    memory: address


class DeviceMemoryStatsArgs(Record):
    struct_size: i64
    extension_start: address
    device: address
    bytes_in_use: i64
    peak_bytes_in_use: i64
    peak_bytes_in_use_is_set: u8
    num_allocs: i64
    num_allocs_is_set: u8
    largest_alloc_size: i64
    largest_alloc_size_is_set: u8
    bytes_limit: i64
    bytes_limit_is_set: u8
    bytes_reserved: i64
    bytes_reserved_is_set: u8
    peak_bytes_reserved: i64
    peak_bytes_reserved_is_set: u8
    bytes_reservable_limit: i64
    bytes_reservable_limit_is_set: u8
    largest_free_block_bytes: i64
    largest_free_block_bytes_is_set: u8
    pool_bytes: i64
    pool_bytes_is_set: u8
    peak_pool_bytes: i64
    peak_pool_bytes_is_set: u8


class DeviceClearMemoryStatsArgs(Record):
    struct_size: i64
    extension_start: address
    device: address


class DevicePoisonExecutionArgs(Record):
    struct_size: i64
    extension_start: address
    device: address
    launch_id: i32
    error_code: i32
    error_message: address
    error_message_size: i64
    poisoned: u8
    payload: address
    num_payload: i64


class DeviceGetAttributesArgs(Record):
    struct_size: i64
    extension_start: address
    device: address
    attributes: address
    num_attributes: i64
    device_attributes: address
    attributes_deleter: address


class DeviceCreateAsyncTrackingEventArgs(Record):
    struct_size: i64
    extension_start: address
    device: address
    description: address
    description_size: i64
    event: address


class AsyncTrackingEventDestroyArgs(Record):
    struct_size: i64
    extension_start: address
    event: address


class MemoryIdArgs(Record):
    struct_size: i64
    extension_start: address
    memory: address
    id: i32


class MemoryKindArgs(Record):
    struct_size: i64
    extension_start: address
    memory: address
    kind: address
    kind_size: i64


class MemoryKindIdArgs(Record):
    struct_size: i64
    extension_start: address
    memory: address
    kind_id: i32


class MemoryDebugStringArgs(Record):
    struct_size: i64
    extension_start: address
    memory: address
    debug_string: address
    debug_string_size: i64


class MemoryToStringArgs(Record):
    struct_size: i64
    extension_start: address
    memory: address
    to_string: address
    to_string_size: i64


class MemoryAddressableByDevicesArgs(Record):
    struct_size: i64
    extension_start: address
    memory: address
    devices: address
    num_devices: i64
