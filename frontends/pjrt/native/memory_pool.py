"""Memory for handles and elements, without a call of the C library where some was given back before.

Sizes go by classes: steps of 64 bytes up to 1 KiB, then four in each doubling, up to 16 MiB. What is given back of a
small class (up to 4 KiB) goes on a stack, up to `STACK` pieces. Of a large one a few are kept, and of all together at
most `KEPT_BYTES`; the rest goes back to the C library, and so do all that are larger.

An execution makes thousands of handles, which the client destroys soon after. So a stack has the addresses of its
pieces in an array: a list through the pieces would wait for the memory of one to know where the next is.
"""

from __future__ import annotations

from typing import Annotated

from shardc.frontends.pjrt.native.records import LARGE_CLASSES, SMALL_CLASSES, SPARES, MemoryPoolRecord, StackRecord
from shardc.native.lowlevel.builtins import exported, static
from shardc.native.lowlevel.kinds import Count, address, i64
from shardc.native.lowlevel.records import ACQUIRE, RELAXED, RELEASE, Record, Span
from shardc.native.lowlevel.system import aligned_alloc, free, sched_yield

__all__ = [
    "KEPT_BYTES", "LARGEST_CLASS", "STACK", "allocate", "bytes_of_class", "class_of", "give_back", "pieces_in_use",
]  # fmt: skip

#: At most so many bytes of large classes are kept, and so many pieces of a small one.
KEPT_BYTES = 64 << 20
STACK = 8192
LARGEST_CLASS = SMALL_CLASSES + LARGE_CLASSES - 1

_POOL = static(MemoryPoolRecord, "shardc_pjrt_pool")


class _Pieces(Record):
    """Addresses, one after another."""

    items: Annotated[Span[address], Count(1)]


def class_of(nbytes: i64) -> i64:
    """The class of a piece; behind the last one it is minus the bytes in whole lines."""
    if nbytes <= 1024:
        return max(nbytes - 1, 0) >> 6
    below = 1024
    octave = 0
    while 2 * below < nbytes:
        below *= 2
        octave += 1
    found = 16 + 4 * octave + (nbytes - below - 1) // (below >> 2)
    return found if found <= LARGEST_CLASS else -((nbytes + 63) & -64)


def bytes_of_class(size_class: i64) -> i64:
    """How many bytes a piece of a class has."""
    if size_class < 0:
        return -size_class
    if size_class < 16:
        return (size_class + 1) << 6
    octave = (size_class - 16) >> 2
    quarter = (size_class - 16) & 3
    return (1024 << octave) + (quarter + 1) * (256 << octave)


def allocate(size_class: i64) -> address:
    """A piece of a class, at a multiple of 64 bytes; null where there is no memory."""
    found: address = 0
    if size_class >= SMALL_CLASSES:
        found = _spare(size_class)
    elif size_class >= 0:
        found = _pop(_POOL.stacks[size_class])
    if found == 0:
        found = aligned_alloc(64, bytes_of_class(size_class))
        if found != 0:
            _POOL.made.add(1, RELAXED)
    return found


def give_back(piece: address, size_class: i64) -> None:
    """Nobody uses a piece of a class any more."""
    kept = False
    if size_class >= SMALL_CLASSES:
        kept = _keep(piece, size_class)
    elif size_class >= 0:
        kept = _push(_POOL.stacks[size_class], piece)
    if not kept:
        _POOL.made.add(-1, RELAXED)
        free(piece)


@exported("shardc_pjrt_pieces_in_use")
def pieces_in_use() -> i64:
    """How many pieces were given and not given back; who asks while others work gets a rough number."""
    used = _POOL.made.load(RELAXED)
    for k in range(LARGE_CLASSES * SPARES):
        if _POOL.spares[k].load(RELAXED) != 0:
            used -= 1
    for k in range(SMALL_CLASSES):
        used -= _POOL.stacks[k].count
    return used


def _lock(stack: StackRecord) -> None:
    while stack.lock.exchange(1, ACQUIRE) != 0:
        sched_yield()


def _pop(stack: StackRecord) -> address:
    """The piece on top, or null."""
    found: address = 0
    _lock(stack)
    if stack.count > 0:
        stack.count -= 1
        found = _Pieces.at(stack.pieces).items[stack.count]
    stack.lock.store(0, RELEASE)
    return found


def _push(stack: StackRecord, piece: address) -> bool:
    """Put a piece on top, if there is room."""
    _lock(stack)
    if stack.pieces == 0:
        stack.pieces = aligned_alloc(64, 8 * STACK)
    kept = stack.count < STACK and stack.pieces != 0
    if kept:
        _Pieces.at(stack.pieces).items[stack.count] = piece
        stack.count += 1
    stack.lock.store(0, RELEASE)
    return kept


def _spare(size_class: i64) -> address:
    """A piece that was kept, or null."""
    first = (size_class - SMALL_CLASSES) * SPARES
    for k in range(first, first + SPARES):
        spare = _POOL.spares[k]
        if spare.load(RELAXED) != 0:
            found = spare.exchange(0, ACQUIRE)
            if found != 0:
                _POOL.kept_bytes.add(-bytes_of_class(size_class), RELAXED)
                return found
    return 0


def _keep(piece: address, size_class: i64) -> bool:
    """Have a piece as a spare one, if there is room."""
    nbytes = bytes_of_class(size_class)
    if _POOL.kept_bytes.add(nbytes, RELAXED) + nbytes <= KEPT_BYTES:
        first = (size_class - SMALL_CLASSES) * SPARES
        for k in range(first, first + SPARES):
            if _POOL.spares[k].compare_exchange(0, piece, RELEASE) == 0:
                return True
    _POOL.kept_bytes.add(-nbytes, RELAXED)
    return False
