"""Elements come from the host, go to it, and go to other devices.

Arrays lie row by row here. The client's memory is taken as it is where it lies so, begins at a multiple of 64 bytes and
stays; else it is copied before the call returns. What is not computed yet is copied as soon as it is, on the thread
that completes it.

On other devices of this process an array is the same block: nothing is written into a block that has several owners.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Annotated

from shardc.frontends.pjrt.abi.buffers import (
    BufferCopyRawToHostArgs,
    BufferCopyToDeviceArgs,
    BufferCopyToMemoryArgs,
    BufferToHostBufferArgs,
    PjrtBufferMemoryLayout,
    PjrtBufferMemoryLayoutStrides,
)
from shardc.frontends.pjrt.abi.clients import (
    ClientBufferFromHostBufferArgs,
    ClientCreateUninitializedBufferArgs,
    ClientCreateViewOfDeviceBufferArgs,
)
from shardc.frontends.pjrt.native.blocks import borrow_block, keep_block, make_block, release_block, view_block
from shardc.frontends.pjrt.native.buffers import buffer_bytes, element_bytes, hold_block, make_buffer, not_live
from shardc.frontends.pjrt.native.errors import INVALID_ARGUMENT, UNIMPLEMENTED, fail, no_memory, out_of_memory
from shardc.frontends.pjrt.native.events import (
    call_when_done,
    complete_event,
    done_event,
    is_done,
    keep_event,
    make_event,
    release_event,
)
from shardc.frontends.pjrt.native.memory_pool import allocate, class_of, give_back
from shardc.frontends.pjrt.native.records import (
    OWN,
    BlockRecord,
    BufferRecord,
    DeviceRecord,
    EventRecord,
    MemoryRecord,
    OnDeleteCall,
    OnReadyCall,
)
from shardc.native.lowlevel.builtins import as_i32, as_i64, exported, local, static_text
from shardc.native.lowlevel.kinds import Count, Pointer, address, i32, i64
from shardc.native.lowlevel.records import Record, Span, address_of
from shardc.native.memory.strided_copies import (
    MAX_RANK,
    StridesRecord,
    add_dimension,
    begin_strides,
    copy_strided,
)

__all__ = ["TRANSFER_FUNCTIONS", "TransferRecord"]

#: The client's memory may be taken as it is from here on in PJRT's list of promises about it.
_ZERO_COPY = 2
_TILED = 0
_LINE = 64
_ON_DELETE = ClientCreateViewOfDeviceBufferArgs.offset_of("on_delete_callback")

_RANK_TEXT = static_text("shardc_pjrt_rank_text", "an array of more than 64 dimensions; reshape it")
_TYPE_TEXT = static_text("shardc_pjrt_type_text", "shardc arrays do not support this element type")
_LAYOUT_TEXT = static_text(
    "shardc_pjrt_layout_text",
    "a device layout that is not row by row is not supported; omit it, or transpose the array",
)
_TILES_TEXT = static_text("shardc_pjrt_tiles_text", "a layout in tiles; arrays of shardc are stored row by row")
_SMALL_TEXT = static_text("shardc_pjrt_small_text", "the memory on the host is smaller than the array")
_RANGE_TEXT = static_text("shardc_pjrt_range_text", "bytes beyond the end of the array were asked for")
_ALIGNMENT_TEXT = static_text(  # JAX looks for these words
    "shardc_pjrt_alignment_text", "the memory to be shared is not aligned to its elements."
)


class _Numbers64(Record):
    """A number for each dimension that an array may have."""

    items: Annotated[Span[i64], Count(MAX_RANK)]


class TransferRecord(Record):
    """A copy that waits for its source. It has a reference to ``block``, to ``target_block`` (or null), and one to
    ``done``, to complete it."""

    plan: StridesRecord
    block: Pointer[BlockRecord]
    source: address
    target: address
    target_block: address
    done: address


_TRANSFER_BYTES = ctypes.sizeof(TransferRecord)


# From the host.


@exported("shardc_pjrt_buffer_from_host")
def _buffer_from_host(args: ClientBufferFromHostBufferArgs) -> address:
    rank = as_i32(args.num_dims)
    device = _device_of(args.device, args.memory)
    memory = _memory_of(args.device, args.memory)
    element = element_bytes(args.type)
    error = _refuse(args.type, args.num_dims, args.device_layout)
    if error != 0:
        return error
    dims = _Numbers64.at(args.dims).items
    nbytes = _product(dims, rank) * element
    plan = local(StridesRecord)
    begin_strides(plan, element)
    stride = element
    for k in range(rank):
        d = rank - 1 - k
        given = stride if args.num_byte_strides == 0 else _Numbers64.at(args.byte_strides).items[d]
        add_dimension(plan, dims[d], stride, given)
        stride *= dims[d]
    is_dense = plan.rank == 0 and as_i64(args.data) % _LINE == 0 and nbytes > 0
    if is_dense and args.host_buffer_semantics >= _ZERO_COPY:
        done = make_event(2)
        at = 0 if done == 0 else borrow_block(args.data, nbytes, EventRecord.at(done))
    else:
        done = done_event()
        at = make_block(device, nbytes)
        if at != 0 and nbytes > 0:
            copy_strided(plan, BlockRecord.at(at).data, args.data)
    if at == 0:
        return out_of_memory(nbytes)
    args.done_with_host_buffer = done
    args.buffer = _ready_buffer(device, memory, args.type, dims, rank, at)
    return 0 if args.buffer != 0 else no_memory()


@exported("shardc_pjrt_uninitialized_buffer")
def _uninitialized_buffer(args: ClientCreateUninitializedBufferArgs) -> address:
    error = _refuse(args.shape_element_type, args.shape_num_dims, args.shape_layout)
    if error != 0:
        return error
    rank = as_i32(args.shape_num_dims)
    device = _device_of(args.device, args.memory)
    dims = _Numbers64.at(args.shape_dims).items
    nbytes = _product(dims, rank) * element_bytes(args.shape_element_type)
    at = make_block(device, nbytes)
    if at == 0:
        return out_of_memory(nbytes)
    memory = _memory_of(args.device, args.memory)
    args.buffer = _ready_buffer(device, memory, args.shape_element_type, dims, rank, at)
    return 0 if args.buffer != 0 else no_memory()


@exported("shardc_pjrt_view_of_device_buffer")
def _view_of_device_buffer(args: ClientCreateViewOfDeviceBufferArgs) -> address:
    """An array over memory that somebody else keeps until it is told that the last user is gone. What lies in another
    order there is copied, and the memory is given back at once."""
    element = element_bytes(args.element_type)
    strides = local(_Numbers64)
    dims = _Numbers64.at(args.dims).items
    rank = as_i32(args.num_dims)
    error = _refuse(args.element_type, args.num_dims, 0)
    if error == 0:
        error = _find_strides(strides.items, dims, rank, element, args.layout)
    if error != 0:
        return error
    if as_i64(args.device_buffer_ptr) % element != 0:
        return fail(INVALID_ARGUMENT, _ALIGNMENT_TEXT)
    plan = local(StridesRecord)
    begin_strides(plan, element)
    stride = element
    for k in range(rank):
        d = rank - 1 - k
        add_dimension(plan, dims[d], stride, strides.items[d])
        stride *= dims[d]
    device = _device_of(args.device, args.memory)
    at = view_block(args.device_buffer_ptr, stride) if plan.rank == 0 else make_block(device, stride)
    if at == 0:
        return no_memory()
    on_delete = OnDeleteCall.at(address_of(args) + _ON_DELETE)
    if plan.rank == 0:
        BlockRecord.at(at).on_delete = on_delete
    else:
        copy_strided(plan, BlockRecord.at(at).data, args.device_buffer_ptr)
        if on_delete.function is not None:
            on_delete.function(args.device_buffer_ptr, on_delete.argument)
    args.buffer = _ready_buffer(device, _memory_of(args.device, args.memory), args.element_type, dims, rank, at)
    return 0 if args.buffer != 0 else no_memory()


def _find_strides(found: Span[i64], dims: Span[i64], rank: i32, element: i64, layout: address) -> address:
    """By dimension the bytes from one element to the next in a layout (null: row by row), or the error."""
    stride = element
    if layout == 0:
        for k in range(rank):
            found[rank - 1 - k] = stride
            stride *= dims[rank - 1 - k]
        return 0
    given = PjrtBufferMemoryLayout.at(layout)
    if given.type != _TILED:
        strides = _Numbers64.at(PjrtBufferMemoryLayoutStrides.at(address_of(given.u)).byte_strides).items
        for k in range(rank):
            found[k] = strides[k]
    elif given.u.num_tiles != 0:
        return fail(UNIMPLEMENTED, _TILES_TEXT)
    else:
        order = _Numbers64.at(given.u.minor_to_major).items
        for k in range(rank):
            found[order[k]] = stride
            stride *= dims[order[k]]
    return 0


def _device_of(device: address, memory: address) -> DeviceRecord:
    return DeviceRecord.at(device if memory == 0 else MemoryRecord.at(memory).devices[0])


def _memory_of(device: address, memory: address) -> MemoryRecord:
    return MemoryRecord.at(memory if memory != 0 else DeviceRecord.at(device).default_memory)


def _product(dims: Span[i64], rank: i32) -> i64:
    product = 1
    for k in range(rank):
        product *= dims[k]
    return product


def _refuse(element_type: i32, rank: i64, layout: address) -> address:
    """The error for an array that cannot lie here."""
    if element_bytes(element_type) == 0:
        return fail(INVALID_ARGUMENT, _TYPE_TEXT)
    if rank > MAX_RANK:
        return fail(UNIMPLEMENTED, _RANK_TEXT)
    if layout == 0:
        return 0
    given = PjrtBufferMemoryLayout.at(layout)
    if given.type != _TILED:
        return fail(UNIMPLEMENTED, _LAYOUT_TEXT)
    if given.u.num_tiles != 0:
        return fail(UNIMPLEMENTED, _TILES_TEXT)
    order = _Numbers64.at(given.u.minor_to_major).items
    for k in range(given.u.minor_to_major_size):
        if order[k] != rank - 1 - k:
            return fail(UNIMPLEMENTED, _LAYOUT_TEXT)
    return 0


def _ready_buffer(
    device: DeviceRecord, memory: MemoryRecord, element_type: i32, dims: Span[i64], rank: i32, block: address
) -> address:
    """A buffer of a block that is complete; takes over the reference to it."""
    made = make_buffer(device, memory, element_type, dims, rank, BlockRecord.at(block), EventRecord.at(done_event()))
    if made == 0:
        release_block(BlockRecord.at(block))
    return made


# To the host.


@exported("shardc_pjrt_buffer_to_host")
def _buffer_to_host(args: BufferToHostBufferArgs) -> address:
    """How many bytes it takes, where there is no memory to copy to; else the copy."""
    buffer = BufferRecord.at(args.src)
    nbytes = buffer_bytes(buffer)
    if args.dst == 0:
        args.dst_size = nbytes
        return 0
    if args.dst_size < nbytes:
        return fail(INVALID_ARGUMENT, _SMALL_TEXT)
    plan = local(StridesRecord)
    error = _plan_to_host(plan, buffer, args.host_layout)
    if error != 0:
        return error
    at = hold_block(buffer)
    if at == 0:
        return not_live()
    args.event = _copy_when_done(buffer.ready, plan, at, BlockRecord.at(at).data, args.dst, 0)
    return 0 if args.event != 0 else no_memory()


def _plan_to_host(plan: StridesRecord, buffer: BufferRecord, layout: address) -> address:
    """The copy of all elements into a layout of the client's."""
    rank = buffer.rank
    element = element_bytes(buffer.element_type)
    strides = local(_Numbers64)
    error = _find_strides(strides.items, buffer.dims, rank, element, layout)
    if error != 0:
        return error
    begin_strides(plan, element)
    stride = element
    for k in range(rank):
        d = rank - 1 - k
        add_dimension(plan, buffer.dims[d], strides.items[d], stride)
        stride *= buffer.dims[d]
    return 0


