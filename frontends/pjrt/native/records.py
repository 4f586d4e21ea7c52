"""What the plug-in's handles point at.

The first word of every handle is a table of functions in PJRT's later minors; it is null here. Whoever holds a
reference to an error, an event or a block has one counted, and releases it once; a buffer has one owner, the client.
No release calls Python.

A *block* is memory for the elements of an array, row by row, and several buffers may share it: the same result on
several devices of one process is computed once. A buffer *lets go* of its block when it is deleted or donated, and
stays as a handle until it is destroyed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from shardc.native.lowlevel.kinds import Count, Pointer, address, i32, i64, u8
from shardc.native.lowlevel.records import Atomic, Record, Span
from shardc.native.threads.meeting import Meeting

__all__ = [
    "BORROWED", "CLOSED", "DELETED", "DONATED", "FOREIGN", "IMMORTAL", "LARGE_CLASSES", "LIVE", "OWN",
    "READER", "SMALL_CLASSES", "SPARES", "BlockRecord", "BufferRecord", "ClientRecord", "DescriptionRecord",
    "DeviceRecord", "ErrorRecord", "EventRecord", "MemoryPoolRecord", "MemoryRecord", "OnDeleteCall", "OnReadyCall",
    "StackRecord", "TextRecord", "WaiterRecord",
]  # fmt: skip

#: References of what is never released.
IMMORTAL = -(1 << 30)

#: What a buffer is.
LIVE, DELETED, DONATED = 0, 1, 2

#: Whose memory a block is: the plug-in's, the client's for as long as it is told, or somebody else's.
OWN, BORROWED, FOREIGN = 0, 1, 2

#: A reference to a block that a step in the queue has.
READER = 1 << 32

#: In the place of an event's first waiter: it is complete.
CLOSED = 1

#: Classes of sizes in the pool: those whose spare memory is a stack, and those with a few `SPARES` each.
SMALL_CLASSES, LARGE_CLASSES, SPARES = 24, 56, 4


class TextRecord(Record):
    """Characters that somebody else keeps."""

    data: address
    nbytes: i64


class ErrorRecord(Record):
    """PJRT_Error. The characters of the message lie behind it, or stay forever."""

    vtable: address
    references: Atomic[i32]
    code: i32
    message: TextRecord


class OnReadyCall(Record):
    """A client's callback; it owns the error that it gets."""

    function: Callable[[address, address], None]
    argument: address


class WaiterRecord(Record):
    """A callback that waits for an event, before those that asked earlier."""

    call: OnReadyCall
    next: address


class EventRecord(Record):
    """PJRT_Event. ``done`` counts to 1; ``error`` is written before. ``waiters``: the latest, or `CLOSED`."""

    vtable: address
    references: Atomic[i32]
    done: Meeting
    error: Pointer[ErrorRecord] | None
    waiters: Atomic[address]


class DescriptionRecord(Record):
    """PJRT_DeviceDescription."""

    vtable: address
    id: i32
    process_index: i32
    kind: TextRecord
    debug_string: TextRecord
    to_string: TextRecord
    attributes: address
    num_attributes: i64


class DeviceRecord(Record):
    """PJRT_Device, with what is counted of its memory."""

    vtable: address
    description: Pointer[DescriptionRecord]
    client: address
    local_hardware_id: i32
    is_addressable: i32
    memories: address
    num_memories: i64
    default_memory: address
    bytes_limit: i64
    bytes_in_use: Atomic[i64]
    peak_bytes: Atomic[i64]
    allocations: Atomic[i64]
    largest: Atomic[i64]


class MemoryRecord(Record):
    """PJRT_Memory."""

    vtable: address
    user_data: address
    id: i32
    kind_id: i32
    kind: TextRecord
    debug_string: TextRecord
    to_string: TextRecord
    devices: Span[address]
    num_devices: i64


class ClientRecord(Record):
    """PJRT_Client. The arrays are of handles; ``number`` finds what Python keeps for it."""

    vtable: address
    number: i64
    process_index: i32
    unused: i32
    platform_name: TextRecord
    platform_version: TextRecord
    devices: Span[address]
    num_devices: i64
    addressable_devices: Span[address]
    num_addressable_devices: i64
    memories: Span[address]
    num_memories: i64
    topology: address


class OnDeleteCall(Record):
    """What gives foreign memory back: called with its address and ``argument``."""

    function: Callable[[address, address], None] | None
    argument: address


class BlockRecord(Record):
    """Memory for elements. ``done`` completes, or ``on_delete`` is called, when the last reference is released.

    ``references`` counts those of handles below, and above (in units of `READER`) those of steps in the queue.
    """

    references: Atomic[i64]
    owner: i64
    data: address
    nbytes: i64
    device: Pointer[DeviceRecord] | None
    done: Pointer[EventRecord] | None
    on_delete: OnDeleteCall


class BufferRecord(Record):
    """PJRT_Buffer. ``lock`` is held where ``state`` and ``external`` change; dimensions lie at the end, as many as
    ``rank``: an array of one dimension takes a cache line.

    While it is `LIVE` it has one reference to its block, and ``external`` more are the client's views of the memory.
    """

    vtable: address
    block: Pointer[BlockRecord]
    device: Pointer[DeviceRecord]
    memory: Pointer[MemoryRecord]
    ready: Pointer[EventRecord]
    lock: Atomic[i32]
    state: Atomic[i32]
    external: i32
    element_type: u8
    rank: u8
    dims: Annotated[Span[i64], Count(1)]


class StackRecord(Record):
    """``count`` spare pieces, whose addresses lie at ``pieces``; under ``lock``."""

    lock: Atomic[i32]
    unused: i32
    count: i64
    pieces: address


class MemoryPoolRecord(Record):
    """Spare memory by class of size; ``made`` pieces came from the C library and did not go back."""

    stacks: Annotated[Span[StackRecord], Count(SMALL_CLASSES)]
    spares: Annotated[Span[Atomic[address]], Count(LARGE_CLASSES * SPARES)]
    kept_bytes: Atomic[i64]
    made: Atomic[i64]
