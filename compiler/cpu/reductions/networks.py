"""Sorting networks: the pairs of places that are compared and exchanged, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["batcher_pairs", "bitonic_pairs"]


def bitonic_pairs(count: int) -> Iterator[tuple[int, int]]:
    """What sorts a bitonic row of a power of two."""
    apart = count // 2
    while apart:
        yield from ((k, k + apart) for k in range(count) if not k & apart)
        apart //= 2


def batcher_pairs(count: int) -> Iterator[tuple[int, int]]:
    """Batcher's odd-even merge sort of a row of a power of two."""
    run = 1
    while run < count:
        apart = run
        while apart:
            for begin in range(apart % run, count - apart, 2 * apart):
                for k in range(begin, min(begin + apart, count - apart)):
                    if k // (2 * run) == (k + apart) // (2 * run):
                        yield k, k + apart
            apart //= 2
        run *= 2