@exported("shardc_pjrt_buffer_copy_raw")
def _copy_raw(args: BufferCopyRawToHostArgs) -> address:
    """Bytes from the middle of an array."""
    buffer = BufferRecord.at(args.buffer)
    if args.offset < 0 or args.transfer_size < 0 or args.offset + args.transfer_size > buffer_bytes(buffer):
        return fail(INVALID_ARGUMENT, _RANGE_TEXT)
    at = hold_block(buffer)
    if at == 0:
        return not_live()
    plan = local(StridesRecord)
    begin_strides(plan, args.transfer_size)
    args.event = _copy_when_done(buffer.ready, plan, at, BlockRecord.at(at).data + args.offset, args.dst, 0)
    return 0 if args.event != 0 else no_memory()


def _copy_when_done(
    ready: EventRecord, plan: StridesRecord, block: address, source: address, target: address, target_block: address
) -> address:
    """Copy from a block as soon as it is complete; takes over the references to both blocks.

    The event of the copy, with a reference; null where there is no memory. Where the source has failed that is its own.
    """
    if is_done(ready):
        if ready.error is None:
            copy_strided(plan, target, source)
        _release_blocks(block, target_block)
        return keep_event(ready)
    at = allocate(class_of(_TRANSFER_BYTES))
    done = make_event(2)
    if at == 0 or done == 0:
        _release_blocks(block, target_block)
        return 0
    transfer = TransferRecord.at(at)
    transfer.plan = plan
    transfer.block = BlockRecord.at(block)
    transfer.source = source
    transfer.target = target
    transfer.target_block = target_block
    transfer.done = done
    call = local(OnReadyCall)
    call.function = _finish_transfer
    call.argument = at
    return done if call_when_done(ready, call) == 0 else 0


