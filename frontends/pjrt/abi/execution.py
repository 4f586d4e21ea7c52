"""Execution."""

from __future__ import annotations

from shardc.native.lowlevel.kinds import address, i32, i64, u8
from shardc.native.lowlevel.records import Record

__all__ = [
    "ExecuteContextCreateArgs", "ExecuteContextDestroyArgs", "LoadedExecutableExecuteArgs", "PjrtExecuteOptions",
    "PjrtHloOutputCallbackInfo", "PjrtRecvCallbackInfo", "PjrtSendCallbackInfo",
]  # fmt: skip


class ExecuteContextCreateArgs(Record):
    struct_size: i64
    extension_start: address
    context: address


class ExecuteContextDestroyArgs(Record):
    struct_size: i64
    extension_start: address
    context: address


class PjrtSendCallbackInfo(Record):
    channel_id: i64
    user_arg: address
    send_callback: address


class PjrtRecvCallbackInfo(Record):
    channel_id: i64
    user_arg: address
    recv_callback: address


class PjrtHloOutputCallbackInfo(Record):
    user_arg: address
    callback: address
    callback_id: i64
    num_operands: i64


class PjrtExecuteOptions(Record):
    struct_size: i64
    extension_start: address
    send_callbacks: address
    recv_callbacks: address
    num_send_ops: i64
    num_recv_ops: i64
    launch_id: i32
    non_donatable_input_indices: address
    num_non_donatable_input_indices: i64
    context: address
    call_location: address
    num_tasks: i64
    task_ids: address
    incarnation_ids: address
    multi_slice_config: address
    use_major_to_minor_data_layout_for_callbacks: u8
    hlo_output_callbacks: address
    num_hlo_output_callbacks: i64


class LoadedExecutableExecuteArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    options: address
    argument_lists: address
    num_devices: i64
    num_args: i64
    output_lists: address
    device_complete_events: address
    execute_device: address
