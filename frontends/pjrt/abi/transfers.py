"""Transfers in pieces."""

from __future__ import annotations

from shardc.native.lowlevel.kinds import address, i32, i64, u8
from shardc.native.lowlevel.records import Record

__all__ = [
    "AsyncHostToDeviceTransferManagerAddMetadataArgs", "AsyncHostToDeviceTransferManagerBufferCountArgs",
    "AsyncHostToDeviceTransferManagerBufferSizeArgs", "AsyncHostToDeviceTransferManagerDestroyArgs",
    "AsyncHostToDeviceTransferManagerDeviceArgs", "AsyncHostToDeviceTransferManagerRetrieveBufferArgs",
    "AsyncHostToDeviceTransferManagerSetBufferErrorArgs", "AsyncHostToDeviceTransferManagerTransferDataArgs",
    "AsyncHostToDeviceTransferManagerTransferLiteralArgs", "CopyToDeviceStreamAddChunkArgs",
    "CopyToDeviceStreamCurrentBytesArgs", "CopyToDeviceStreamDestroyArgs", "CopyToDeviceStreamGranuleSizeArgs",
    "CopyToDeviceStreamTotalBytesArgs", "PjrtChunk",
]  # fmt: skip


class AsyncHostToDeviceTransferManagerDestroyArgs(Record):
    struct_size: i64
    extension_start: address
    transfer_manager: address


class AsyncHostToDeviceTransferManagerTransferDataArgs(Record):
    struct_size: i64
    extension_start: address
    transfer_manager: address
    buffer_index: i32
    data: address
    offset: i64
    transfer_size: i64
    is_last_transfer: u8
    done_with_h2d_transfer: address


class AsyncHostToDeviceTransferManagerRetrieveBufferArgs(Record):
    struct_size: i64
    extension_start: address
    transfer_manager: address
    buffer_index: i32
    buffer_out: address


class AsyncHostToDeviceTransferManagerDeviceArgs(Record):
    struct_size: i64
    extension_start: address
    transfer_manager: address
    device_out: address


class AsyncHostToDeviceTransferManagerBufferCountArgs(Record):
    struct_size: i64
    extension_start: address
    transfer_manager: address
    buffer_count: i64


class AsyncHostToDeviceTransferManagerBufferSizeArgs(Record):
    struct_size: i64
    extension_start: address
    transfer_manager: address
    buffer_index: i32
    buffer_size: i64


class AsyncHostToDeviceTransferManagerSetBufferErrorArgs(Record):
    struct_size: i64
    extension_start: address
    transfer_manager: address
    buffer_index: i32
    error_code: i32
    error_message: address
    error_message_size: i64


class AsyncHostToDeviceTransferManagerAddMetadataArgs(Record):
    struct_size: i64
    extension_start: address
    transfer_manager: address
    transfer_metadata: address
    num_metadata: i64


class AsyncHostToDeviceTransferManagerTransferLiteralArgs(Record):
    struct_size: i64
    extension_start: address
    transfer_manager: address
    buffer_index: i32
    data: address
    shape_dims: address
    shape_num_dims: i64
    shape_element_type: i32
    shape_layout: address
    done_with_h2d_transfer: address


class PjrtChunk(Record):
    data: address
    size: i64
    deleter: address
    deleter_arg: address


class CopyToDeviceStreamDestroyArgs(Record):
    struct_size: i64
    extension_start: address
    stream: address


class CopyToDeviceStreamAddChunkArgs(Record):
    struct_size: i64
    extension_start: address
    stream: address
    chunk: address
    transfer_complete: address


class CopyToDeviceStreamTotalBytesArgs(Record):
    struct_size: i64
    extension_start: address
    stream: address
    total_bytes: i64


class CopyToDeviceStreamGranuleSizeArgs(Record):
    struct_size: i64
    extension_start: address
    stream: address
    granule_size_in_bytes: i64


class CopyToDeviceStreamCurrentBytesArgs(Record):
    struct_size: i64
    extension_start: address
    stream: address
    current_bytes: i64
