"""Blocks: memory for elements, with references.

A block and its own memory are one piece of the pool: the record is one cache line, the elements follow. What is there
of memory is counted for a device while the block is.
"""

from __future__ import annotations

from shardc.frontends.pjrt.native.events import complete_event
from shardc.frontends.pjrt.native.memory_pool import allocate, class_of, give_back
from shardc.frontends.pjrt.native.records import BORROWED, FOREIGN, OWN, READER, BlockRecord, DeviceRecord, EventRecord
from shardc.native.lowlevel.builtins import exported
from shardc.native.lowlevel.kinds import address, i64
from shardc.native.lowlevel.records import ACQ_REL, ACQUIRE, RELAXED, Atomic, address_of

__all__ = [
    "borrow_block",
    "is_read",
    "is_reusable",
    "keep_block",
    "make_block",
    "release_block",
    "release_references",
    "view_block",
]

#: Bytes of a block's record, and the alignment of elements.
_LINE = 64


@exported("shardc_pjrt_make_block")
def make_block(device: DeviceRecord | None, nbytes: i64) -> address:
    """A block of new memory with one reference, counted for ``device``; null where there is no memory."""
    at = _new(class_of(_LINE + nbytes))
    if at == 0:
        return at
    block = BlockRecord.at(at)
    block.owner = OWN
    block.data = at + _LINE
    block.nbytes = nbytes
    block.device = device
    if device is not None:
        device.allocations.add(1, RELAXED)
        _raise_to(device.largest, nbytes)
        _raise_to(device.peak_bytes, device.bytes_in_use.add(nbytes, RELAXED) + nbytes)
    return at


@exported("shardc_pjrt_borrow_block")
def borrow_block(data: address, nbytes: i64, done: EventRecord) -> address:
    """A block of the client's memory. ``done`` completes with the last release, and its reference is the block's."""
    at = _new(class_of(_LINE))
    if at != 0:
        block = BlockRecord.at(at)
        block.owner = BORROWED
        block.data = data
        block.nbytes = nbytes
        block.done = done
    return at


@exported("shardc_pjrt_view_block")
def view_block(data: address, nbytes: i64) -> address:
    """A block of somebody's memory. The caller may set ``on_delete``."""
    at = _new(class_of(_LINE))
    if at != 0:
        block = BlockRecord.at(at)
        block.owner = FOREIGN
        block.data = data
        block.nbytes = nbytes
    return at


def _new(size_class: i64) -> address:
    at = allocate(size_class)
    if at != 0:
        block = BlockRecord.at(at)
        block.references.store(1, RELAXED)
        block.device = None
        block.done = None
        block.on_delete.function = None
    return at


def _raise_to(greatest: Atomic[i64], value: i64) -> None:
    seen = greatest.load(RELAXED)
    while seen < value:
        before = greatest.compare_exchange(seen, value, RELAXED)
        if before == seen:
            return
        seen = before


@exported("shardc_pjrt_keep_block")
def keep_block(block: BlockRecord) -> None:
    """One reference more."""
    block.references.add(1, RELAXED)


@exported("shardc_pjrt_release_block")
def release_block(block: BlockRecord) -> None:
    """One reference less."""
    release_references(block, 1)


def release_references(block: BlockRecord, references: i64) -> None:
    """One reference less, of a handle (1) or of a step in the queue (`READER`)."""
    if block.references.add(-references, ACQ_REL) != references:
        return
    device = block.device
    if device is not None:
        device.bytes_in_use.add(-block.nbytes, RELAXED)
    done = block.done
    if done is not None:
        complete_event(address_of(done), 0)
    on_delete = block.on_delete.function
    if on_delete is not None:
        on_delete(block.data, block.on_delete.argument)
    give_back(address_of(block), class_of(_LINE + (block.nbytes if block.owner == OWN else 0)))


def is_reusable(block: BlockRecord, handles: i64) -> bool:
    """May who has so many references, as handles have them, write results into it behind all steps in the queue?
    Memory that others lent is never written."""
    return block.owner == OWN and block.references.load(ACQUIRE) & (READER - 1) == handles


def is_read(block: BlockRecord) -> bool:
    """Does a step in the queue read or write it?"""
    return block.references.load(ACQUIRE) >= READER
