"""The links of a machine of a certain size: per dimension how many devices meet there and how fast.

`links_of` cuts a machine to a number of devices: nodes that are filled, slices that there are. Devices then lie in a
grid with one dimension per `Links`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shardc.costs.machines.level import Level
from shardc.costs.machines.machine import Machine
from shardc.hlo.errors import InputError
from shardc.hlo.units import count_text

__all__ = ["Links", "links_of"]

_NAMES = "xyz"


@dataclass(frozen=True, slots=True)
class Links:
    """One dimension of the grid of devices: ``size`` devices that differ in nothing else.

    ``level`` numbers the machine's levels, innermost first. Through a switch each device sends ``bandwidth`` bytes per
    second; along a dimension of a torus each of the two links does, in either direction, and those at the ends exist
    where the dimension goes ``around``. A collective takes ``start`` seconds besides.
    """

    name: str
    level: int
    size: int
    bandwidth: float
    latency: float
    torus: bool = False
    around: bool = False
    start: float = 0.0

    @property
    def resources(self) -> tuple[str, ...]:
        """What transfers over these links share: of a torus each direction is for itself."""
        return (f"{self.name}+", f"{self.name}-") if self.torus else (self.name,)


def links_of(machine: Machine, devices: int, inner: Sequence[int] = ()) -> tuple[Links, ...]:
    """The links of ``devices`` devices, innermost first.

    Nodes are as full as the machine's counts say, else as full as the sizes ``inner`` of the mesh's axes, innermost
    first, can be cut evenly. Raises `InputError` with the numbers where there is no such machine.
    """
    counted = _counted(machine, devices)
    out: list[Links] = []
    left = devices
    for n, level in enumerate(machine.levels):
        last = n == len(machine.levels) - 1
        if level.kind == "torus":
            shape = _slice(machine, level, left, counted[n], last=last)
            out += _torus(level, n, shape)
            left //= math.prod(shape)
            inner = _beyond(inner, math.prod(shape))
            continue
        size = counted[n][0] if counted[n] else left if last else _node(level.size, left, inner)
        if level.size and size > level.size:
            raise InputError(
                f"{machine.title} connects {count_text(level.size, 'device')} by {level.name}, not {size}",
                fix="use fewer devices, or describe a machine with more levels",
            )
        out.append(Links(level.name, n, size, level.achieved, level.latency, start=level.start))
        left //= size
        inner = _beyond(inner, size)
    return tuple(out)


def _counted(machine: Machine, devices: int) -> list[tuple[int, ...]]:
    """What the machine's counts say of each level; nothing where they say nothing of it."""
    counts, levels = machine.counts, machine.levels
    out: list[tuple[int, ...]] = [()] * len(levels)
    if not counts:
        return out
    if math.prod(counts) != devices:
        raise InputError(
            f"{machine.title} has {count_text(math.prod(counts), 'device')}, but the mesh has {devices}",
            fix=f"use a mesh of {count_text(math.prod(counts), 'device')}, or {machine.name}:{devices}",
        )
    torus = next((n for n, level in enumerate(levels) if level.kind == "torus"), None)
    if len(counts) == 1:
        return out
    if torus is None:
        if len(counts) > len(levels):
            raise InputError(f"{machine.title} gives {len(counts)} counts for {len(levels)} levels of links")
        for n, count in enumerate(reversed(counts)):
            out[n] = (count,)
        return out
    rank = levels[torus].rank
    if len(counts) == rank and rank != 2:
        out[torus] = counts
    elif len(counts) == rank + 1 and torus + 1 < len(levels):
        out[torus], out[torus + 1] = counts[1:], counts[:1]
    elif len(counts) == 2 and torus + 1 < len(levels):
        out[torus], out[torus + 1] = (counts[1],), counts[:1]
    else:
        raise InputError(
            f"{machine.title} is not a size of a machine with a torus of {count_text(rank, 'dimension')}",
            fix=f"give {machine.name}:CHIPS, {machine.name}:SLICESxCHIPS or {machine.name}:SLICESx"
            + "x".join("ABC"[:rank]),
        )
    return out


