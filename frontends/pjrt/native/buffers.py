"""Buffers: made, asked, deleted, donated, destroyed.

Threads may ask for a buffer's block while another one deletes it: whoever uses the elements holds the block meanwhile
(`hold_block`, `take_block`), and what a buffer is changes under its lock. That is held for a few instructions only, so
who does not get it lets others run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from shardc.frontends.pjrt.abi.buffers import (
    BufferDecreaseExternalReferenceCountArgs,
    BufferDeleteArgs,
    BufferDestroyArgs,
    BufferDeviceArgs,
    BufferDimensionsArgs,
    BufferElementTypeArgs,
    BufferGetMemoryLayoutArgs,
    BufferIncreaseExternalReferenceCountArgs,
    BufferIsDeletedArgs,
    BufferIsOnCpuArgs,
    BufferMemoryArgs,
    BufferOnDeviceSizeInBytesArgs,
    BufferOpaqueDeviceMemoryDataPointerArgs,
    BufferReadyEventArgs,
    BufferUnpaddedDimensionsArgs,
    BufferUnsafePointerArgs,
)
from shardc.frontends.pjrt.native.blocks import keep_block, release_block
from shardc.frontends.pjrt.native.errors import FAILED_PRECONDITION, INVALID_ARGUMENT, fail
from shardc.frontends.pjrt.native.events import keep_event, release_event
from shardc.frontends.pjrt.native.memory_pool import allocate, class_of, give_back
from shardc.frontends.pjrt.native.records import (
    DELETED,
    LIVE,
    BlockRecord,
    BufferRecord,
    DeviceRecord,
    EventRecord,
    MemoryRecord,
)
from shardc.native.lowlevel.builtins import as_i32, as_i64, as_u8, exported, fence, inline, static, static_text
from shardc.native.lowlevel.kinds import Count, address, i32, i64
from shardc.native.lowlevel.records import ACQUIRE, RELAXED, RELEASE, SEQ_CST, Record, Span, address_of
from shardc.native.lowlevel.system import sched_yield
from shardc.native.memory.strided_copies import MAX_RANK

__all__ = [
    "BUFFER_FUNCTIONS", "buffer_bytes", "buffer_data_pointer", "buffer_device", "buffer_dimensions",
    "buffer_element_type", "buffer_memory", "buffer_memory_layout", "buffer_ready_event", "buffer_size",
    "buffer_unpadded_dimensions", "buffer_unsafe_pointer", "decrease_external_references", "delete_buffer",
    "destroy_buffer", "drop_buffer", "element_bytes", "hold_block", "increase_external_references", "is_buffer_deleted",
    "is_buffer_on_cpu", "is_live", "make_buffer", "not_live", "put_back", "take_block",
]  # fmt: skip

_DIMS = BufferRecord.offset_of("dims")
_TILED = 0
_DELETED_TEXT = static_text(
    "shardc_pjrt_deleted_text",
    "the array was deleted or donated: its memory is gone, or holds results of the computation that it went into",
)
_NO_VIEW_TEXT = static_text("shardc_pjrt_no_view_text", "an external view of the array's memory was released twice")


class _OrderRecord(Record):
    """`MAX_RANK` - 1 down to 0: its end is how the dimensions of any array lie, the innermost first."""

    dims: Annotated[Span[i64], Count(MAX_RANK)]


_ORDER = static(_OrderRecord, "shardc_pjrt_order")


def element_bytes(element_type: i32) -> i64:
    """Bytes of an element, by PJRT's number of the type; elements of less than a byte take one. 0 for a token."""
    if element_type in (3, 7, 10, 13):
        return 2
    if element_type in (4, 8, 11):
        return 4
    if element_type in (5, 9, 12, 14):
        return 8
    if element_type == 15:
        return 16
    return 0 if element_type in (0, 23) else 1


@exported("shardc_pjrt_make_buffer")
def make_buffer(
    device: DeviceRecord,
    memory: MemoryRecord,
    element_type: i32,
    dims: Span[i64],
    rank: i32,
    block: BlockRecord,
    ready: EventRecord,
) -> address:
    """A live buffer, which takes over a reference to its block and one to its event; null where there is no memory."""
    at = allocate(_class_of_rank(rank))
    if at == 0:
        return at
    buffer = BufferRecord.at(at)
    buffer.vtable = 0
    buffer.lock.store(0, RELAXED)
    buffer.state.store(LIVE, RELAXED)
    buffer.external = 0
    buffer.element_type = as_u8(element_type)
    buffer.rank = as_u8(rank)
    buffer.block = block
    buffer.device = device
    buffer.memory = memory
    buffer.ready = ready
    for k in range(rank):
        buffer.dims[k] = dims[k]
    return at


