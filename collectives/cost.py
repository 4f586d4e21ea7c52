"""What a collective costs on a machine: latency and bandwidth of the algorithms that could run it, the best taken.

A group of devices meets the machine's levels as a few members per level (`members_by_level`). Rings go around all of
them, hierarchies level by level; each is a sum of steps of ``latency + bytes / bandwidth``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shardc.collectives.machine import Level, Machine

__all__ = ["Estimate", "collective_cost", "members_by_level", "members_of"]

#: Members of a group at one level, and the level.
_Part = tuple[int, Level]


@dataclass(frozen=True, slots=True, order=True)
class Estimate:
    """Seconds that a collective takes, and the algorithm."""

    seconds: float
    algorithm: str


def members_by_level(machine: Machine, strides: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """How many members of a group meet at each level.

    ``strides`` are (distance between device numbers, members) of each mesh axis of the group; devices lie row-major.
    """
    counts = [1] * len(machine.levels)
    for stride, extent in strides:
        inside, left = 1, extent
        for n, level in enumerate(machine.levels):
            inside = inside * level.size if level.size else 0
            fits = left if not inside or n == len(counts) - 1 else min(left, max(1, inside // stride))
            counts[n] *= fits
            left = -(-left // fits)
            stride *= fits
    return tuple(counts)


def members_of(machine: Machine, devices: Sequence[int]) -> tuple[int, ...]:
    """`members_by_level` for a group that is given as device numbers; groups that lie unevenly count as their largest.

    Example: of devices 0, 1, 8 and 9 on machines of eight, two meet inside and two outside.
    """
    found: list[int] = []
    inside, inner = 1, tuple(devices)
    for n, level in enumerate(machine.levels):
        last = n == len(machine.levels) - 1
        inside *= level.size
        outer = tuple(0 if last or not inside else d // inside for d in devices)
        met = Counter(o for o, _ in set(zip(outer, inner, strict=True)))
        found.append(max(met.values(), default=1))
        inner = outer
    return tuple(found)


def collective_cost(machine: Machine, opcode: str, result_bytes: float, members: Sequence[int]) -> Estimate:
    """The fastest algorithm for one collective of a group with ``members`` per level.

    ``result_bytes`` are those of the local result, as in reports. Groups of one cost nothing.
    """
    parts = [(g, level) for g, level in zip(members, machine.levels, strict=True) if g > 1]
    if not parts:
        return Estimate(0.0, "none")
    return min(Estimate(s, name) for name, s in _candidates(opcode.removesuffix("-start"), float(result_bytes), parts))


def _candidates(opcode: str, size: float, parts: list[_Part]) -> Iterator[tuple[str, float]]:
    g = math.prod(n for n, _ in parts)
    if opcode == "all-reduce":
        yield "ring", 2 * _ring(parts, size / g)
        yield "hierarchy", 2 * _hierarchy(parts, size)
    elif opcode == "all-gather":
        yield "ring", _ring(parts, size / g)
        yield "hierarchy", _hierarchy(parts, size)
    elif opcode == "reduce-scatter":
        yield "ring", _ring(parts, size)
        yield "hierarchy", _hierarchy(parts, size * g)
    elif opcode in ("all-to-all", "ragged-all-to-all"):
        yield "direct", _exchange(parts, size)
    else:
        outer = parts[-1][1]
        yield "direct", outer.latency + size / outer.bandwidth


def _ring(parts: list[_Part], chunk: float) -> float:
    """Everybody passes a chunk to the next member, until all chunks have been everywhere."""
    g = math.prod(n for n, _ in parts)
    slowest = min(level.bandwidth for _, level in parts)
    latency = max(level.latency for _, level in parts)
    return (g - 1) * (latency + chunk / slowest)


def _hierarchy(parts: list[_Part], whole: float) -> float:
    """Gather ``whole`` from the outermost level inwards: little crosses the slow links.

    Through a switch, partners at distances 1, 2, 4, ... (Thakur et al., "Optimization of Collective Communication
    Operations in MPICH", 2005) send the same bytes in few steps; along a torus every level is a ring.
    """
    total = 0.0
    share = whole
    for n, level in parts:
        share /= n
        steps = math.ceil(math.log2(n)) if level.kind == "switch" else n - 1
        total += steps * level.latency + (n - 1) * share / level.bandwidth
    return total


def _exchange(parts: list[_Part], size: float) -> float:
    """Each member sends its own piece to each other one, through the level at which the two meet."""
    g = math.prod(n for n, _ in parts)
    piece = size / g
    total, near = 0.0, 1
    for n, level in parts:
        others = near * (n - 1)
        # Along a ring, pieces travel a quarter of it on average, in both directions.
        hops = max(1.0, n / 4) if level.kind == "torus" else 1.0
        total += others * piece * hops / level.bandwidth + (n - 1) * level.latency
        near *= n
    return total