def _node(most: int, left: int, inner: Sequence[int]) -> int:
    """Devices of a node: the most that all nodes can have alike and that the mesh's axes can be cut at."""
    return next(n for n in range(min(most, left), 0, -1) if left % n == 0 and _cuts(n, inner))


def _cuts(n: int, inner: Sequence[int]) -> bool:
    """Whether the innermost axes, the last one cut, make ``n`` devices."""
    for size in inner:
        common = math.gcd(n, size)
        n //= common
        if n == 1:
            return True
        if common != size:
            return False
    return not inner or n == 1


def _beyond(inner: Sequence[int], n: int) -> list[int]:
    """What is left of the axes beyond ``n`` devices."""
    out: list[int] = []
    for size in inner:
        common = math.gcd(n, size)
        n //= common
        if size > common:
            out.append(size // common)
    return out


def _slice(machine: Machine, level: Level, devices: int, counted: tuple[int, ...], *, last: bool) -> tuple[int, ...]:
    """The shape of the slices that ``devices`` make: one where that can be, else as few as possible."""
    if len(counted) == level.rank and level.rank > 1:
        if tuple(sorted(counted)) not in {tuple(sorted(s)) for s in _shapes(level, math.prod(counted))}:
            raise InputError(
                f"{machine.name} has no slice {'x'.join(map(str, counted))}", fix=_near(machine, level, devices)
            )
        return counted
    each = counted[0] if counted else devices
    shapes = _shapes(level, each)
    if not shapes and not counted and not last and (not level.size or devices > level.size):
        whole = (n for n in range(min(level.size or devices, devices), 0, -1) if devices % n == 0)
        shapes = next((found for n in whole if (found := _shapes(level, n))), [])
    if not shapes:
        raise InputError(f"{machine.name} has no slice of {each} devices", fix=_near(machine, level, devices))
    return shapes[0]


def _shapes(level: Level, n: int) -> list[tuple[int, ...]]:
    """Slices of ``n`` devices, the most compact first."""
    if level.size and n > level.size:
        return []
    if not level.slices:
        return [(n,)]
    found = {s for s in level.slices if math.prod(s) == n}
    if level.block:
        unit = level.block**level.rank
        whole = _factors(n // unit, level.rank) if n % unit == 0 else []
        found |= {tuple(level.block * f for f in factors) for factors in whole}
    return sorted(found, key=lambda s: (sum(s), s))


def _factors(n: int, rank: int) -> list[tuple[int, ...]]:
    """Products of ``rank`` ascending factors that make ``n``."""
    if rank == 1:
        return [(n,)]
    out = []
    for first in range(1, round(n ** (1 / rank)) + 2):
        if n % first == 0:
            out += [(first, *rest) for rest in _factors(n // first, rank - 1) if rest[0] >= first]
    return out


def _near(machine: Machine, level: Level, devices: int) -> str:
    """Sizes around ``devices`` that there are."""
    below = next((n for n in range(min(devices, level.size or devices), 0, -1) if _shapes(level, n)), None)
    most = min(2 * devices + level.block**3, level.size)
    above = next((n for n in range(devices, most + 1) if _shapes(level, n)), None)
    sizes = [
        f"{n} ({'x'.join(map(str, _shapes(level, n)[0]))})" for n in dict.fromkeys((below, above)) if n is not None
    ]
    if not sizes:
        return f"{machine.name} has no slice of at most {level.size} devices: change slices or size in its description"
    limit = f"; at most {level.size} in one slice" if level.size and devices > level.size else ""
    return (
        f"slices near {count_text(devices, 'device')} have "
        f"{' or '.join(sizes)}{limit}; {machine.name}:SLICESxCHIPS joins several"
    )


def _torus(level: Level, number: int, shape: tuple[int, ...]) -> list[Links]:
    whole = level.block > 0 and all(n % level.block == 0 for n in shape)
    out = []
    for name, size in zip(_NAMES, shape, strict=False):
        around = {"all": True, "none": False, "blocks": whole}.get(str(level.wrap), size == level.wrap)
        label = f"{level.name} {name}" if len(shape) > 1 else level.name
        # Two neighbours with two links between them count as a dimension without ends.
        around = around and size > 2
        out.append(Links(label, number, size, level.achieved, level.latency, True, around, level.start))
    return out[::-1]