def _finish_transfer(error: address, at: address) -> None:
    """The source of a transfer is complete, or has failed."""
    transfer = TransferRecord.at(at)
    if error == 0:
        copy_strided(transfer.plan, transfer.target, transfer.source)
    _release_blocks(address_of(transfer.block), transfer.target_block)
    done = transfer.done
    give_back(at, class_of(_TRANSFER_BYTES))
    complete_event(done, error)


def _release_blocks(block: address, other: address) -> None:
    release_block(BlockRecord.at(block))
    if other != 0:
        release_block(BlockRecord.at(other))


# To other devices.


@exported("shardc_pjrt_buffer_copy_to_memory")
def _copy_to_memory(args: BufferCopyToMemoryArgs) -> address:
    memory = MemoryRecord.at(args.dst_memory)
    return _copy_to(BufferRecord.at(args.buffer), memory, DeviceRecord.at(memory.devices[0]), args)


@exported("shardc_pjrt_buffer_copy_to_device")
def _copy_to_device(args: BufferCopyToDeviceArgs) -> address:
    device = DeviceRecord.at(args.dst_device)
    memory = MemoryRecord.at(device.default_memory)
    return _copy_to(BufferRecord.at(args.buffer), memory, device, BufferCopyToMemoryArgs.at(address_of(args)))