def _class_of_rank(rank: i64) -> i64:
    return class_of(_DIMS + 8 * rank)


def _lock(buffer: BufferRecord) -> None:
    while buffer.lock.exchange(1, ACQUIRE) != 0:
        sched_yield()


@inline
def _unlock(buffer: BufferRecord) -> None:
    buffer.lock.store(0, RELEASE)


@exported("shardc_pjrt_hold_block")
def hold_block(buffer: BufferRecord) -> address:
    """The block of a live buffer, with a reference for the caller; null for one that is not."""
    found: address = 0
    _lock(buffer)
    if is_live(buffer):
        keep_block(buffer.block)
        found = address_of(buffer.block)
    _unlock(buffer)
    return found


def take_block(buffer: BufferRecord, state: i32) -> address:
    """The block of a live buffer, which lets go of it and becomes deleted or donated; null for one that is not
    live."""
    found: address = 0
    _lock(buffer)
    if is_live(buffer):
        buffer.state.store(state, RELAXED)
        found = address_of(buffer.block)
    _unlock(buffer)
    fence(SEQ_CST)  # before the caller looks whether a step reads the block
    return found


def put_back(buffer: BufferRecord) -> None:
    """A buffer whose block was taken has it again."""
    _lock(buffer)
    buffer.state.store(LIVE, RELAXED)
    _unlock(buffer)


@inline
def is_live(buffer: BufferRecord) -> bool:
    return buffer.state.load(RELAXED) == LIVE


def buffer_bytes(buffer: BufferRecord) -> i64:
    """Bytes of all elements."""
    nbytes = element_bytes(buffer.element_type)
    for k in range(buffer.rank):
        nbytes *= buffer.dims[k]
    return nbytes


def not_live() -> address:
    """The error of an operation on a buffer that was deleted or donated."""
    return fail(INVALID_ARGUMENT, _DELETED_TEXT)


@exported("shardc_pjrt_buffer_delete")
def delete_buffer(args: BufferDeleteArgs) -> address:
    """Let go of the memory; computations that were given it before still have it."""
    block = take_block(BufferRecord.at(args.buffer), DELETED)
    if block != 0:
        release_block(BlockRecord.at(block))
    return 0


@exported("shardc_pjrt_buffer_destroy")
def destroy_buffer(args: BufferDestroyArgs) -> address:
    if args.buffer != 0:
        drop_buffer(args.buffer)
    return 0


def drop_buffer(at: address) -> None:
    """The end of a buffer, with its references."""
    buffer = BufferRecord.at(at)
    references = buffer.external + (1 if is_live(buffer) else 0)
    for _ in range(references):
        release_block(buffer.block)
    release_event(address_of(buffer.ready))
    give_back(at, _class_of_rank(buffer.rank))


@exported("shardc_pjrt_buffer_is_deleted")
def is_buffer_deleted(args: BufferIsDeletedArgs) -> address:
    args.is_deleted = as_u8(not is_live(BufferRecord.at(args.buffer)))
    return 0


@exported("shardc_pjrt_buffer_element_type")
def buffer_element_type(args: BufferElementTypeArgs) -> address:
    args.type = BufferRecord.at(args.buffer).element_type
    return 0


@exported("shardc_pjrt_buffer_dimensions")
def buffer_dimensions(args: BufferDimensionsArgs) -> address:
    buffer = BufferRecord.at(args.buffer)
    args.dims = address_of(buffer.dims)
    args.num_dims = buffer.rank
    return 0


@exported("shardc_pjrt_buffer_unpadded_dimensions")
def buffer_unpadded_dimensions(args: BufferUnpaddedDimensionsArgs) -> address:
    buffer = BufferRecord.at(args.buffer)
    args.unpadded_dims = address_of(buffer.dims)
    args.num_dims = buffer.rank
    return 0


@exported("shardc_pjrt_buffer_device")
def buffer_device(args: BufferDeviceArgs) -> address:
    args.device = address_of(BufferRecord.at(args.buffer).device)
    return 0


@exported("shardc_pjrt_buffer_memory")
def buffer_memory(args: BufferMemoryArgs) -> address:
    args.memory = address_of(BufferRecord.at(args.buffer).memory)
    return 0


