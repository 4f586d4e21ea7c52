"""Blocks: memory for elements, with references.

A step that is run at once reads blocks of arguments that it has no references to (`begin_reading`): what loses its last
reference meanwhile waits for the end of the step. Who deletes an array therefore says so before it looks whether there
is a step, and the step the other way round; each with a fence between.

A block and its own memory are one piece of the pool: the record is one cache line, the elements follow. What is there
of memory is counted for a device while the block is.
"""

from __future__ import annotations

from shardc.frontends.pjrt.native.events import complete_event
from shardc.frontends.pjrt.native.memory_pool import allocate, class_of, give_back
from shardc.frontends.pjrt.native.records import BORROWED, FOREIGN, OWN, READER, BlockRecord, DeviceRecord, EventRecord
from shardc.native.lowlevel.builtins import exported, fence, static
from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.records import ACQ_REL, ACQUIRE, RELAXED, RELEASE, SEQ_CST, Atomic, Record, address_of
from shardc.native.lowlevel.system import sched_yield

__all__ = [
    "begin_reading", "borrow_block", "count_blocks", "end_reading", "give_back_waiting", "is_read", "is_reusable",
    "keep_block", "make_block", "make_uncounted_block", "release_block", "release_references", "view_block",
]  # fmt: skip

#: Bytes of a block's record, and the alignment of elements.
_LINE = 64


class _ReadingRecord(Record):
    """Whether a step ``is_on`` that reads blocks without references, and the first of those that ``wait`` for its end;
    both end under ``lock``."""

    is_on: Atomic[i32]
    lock: Atomic[i32]
    waiting: address


class _WaitingRecord(Record):
    """A block that waits: its first word leads to the one before."""

    next: address


_READING = static(_ReadingRecord, "shardc_pjrt_reading")


@exported("shardc_pjrt_make_block")
def make_block(device: DeviceRecord | None, nbytes: i64) -> address:
    """A block of new memory with one reference, counted for ``device``; null where there is no memory."""
    at = make_uncounted_block(device, nbytes)
    if at != 0 and device is not None:
        count_blocks(device, 1, nbytes, nbytes)
    return at


def make_uncounted_block(device: DeviceRecord | None, nbytes: i64) -> address:
    """The same for who calls `count_blocks` for many."""
    at = allocate(class_of(_LINE + nbytes))
    if at != 0:
        _begin(at, OWN, at + _LINE, nbytes, device)
    return at


@exported("shardc_pjrt_borrow_block")
def borrow_block(data: address, nbytes: i64, done: EventRecord) -> address:
    """A block of the client's memory. ``done`` completes with the last release, and its reference is the block's."""
    at = allocate(class_of(_LINE))
    if at != 0:
        _begin(at, BORROWED, data, nbytes, None)
        BlockRecord.at(at).done = done
    return at


@exported("shardc_pjrt_view_block")
def view_block(data: address, nbytes: i64) -> address:
    """A block of somebody's memory. The caller may set ``on_delete``."""
    at = allocate(class_of(_LINE))
    if at != 0:
        _begin(at, FOREIGN, data, nbytes, None)
    return at


def _begin(at: address, owner: i64, data: address, nbytes: i64, device: DeviceRecord | None) -> None:
    block = BlockRecord.at(at)
    block.references.store(1, RELAXED)
    block.owner = owner
    block.data = data
    block.nbytes = nbytes
    block.device = device
    block.done = None
    block.on_delete.function = None


def count_blocks(device: DeviceRecord, count: i64, nbytes: i64, largest: i64) -> None:
    """A device has so many new blocks with so many bytes."""
    device.allocations.add(count, RELAXED)
    _raise_to(device.largest, largest)
    _raise_to(device.peak_bytes, device.bytes_in_use.add(nbytes, RELAXED) + nbytes)


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
    if block.references.load(ACQUIRE) != references and block.references.add(-references, ACQ_REL) != references:
        return
    if _READING.is_on.load(RELAXED) == 0 or not _waits(address_of(block)):
        _give_back(block)


def _waits(at: address) -> bool:
    """Whether a block that has lost its last reference waits for the end of a step. If so, it is added to those
    blocks."""
    _lock_reading()
    waits = _READING.is_on.load(RELAXED) != 0
    if waits:
        _WaitingRecord.at(at).next = _READING.waiting
        _READING.waiting = at
    _READING.lock.store(0, RELEASE)
    return waits


def _lock_reading() -> None:
    while _READING.lock.exchange(1, ACQUIRE) != 0:
        sched_yield()


def begin_reading() -> None:
    """From now on the caller's step reads blocks without references; what it sees to be live stays until
    `end_reading`. There is one such step at a time."""
    _READING.is_on.store(1, RELAXED)
    fence(SEQ_CST)


def end_reading() -> address:
    """The step is over, and no other has begun: what has waited for that is for the caller to `give_back_waiting`."""
    null: address = 0
    _lock_reading()
    _READING.is_on.store(0, RELAXED)
    at = _READING.waiting
    _READING.waiting = null
    _READING.lock.store(0, RELEASE)
    return at


def give_back_waiting(at: address) -> None:
    """Blocks of `end_reading`, of which there may be none; this may call the client back."""
    while at != 0:
        following = _WaitingRecord.at(at).next
        _give_back(BlockRecord.at(at))
        at = following


def _give_back(block: BlockRecord) -> None:
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
    """Whether the holder of that many references, as handles have them, may write results into the block after all
    queued steps. Memory that others lent is never written."""
    return block.owner == OWN and block.references.load(ACQUIRE) & (READER - 1) == handles


def is_read(block: BlockRecord) -> bool:
    """Whether a step in the queue reads or writes the block."""
    return block.references.load(ACQUIRE) >= READER
