"""Memory for handles and elements, without a call of the C library where some was given back before.

Sizes go by classes: steps of 64 bytes up to 1 KiB, then four in each doubling, up to 16 MiB. What is given back of a
small class (up to 4 KiB) goes into a list and stays the pool's. Of a large one a few are kept, and of all together at
most `KEPT_BYTES`; the rest goes back to the C library, and so do all that are larger. No thread waits for another.

A list's head is one word: the address of the first piece, and above it a count that each change raises, so that who
saw a head is not fooled by another list with the same first piece (addresses have at most 48 bits). The word in a piece
that leads to the next may already be somebody's data when it is read; then the head has changed, too.
"""

from __future__ import annotations

from shardc.frontends.pjrt.native.records import LARGE_CLASSES, SMALL_CLASSES, SPARES, MemoryPoolRecord
from shardc.native.lowlevel.builtins import as_i64, as_u64, exported, inline, static
from shardc.native.lowlevel.kinds import address, i64, u64
from shardc.native.lowlevel.records import ACQ_REL, ACQUIRE, RELAXED, RELEASE, Atomic, Record
from shardc.native.lowlevel.system import aligned_alloc, free

__all__ = ["KEPT_BYTES", "LARGEST_CLASS", "allocate", "bytes_of_class", "class_of", "give_back", "pieces_in_use"]

#: At most so many bytes of large classes are kept.
KEPT_BYTES = 64 << 20
LARGEST_CLASS = SMALL_CLASSES + LARGE_CLASSES - 1

_POOL = static(MemoryPoolRecord, "shardc_pjrt_pool")
#: A head's address, one change, and all changes.
_ADDRESS, _CHANGE, _CHANGES = (1 << 48) - 1, 1 << 48, 0xFFFF << 48


class _Piece(Record):
    """Memory of a list that nobody uses."""

    next: Atomic[u64]


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
        found = _pop(_POOL.lists[size_class])
    if found == 0:
        found = aligned_alloc(64, bytes_of_class(size_class))
    if found != 0:
        _POOL.in_use.add(1, RELAXED)
    return found


def give_back(piece: address, size_class: i64) -> None:
    """Nobody uses a piece of a class any more."""
    _POOL.in_use.add(-1, RELAXED)
    if size_class < 0:
        free(piece)
    elif size_class < SMALL_CLASSES:
        _push(_POOL.lists[size_class], piece)
    else:
        _keep_or_free(piece, size_class)


@exported("shardc_pjrt_pieces_in_use")
def pieces_in_use() -> i64:
    """How many pieces were given and not given back."""
    return _POOL.in_use.load(RELAXED)


@inline
def _at(head: u64) -> address:
    """The piece that a list begins with."""
    null: address = 0
    return null + as_i64(head & _ADDRESS)


@inline
def _changed(head: u64) -> u64:
    """The next count, without an address."""
    return as_u64((head & _CHANGES) + _CHANGE)


def _pop(pieces: Atomic[u64]) -> address:
    head = pieces.load(ACQUIRE)
    while True:
        first = _at(head)
        if first == 0:
            return first
        following = _Piece.at(first).next.load(RELAXED) & _ADDRESS
        seen = pieces.compare_exchange(head, _changed(head) | following, ACQ_REL)
        if seen == head:
            return first
        head = seen


def _push(pieces: Atomic[u64], piece: address) -> None:
    head = pieces.load(RELAXED)
    while True:
        _Piece.at(piece).next.store(head & _ADDRESS, RELAXED)
        seen = pieces.compare_exchange(head, _changed(head) | as_u64(piece), ACQ_REL)
        if seen == head:
            return
        head = seen


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


def _keep_or_free(piece: address, size_class: i64) -> None:
    nbytes = bytes_of_class(size_class)
    if _POOL.kept_bytes.add(nbytes, RELAXED) + nbytes <= KEPT_BYTES:
        first = (size_class - SMALL_CLASSES) * SPARES
        for k in range(first, first + SPARES):
            if _POOL.spares[k].compare_exchange(0, piece, RELEASE) == 0:
                return
    _POOL.kept_bytes.add(-nbytes, RELAXED)
    free(piece)