@exported("shardc_pjrt_buffer_is_on_cpu")
def is_buffer_on_cpu(args: BufferIsOnCpuArgs) -> address:
    args.is_on_cpu = 1
    return 0


@exported("shardc_pjrt_buffer_ready_event")
def buffer_ready_event(args: BufferReadyEventArgs) -> address:
    args.event = keep_event(BufferRecord.at(args.buffer).ready)
    return 0


@exported("shardc_pjrt_buffer_size")
def buffer_size(args: BufferOnDeviceSizeInBytesArgs) -> address:
    args.on_device_size_in_bytes = buffer_bytes(BufferRecord.at(args.buffer))
    return 0


@exported("shardc_pjrt_buffer_memory_layout")
def buffer_memory_layout(args: BufferGetMemoryLayoutArgs) -> address:
    """Row by row, always."""
    rank = BufferRecord.at(args.buffer).rank
    for k in range(MAX_RANK - rank, MAX_RANK):
        _ORDER.dims[k] = MAX_RANK - 1 - k
    layout = args.layout
    layout.type = _TILED
    tiled = layout.u
    tiled.minor_to_major = address_of(_ORDER.dims.behind(MAX_RANK - rank))
    tiled.minor_to_major_size = rank
    tiled.tile_dims = 0
    tiled.tile_dim_sizes = 0
    tiled.num_tiles = 0
    return 0


def _data_of(buffer: BufferRecord) -> address:
    """Where the elements of a live buffer lie, or those that the client still views; else null."""
    found: address = 0
    _lock(buffer)
    if is_live(buffer) or buffer.external > 0:
        found = buffer.block.data
    _unlock(buffer)
    return found


@exported("shardc_pjrt_buffer_unsafe_pointer")
def buffer_unsafe_pointer(args: BufferUnsafePointerArgs) -> address:
    data = _data_of(BufferRecord.at(args.buffer))
    args.buffer_pointer = as_i64(data)
    return not_live() if data == 0 else 0


@exported("shardc_pjrt_buffer_data_pointer")
def buffer_data_pointer(args: BufferOpaqueDeviceMemoryDataPointerArgs) -> address:
    args.device_memory_ptr = _data_of(BufferRecord.at(args.buffer))
    return not_live() if args.device_memory_ptr == 0 else 0


@exported("shardc_pjrt_increase_external_references")
def increase_external_references(args: BufferIncreaseExternalReferenceCountArgs) -> address:
    """The client views the memory: it stays, also when the buffer is deleted, and nothing is written into it."""
    buffer = BufferRecord.at(args.buffer)
    _lock(buffer)
    is_there = is_live(buffer) or buffer.external > 0
    if is_there:
        keep_block(buffer.block)
        buffer.external = as_i32(buffer.external + 1)
    _unlock(buffer)
    return 0 if is_there else not_live()


@exported("shardc_pjrt_decrease_external_references")
def decrease_external_references(args: BufferDecreaseExternalReferenceCountArgs) -> address:
    """A view of the client's ends."""
    buffer = BufferRecord.at(args.buffer)
    _lock(buffer)
    had = buffer.external > 0
    if had:
        buffer.external = as_i32(buffer.external - 1)
    _unlock(buffer)
    if had:
        release_block(buffer.block)
        return 0
    return fail(FAILED_PRECONDITION, _NO_VIEW_TEXT)


#: By PJRT's names.
BUFFER_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "Buffer_Destroy": destroy_buffer,
    "Buffer_ElementType": buffer_element_type,
    "Buffer_Dimensions": buffer_dimensions,
    "Buffer_UnpaddedDimensions": buffer_unpadded_dimensions,
    "Buffer_GetMemoryLayout": buffer_memory_layout,
    "Buffer_OnDeviceSizeInBytes": buffer_size,
    "Buffer_Device": buffer_device,
    "Buffer_Memory": buffer_memory,
    "Buffer_Delete": delete_buffer,
    "Buffer_IsDeleted": is_buffer_deleted,
    "Buffer_IsOnCpu": is_buffer_on_cpu,
    "Buffer_ReadyEvent": buffer_ready_event,
    "Buffer_UnsafePointer": buffer_unsafe_pointer,
    "Buffer_IncreaseExternalReferenceCount": increase_external_references,
    "Buffer_DecreaseExternalReferenceCount": decrease_external_references,
    "Buffer_OpaqueDeviceMemoryDataPointer": buffer_data_pointer,
}
