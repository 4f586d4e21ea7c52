"""Buffers and their layouts."""

from __future__ import annotations

from shardc.native.lowlevel.kinds import address, i32, i64, u8
from shardc.native.lowlevel.records import Record

__all__ = [
    "BufferBitcastArgs", "BufferCopyRawToHostArgs", "BufferCopyRawToHostFutureArgs",
    "BufferCopyRawToHostFutureCallbackArgs", "BufferCopyToDeviceArgs", "BufferCopyToMemoryArgs",
    "BufferDecreaseExternalReferenceCountArgs", "BufferDeleteArgs", "BufferDestroyArgs", "BufferDeviceArgs",
    "BufferDimensionsArgs", "BufferDonateWithControlDependencyArgs",
    "BufferDonateWithControlDependencyCallbackArgs", "BufferDynamicDimensionIndicesArgs", "BufferElementTypeArgs",
    "BufferGetMemoryLayoutArgs", "BufferIncreaseExternalReferenceCountArgs", "BufferIsDeletedArgs",
    "BufferIsOnCpuArgs", "BufferMemoryArgs", "BufferOnDeviceSizeInBytesArgs",
    "BufferOpaqueDeviceMemoryDataPointerArgs", "BufferReadyEventArgs", "BufferToHostBufferArgs",
    "BufferUnpaddedDimensionsArgs", "BufferUnsafePointerArgs", "PjrtBufferMemoryLayout",
    "PjrtBufferMemoryLayoutStrides", "PjrtBufferMemoryLayoutTiled",
]  # fmt: skip


class PjrtBufferMemoryLayoutTiled(Record):
    struct_size: i64
    extension_start: address
    minor_to_major: address
    minor_to_major_size: i64
    tile_dims: address
    tile_dim_sizes: address
    num_tiles: i64


class PjrtBufferMemoryLayoutStrides(Record):
    struct_size: i64
    extension_start: address
    byte_strides: address
    num_byte_strides: i64


class PjrtBufferMemoryLayout(Record):
    struct_size: i64
    extension_start: address
    u: PjrtBufferMemoryLayoutTiled  # or a PjrtBufferMemoryLayoutStrides
    type: i32


class BufferDestroyArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address


class BufferElementTypeArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    type: i32


class BufferDimensionsArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    dims: address
    num_dims: i64


class BufferUnpaddedDimensionsArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    unpadded_dims: address
    num_dims: i64


class BufferDynamicDimensionIndicesArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    dynamic_dim_indices: address
    num_dynamic_dims: i64


class BufferGetMemoryLayoutArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    layout: PjrtBufferMemoryLayout


class BufferToHostBufferArgs(Record):
    struct_size: i64
    extension_start: address
    src: address
    host_layout: address
    dst: address
    dst_size: i64
    event: address


class BufferOnDeviceSizeInBytesArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    on_device_size_in_bytes: i64


class BufferDeleteArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address


class BufferIsDeletedArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    is_deleted: u8


class BufferCopyRawToHostArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    dst: address
    offset: i64
    transfer_size: i64
    event: address


class BufferCopyRawToHostFutureCallbackArgs(Record):
    struct_size: i64
    callback_data: address
    error_code: i32
    error_message: address
    error_message_size: i64
    dst: address


class BufferCopyRawToHostFutureArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    offset: i64
    transfer_size: i64
    event: address
    callback_data: address
    future_ready_callback: address


class BufferCopyToDeviceArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    dst_device: address
    dst_buffer: address


class BufferCopyToMemoryArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    dst_memory: address
    dst_buffer: address


class BufferBitcastArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    element_type: i32
    dims: address
    num_dims: i64
    device_layout: address
    out_buffer: address


class BufferIsOnCpuArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    is_on_cpu: u8


class BufferDeviceArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    device: address


class BufferMemoryArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    memory: address


class BufferReadyEventArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    event: address


class BufferUnsafePointerArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    buffer_pointer: i64


class BufferIncreaseExternalReferenceCountArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address


class BufferDecreaseExternalReferenceCountArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address


class BufferOpaqueDeviceMemoryDataPointerArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    device_memory_ptr: address


class BufferDonateWithControlDependencyCallbackArgs(Record):
    struct_size: i64
    callback_data: address
    error_code: i32
    error_message: address
    error_message_size: i64


class BufferDonateWithControlDependencyArgs(Record):
    struct_size: i64
    extension_start: address
    buffer: address
    callback_data: address
    dependency_ready_callback: address
    out_buffer: address
