"""Pack: offsets for blocks of memory such that blocks in use at the same time do not overlap (dynamic storage
allocation, where all lifetimes are known).

Results are memory too, and until its value is written a result's memory is free for other values. So there is one
address space, in which every result is a region of fixed size and the arena the last one, without an end. Blocks are
placed one after the other, each into the tightest gap (best fit), the largest first as in Pisarchyk and Lee,
arXiv:2001.03288. No order of blocks is best for all programs, so several are tried until one reaches the lower bound:
the most bytes in use at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from shardc.compiler.lower.buffers.liveness import runs_of

__all__ = ["ALIGNMENT", "LiveBlock", "PackedBlock", "pack"]

#: Bytes; blocks start at multiples of it.
ALIGNMENT = 64
#: From so many bytes on, blocks in the arena lie so many bytes behind what comes before them. Else all of them would
#: start at one place in a page, as arguments do: a kernel's streams would share few cache sets, and loads would wait
#: for stores whose addresses end in the same 12 bits.
_LARGE, _STAGGER = 1 << 18, 640

#: With more blocks than this only the first order is tried.
_MANY = 4000
#: Bits of time in a page, and how many pages a range may touch to stand in their lists.
_PAGE = 256
_FEW = 8


@dataclass(frozen=True, slots=True)
class LiveBlock:
    """Memory in use at the positions whose bits are set in ``mask``."""

    mask: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class PackedBlock:
    """``offset`` bytes into region number ``region``, or (None) into the arena."""

    region: int | None
    offset: int


def pack(regions: Sequence[LiveBlock], blocks: Sequence[LiveBlock], header: int = 0) -> tuple[list[PackedBlock], int]:
    """A place for every block, in a region where that is free, else in the arena; and the arena's bytes.

    ``regions`` are in use at their masks; the arena's first ``header`` bytes always are. Deterministic.

    Example: with one region of 64 bytes in use at bit 1, a block of 64 bytes at bit 0 goes there, and the arena is
    no larger than its header.
    """
    best: tuple[list[PackedBlock], int] | None = None
    least = _least(regions, blocks) + header
    for key in _ORDERS if len(blocks) <= _MANY else _ORDERS[:1]:
        found = _packed(regions, blocks, header, sorted(range(len(blocks)), key=lambda n: (*key(blocks[n]), n)))
        if best is None or found[1] < best[1]:
            best = found
        if _aligned(best[1]) <= least:
            break
    assert best is not None
    return best


def _least(regions: Sequence[LiveBlock], blocks: Sequence[LiveBlock]) -> int:
    """Bytes that the arena has at least, however blocks are placed: what is in use at a time must lie somewhere."""
    changes: dict[int, int] = {}
    for block in (*regions, *blocks):
        for first, end in runs_of(block.mask):
            changes[first] = changes.get(first, 0) + _aligned(block.nbytes) + _lead(block)
            changes[end] = changes.get(end, 0) - _aligned(block.nbytes) - _lead(block)
    most = max(accumulate(changes[bit] for bit in sorted(changes)), default=0)
    return max(0, most - sum(_aligned(r.nbytes) for r in regions))


def _lifetime(block: LiveBlock) -> int:
    return block.mask.bit_count()


#: The larger first; the longer first; the larger times longer first.
_ORDERS: tuple[Callable[[LiveBlock], tuple[int, ...]], ...] = (
    lambda b: (-b.nbytes, -_lifetime(b)),
    lambda b: (-b.nbytes,),
    lambda b: (-_lifetime(b), -b.nbytes),
    lambda b: (-b.nbytes * _lifetime(b),),
)


def _packed(
    regions: Sequence[LiveBlock], blocks: Sequence[LiveBlock], header: int, order: Sequence[int]
) -> tuple[list[PackedBlock], int]:
    """Places when blocks are taken in ``order``."""
    taken = _Taken(len(blocks) + 2 * len(regions) + 1)
    starts = [0]
    for region in regions:
        taken.add(region.mask, starts[-1], starts[-1] + region.nbytes)
        starts.append(_aligned(starts[-1] + region.nbytes) + ALIGNMENT)
        # Nothing lies across the border of two regions.
        taken.add(-1, starts[-2] + region.nbytes, starts[-1])
    arena = starts.pop()
    taken.add(-1, arena, arena + header)
    places: dict[int, PackedBlock] = {}
    end = header
    for n in order:
        block = blocks[n]
        low = taken.tightest_gap(block.mask, block.nbytes, arena + header)
        if low >= arena and _lead(block):
            low = taken.tightest_gap(block.mask, block.nbytes + _lead(block), arena + header) + _lead(block)
        taken.add(block.mask, low, low + block.nbytes)
        if low >= arena:
            places[n] = PackedBlock(None, low - arena)
            end = max(end, low - arena + block.nbytes)
        else:
            number = bisect_right(starts, low) - 1
            places[n] = PackedBlock(number, low - starts[number])
    return [places[n] for n in range(len(blocks))], end


def _lead(block: LiveBlock) -> int:
    """Bytes that stay free in front of a block in the arena."""
    return _STAGGER if block.nbytes >= _LARGE else 0


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


class _Taken:
    """Byte ranges that are taken, each during the bits of a mask (-1: always); as arrays, because there may be many.

    Time is cut into pages. Most ranges are short and stand in the lists of the few pages that they touch. Who asks
    about a short time looks at these, and at the ranges that touch many pages.
    """

    def __init__(self, capacity: int) -> None:
        self._count = 0
        self._pages: dict[int, list[int]] = {}
        self._long: list[int] = []
        self._masks: list[int] = []
        self._first = np.zeros(capacity, np.int64)
        self._last = np.zeros(capacity, np.int64)
        self._low = np.zeros(capacity, np.int64)
        self._high = np.zeros(capacity, np.int64)
        self._gaps = np.zeros(capacity, np.bool_)

    def add(self, mask: int, low: int, high: int) -> None:
        if low == high:
            return
        n = self._count
        self._first[n], self._last[n], self._gaps[n] = _extent(mask)
        self._low[n], self._high[n] = low, high
        self._masks.append(mask)
        self._count += 1
        pages = _pages(int(self._first[n]), int(self._last[n]))
        if len(pages) > _FEW:
            self._long.append(n)
        else:
            for page in pages:
                self._pages.setdefault(page, []).append(n)

    def tightest_gap(self, mask: int, size: int, least: int) -> int:
        """The aligned start of the smallest gap of at least ``size`` bytes that is free during ``mask``.

        Else, and for what takes no memory, after all that is taken then, and not below ``least``.
        """
        first, last, gaps = _extent(mask)
        near = self._during(first, last)
        if gaps or self._gaps[near].any():
            near = np.array([k for k in near if self._masks[k] & mask], np.int64)
        if not len(near) or not size:
            return least
        near = near[np.argsort(self._low[near], kind="stable")]
        ends = np.maximum.accumulate(np.concatenate(([0], self._high[near])))
        ends = -(-ends // ALIGNMENT) * ALIGNMENT
        free = self._low[near] - ends[:-1]
        fits = np.flatnonzero(free >= size)
        return max(int(ends[-1]), least) if not len(fits) else int(ends[fits[np.argmin(free[fits])]])

    def _during(self, first: int, last: int) -> NDArray[np.intp]:
        """Numbers of the ranges whose time touches that from ``first`` to ``last``, in order."""
        n, pages = self._count, _pages(first, last)
        if len(pages) > _FEW:
            return np.flatnonzero((self._first[:n] <= last) & (self._last[:n] >= first))
        found = sorted({*self._long, *(k for page in pages for k in self._pages.get(page, ()))})
        near = np.array(found, np.intp)
        return near[(self._first[near] <= last) & (self._last[near] >= first)]


def _pages(first: int, last: int) -> range:
    return range(first // _PAGE, last // _PAGE + 1)


def _extent(mask: int) -> tuple[int, int, bool]:
    """First and last bit of a mask, and whether bits between them are missing."""
    if mask <= 0:
        return (0, np.iinfo(np.int64).max, False) if mask else (0, -1, False)
    first, last = (mask & -mask).bit_length() - 1, mask.bit_length() - 1
    return first, last, (mask >> first) + 1 != 1 << (last - first + 1)
