"""Clients: creation, devices, programs that come in, buffers made from the host."""

from __future__ import annotations

from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.records import Record

__all__ = [
    "ClientAddressableDevicesArgs", "ClientAddressableMemoriesArgs", "ClientBufferFromHostBufferArgs",
    "ClientCompileArgs", "ClientCreateAliasBufferArgs", "ClientCreateArgs",
    "ClientCreateBuffersForAsyncHostToDeviceArgs", "ClientCreateErrorBufferArgs",
    "ClientCreateUninitializedBufferArgs", "ClientCreateViewOfDeviceBufferArgs",
    "ClientDefaultDeviceAssignmentArgs", "ClientDestroyArgs", "ClientDevicesArgs", "ClientDmaMapArgs",
    "ClientDmaUnmapArgs", "ClientFulfillAliasBufferArgs", "ClientLoadArgs", "ClientLookupAddressableDeviceArgs",
    "ClientLookupDeviceArgs", "ClientPlatformNameArgs", "ClientPlatformVersionArgs", "ClientProcessIndexArgs",
    "ClientTopologyDescriptionArgs", "ClientUpdateGlobalProcessInfoArgs", "KeyValueGetCallbackArgs",
    "KeyValuePutCallbackArgs", "KeyValueTryGetCallbackArgs", "PjrtProcessInfo", "PjrtProgram", "PjrtShapeSpec",
]  # fmt: skip


class KeyValueGetCallbackArgs(Record):
    struct_size: i64
    extension_start: address
    key: address
    key_size: i64
    timeout_in_ms: i32
    callback_error: address
    user_arg: address
    value: address
    value_size: i64
    value_deleter_callback: address


class KeyValueTryGetCallbackArgs(Record):
    struct_size: i64
    extension_start: address
    key: address
    key_size: i64
    callback_error: address
    user_arg: address
    value: address
    value_size: i64
    value_deleter_callback: address


class KeyValuePutCallbackArgs(Record):
    struct_size: i64
    extension_start: address
    key: address
    key_size: i64
    value: address
    value_size: i64
    callback_error: address
    user_arg: address


class ClientCreateArgs(Record):
    struct_size: i64
    extension_start: address
    create_options: address
    num_options: i64
    kv_get_callback: address
    kv_get_user_arg: address
    kv_put_callback: address
    kv_put_user_arg: address
    client: address
    kv_try_get_callback: address
    kv_try_get_user_arg: address


class ClientDestroyArgs(Record):
    struct_size: i64
    extension_start: address
    client: address


class ClientPlatformNameArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    platform_name: address
    platform_name_size: i64


class ClientProcessIndexArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    process_index: i32


class ClientPlatformVersionArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    platform_version: address
    platform_version_size: i64


class ClientTopologyDescriptionArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    topology: address


class ClientDevicesArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    devices: address
    num_devices: i64


class ClientAddressableDevicesArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    addressable_devices: address
    num_addressable_devices: i64


class ClientLookupDeviceArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    id: i32
    device: address


class ClientLookupAddressableDeviceArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    local_hardware_id: i32
    addressable_device: address


class PjrtProcessInfo(Record):
    struct_size: i64
    task_id: i32
    incarnation_id: i64
    state: i32
    error_code: i32
    error_message: address
    error_message_size: i64


class ClientUpdateGlobalProcessInfoArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    process_infos: address
    num_process_infos: i64


class ClientAddressableMemoriesArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    addressable_memories: address
    num_addressable_memories: i64


class PjrtProgram(Record):
    struct_size: i64
    extension_start: address
    code: address
    code_size: i64
    format: address
    format_size: i64


class ClientCompileArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    program: address
    compile_options: address
    compile_options_size: i64
    executable: address


class ClientLoadArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    executable: address
    compile_options: address
    compile_options_size: i64
    loaded_executable: address


class ClientDefaultDeviceAssignmentArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    num_replicas: i32
    num_partitions: i32
    default_assignment_size: i64
    default_assignment: address


class ClientDmaMapArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    data: address
    size: i64


class ClientDmaUnmapArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    data: address


class ClientCreateUninitializedBufferArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    shape_dims: address
    shape_num_dims: i64
    shape_element_type: i32
    shape_layout: address
    device: address
    memory: address
    buffer: address


class ClientCreateErrorBufferArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    error_code: i32
    error_message: address
    error_message_size: i64
    shape_dims: address
    shape_num_dims: i64
    shape_element_type: i32
    shape_layout: address
    memory: address
    buffer: address
    payload: address
    num_payload: i64


class ClientCreateAliasBufferArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    memory: address
    shape_dims: address
    shape_num_dims: i64
    shape_element_type: i32
    shape_layout: address
    alias_buffer: address
    fulfill_alias_buffer_cb: address


class ClientFulfillAliasBufferArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    buffer: address
    status_code: i32
    error_message: address
    error_message_size: i64
    fulfill_alias_buffer_cb: address


class ClientBufferFromHostBufferArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    data: address
    type: i32
    dims: address
    num_dims: i64
    byte_strides: address
    num_byte_strides: i64
    host_buffer_semantics: i32
    device: address
    memory: address
    device_layout: address
    done_with_host_buffer: address
    buffer: address


class ClientCreateViewOfDeviceBufferArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    device_buffer_ptr: address
    dims: address
    num_dims: i64
    element_type: i32
    layout: address
    device: address
    on_delete_callback: address
    on_delete_callback_arg: address
    stream: i64
    buffer: address
    memory: address


class PjrtShapeSpec(Record):
    struct_size: i64
    extension_start: address
    dims: address
    num_dims: i64
    element_type: i32


class ClientCreateBuffersForAsyncHostToDeviceArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    shape_specs: address
    num_shape_specs: i64
    device_layouts: address
    num_device_layouts: i64
    memory: address
    transfer_manager: address