def _copy_to(buffer: BufferRecord, memory: MemoryRecord, device: DeviceRecord, args: BufferCopyToMemoryArgs) -> address:
    """A buffer elsewhere: of the same block, where that is the plug-in's own and the device is another one."""
    at = hold_block(buffer)
    if at == 0:
        return not_live()
    block = BlockRecord.at(at)
    ready = address_of(buffer.ready)
    if block.owner == OWN and address_of(device) != address_of(buffer.device):
        keep_event(buffer.ready)
    else:
        made = make_block(device, block.nbytes)
        if made == 0:
            release_block(block)
            return out_of_memory(buffer_bytes(buffer))
        keep_block(BlockRecord.at(made))
        plan = local(StridesRecord)
        begin_strides(plan, block.nbytes)
        ready = _copy_when_done(buffer.ready, plan, at, block.data, BlockRecord.at(made).data, made)
        at = made
        if ready == 0:
            release_block(BlockRecord.at(made))
            return no_memory()
    args.dst_buffer = make_buffer(
        device, memory, buffer.element_type, buffer.dims, buffer.rank, BlockRecord.at(at), EventRecord.at(ready)
    )
    if args.dst_buffer == 0:
        release_event(ready)
        release_block(BlockRecord.at(at))
        return no_memory()
    return 0


#: By PJRT's names.
TRANSFER_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "Client_BufferFromHostBuffer": _buffer_from_host,
    "Client_CreateUninitializedBuffer": _uninitialized_buffer,
    "Client_CreateViewOfDeviceBuffer": _view_of_device_buffer,
    "Buffer_ToHostBuffer": _buffer_to_host,
    "Buffer_CopyRawToHost": _copy_raw,
    "Buffer_CopyToMemory": _copy_to_memory,
    "Buffer_CopyToDevice": _copy_to_device,
}
