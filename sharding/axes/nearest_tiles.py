"""Replacements for layouts that a mesh cannot name: as many tiles along each dimension, from other digits.

Digits are ranges of the position in a mesh, or in one of its axes (see `tiles`). Digits of two layouts can be named
together where all their marks divide one another in turn; where they do not, one of them stays and the other gets the
digits that are left. Its tiles then lie on other devices, which a permute of whole shards makes good where it shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from shardc.sharding.axes.tile_ranges import Range

__all__ = ["chain_of_marks", "nearest"]


def chain_of_marks(size: int, ranges: Iterable[Range]) -> tuple[int, ...]:
    """The marks of those ``ranges`` of ``size`` positions that can be named together; earlier ones are preferred."""
    marks = {1, size}
    for r in ranges:
        more = marks | set(r)
        if all(high % low == 0 for low, high in pairwise(sorted(more))):
            marks = more
    return tuple(sorted(marks))


def nearest(wanted: Sequence[Range], marks: Sequence[int]) -> list[tuple[Range, ...]]:
    """For each range digits between ``marks`` that make as many parts; a range that ends at marks stays as it is.

    No two ranges of ``wanted`` overlap, and their parts together divide the positions. Digits are as near as can be:
    those that lie within the range, then the major ones.
    Example: ``nearest([(1, 3)], (1, 2, 6))`` is ``[((2, 6),)]``.
    """
    free = [digit for low, high in pairwise(marks) for digit in _prime_digits(low, high)]
    ends = {end for digit in free for end in digit}
    out: dict[Range, list[Range]] = {}
    for low, high in sorted(wanted, key=lambda r: not ends.issuperset(r)):
        whole = ends.issuperset((low, high))
        mine = [d for d in free if low <= d[0] and d[1] <= high] if whole else []
        for size in [] if whole else [b // a for a, b in _prime_digits(low, high)]:
            fitting = [d for d in free if d[1] // d[0] == size and d not in mine]
            mine.append(min(fitting, key=lambda d: (max(d[0], low) >= min(d[1], high), d)))
        free = [d for d in free if d not in mine]
        out[low, high] = sorted(mine)
    return [tuple(out[r]) for r in wanted]


def _prime_digits(low: int, high: int) -> list[Range]:
    """The range cut into digits of prime size."""
    out: list[Range] = []
    prime = 2
    while low < high:
        if high // low % prime:
            prime += 1
        else:
            out.append((low, low * prime))
            low *= prime
    return out
