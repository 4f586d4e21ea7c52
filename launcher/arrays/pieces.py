"""Pieces of a global array, and their assembly into a requested part. Every source of an array's contents is a
`PieceSource`: a NumPy array, the shards of an array in another layout, a file. The whole array is never needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from shardc.launcher.arrays.layout import Region

__all__ = ["Piece", "PieceSource", "Whole", "copy_into", "inside", "overlap", "region_text", "volume", "whole_region"]


@dataclass(frozen=True, slots=True)
class Piece:
    """``data`` is ``array[region]``."""

    region: Region
    data: NDArray[Any]


class PieceSource(Protocol):
    """Where the elements of a global array can be read."""

    def pieces(self, region: Region) -> Iterable[Piece]:
        """Pieces that overlap ``region``, no element twice; together they cover of it what the source has."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """A source that has everything in one array."""

    data: NDArray[Any]

    def pieces(self, region: Region) -> Iterator[Piece]:
        yield Piece(whole_region(self.data.shape), self.data)


def whole_region(dims: Sequence[int]) -> Region:
    """All of an array."""
    return tuple(slice(0, n) for n in dims)


def overlap(a: Region, b: Region) -> Region | None:
    """What two regions share; None for nothing."""
    out = tuple(slice(max(x.start, y.start), min(x.stop, y.stop)) for x, y in zip(a, b, strict=True))
    return None if any(s.start >= s.stop for s in out) else out


def inside(part: Region, whole: Region) -> Region:
    """Where ``part`` is in an array that holds ``whole``."""
    return tuple(slice(p.start - w.start, p.stop - w.start) for p, w in zip(part, whole, strict=True))


def volume(region: Region) -> int:
    """Elements of a region."""
    return math.prod(max(0, s.stop - s.start) for s in region)


def copy_into(out: NDArray[Any], region: Region, pieces: Iterable[Piece]) -> int:
    """Write to ``out``, which is ``array[region]``, what ``pieces`` have of it; returns the elements written."""
    written = 0
    for piece in pieces:
        shared = overlap(region, piece.region)
        if shared is not None:
            # The ellipsis keeps arrays without dimensions arrays.
            there: tuple[Any, ...] = inside(shared, region)
            here: tuple[Any, ...] = inside(shared, piece.region)
            out[(*there, ...)] = piece.data[(*here, ...)]
            written += volume(shared)
    return written


def region_text(region: Region) -> str:
    """``[0:4, 8:16]``."""
    return "[" + ", ".join(f"{s.start}:{s.stop}" for s in region) + "]"


def cut(region: Region, steps: Sequence[int]) -> Iterator[Region]:
    """The parts of ``region`` on a grid of ``steps`` elements, which starts at the region's own start."""
    lines = [
        [slice(at, min(at + step, s.stop)) for at in range(s.start, s.stop, step)]
        for s, step in zip(region, steps, strict=True)
    ]
    yield from itertools.product(*lines)
