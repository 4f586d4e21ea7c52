"""Other chunk sizes along a split dimension: only what crosses a boundary travels.

A dimension of n elements over k devices lies in chunks of ceil(n / k). A move between layouts may leave chunks of
another size behind, or need them (uneven sizes only). Then every device takes what it lacks from its neighbours:
the ends of their chunks, by permutes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.ir import Instruction
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import Atoms

__all__ = ["ChunkPiece", "find_pieces", "rechunk", "sent_elements", "total_sent"]


@dataclass(frozen=True, slots=True)
class ChunkPiece:
    """Elements ``low`` to ``high`` of the old chunk of device i + ``distance``; the devices i ``readers`` need some."""

    distance: int
    low: int
    high: int
    readers: tuple[int, ...]


@lru_cache(maxsize=4096)
def find_pieces(n: int, k: int, old: int, new: int) -> tuple[ChunkPiece, ...]:
    """What the k devices read of a dimension of ``n`` to go from chunks of ``old`` to chunks of ``new``.

    In order of distance, without gaps between one piece and the next; the own chunk (distance 0) is among them.

    >>> [(p.distance, p.low, p.high) for p in pieces(10, 4, 3, 4)]
    [(0, 0, 3), (1, 0, 2)]
    """
    found: dict[int, tuple[int, int]] = {0: (old, 0)}
    readers: dict[int, list[int]] = {}
    for i in range(-(-n // new)):
        start, end = i * new, min((i + 1) * new, n)
        for source in range(start // old, -(-end // old)):
            low, high = max(start - source * old, 0), min(end - source * old, old)
            least, most = found.get(source - i, (old, 0))
            found[source - i] = (min(least, low), max(most, high))
            readers.setdefault(source - i, []).append(i)
    distances = range(min(found), max(found) + 1)
    out: list[ChunkPiece] = []
    for d in distances:
        low, high = found.get(d, (0, old))
        low, high = 0 if d != distances[0] else low, old if d != distances[-1] else high
        out.append(ChunkPiece(d, low, high, tuple(readers.get(d, ()))))
    return tuple(out)


@lru_cache(maxsize=4096)
def sent_elements(n: int, k: int, old: int, new: int) -> tuple[tuple[int, int], ...]:
    """Elements along the dimension that permutes of `rechunk` carry, and how many permutes carry so many."""
    if not n or old == new or k == 1:
        return ()
    return tuple(Counter(p.high - p.low for p in find_pieces(n, k, old, new) if p.distance).items())


def total_sent(n: int, k: int, old: int, new: int) -> tuple[int, int]:
    """Elements along the dimension that all permutes of `rechunk` carry, and how many those are."""
    sent = sent_elements(n, k, old, new)
    return sum(count * times for count, times in sent), sum(times for _, times in sent)


def rechunk(em: Emitter, x: Instruction, n: int, change: tuple[int, Atoms, int]) -> Instruction:
    """Change (dimension, its atoms, new chunk size) of a dimension with ``n`` elements."""
    dim, atoms, new = change
    old = x.shape.dims[dim]
    if old == new:
        return x
    k = em.table.extent(atoms)
    if k == 1 or not n:
        return em.resize(x, dim, new)
    read = find_pieces(n, k, old, new)
    group = em.table.axes(atoms)
    parts: list[Instruction] = []
    for p in read:
        part = em.cut(x, dim, p.low, p.high)
        if p.distance:
            pairs = tuple(sorted((i + p.distance, i) for i in p.readers))
            part = em.permute(part, AxisPairs(em.table.mesh, group, pairs))
        parts.append(part)
    window = em.concatenate(parts, dim)
    # Device i's new chunk starts at i * new, its window at (i + first distance) * old + first low.
    before = read[0].distance * old + read[0].low
    reach = max(i * (new - old) - before for i in range(-(-n // new)))
    window = em.resize(window, dim, max(window.shape.dims[dim], reach + new))
    if window.shape.dims[dim] == new:
        return window
    return em.dynamic_slice(window, dim, em.plus(em.scale(em.coordinate(atoms), new - old), -before), new)
