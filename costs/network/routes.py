"""What a permute takes: every message on its way along the links, and the link that most of them share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shardc.costs.network.algorithms import Law
from shardc.costs.network.placement import GroupExtent, Groups, Placement
from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.sharding import AxisRef

__all__ = ["neighbour_law", "permute_law"]

_Place = tuple[int, ...]


def permute_law(placement: Placement, pairs: Groups) -> Law:
    """The law of a collective-permute, per byte of a message.

    Messages take the shortest way along one dimension after the other, innermost first; those of all groups share the
    links.
    """
    ends, everywhere = _ends(placement, pairs)
    busiest: Counter[str] = Counter()
    total: Counter[str] = Counter()
    slowest = 0.0
    used: Counter[tuple[str, _Place, int]] = Counter()
    for source, target in ends:
        slowest = max(slowest, _send(placement, source, target, used))
    shared = _between(placement, pairs) if everywhere else {}
    for (resource, _, _), n in used.items():
        times = n * shared.get(resource, 1)
        busiest[resource] = max(busiest[resource], times)
        total[resource] += times
    rates = {r: x.bandwidth for x in placement.links for r in x.resources}
    names = {r: x.name for x in placement.links for r in x.resources}
    busy = {r: n / rates[r] for r, n in sorted(busiest.items())}
    members = max(1, len({p for pair in ends for p in pair}))
    sent: dict[str, float] = {}
    for r, n in sorted(total.items()):
        sent[names[r]] = sent.get(names[r], 0.0) + n / members
    return Law("direct" if ends else "none", slowest, max(busy.values(), default=0.0), busy, sent)


def neighbour_law(part: GroupExtent) -> Law:
    """The law of a permute from one member to the next, ahead."""
    seconds = part.shared / part.links.bandwidth
    resource = part.links.resources[0]
    sent = {part.links.name: float(part.shared)}
    return Law("direct", part.shared * part.links.latency, seconds, {resource: seconds}, sent)


def _ends(placement: Placement, pairs: Groups) -> tuple[list[tuple[_Place, _Place]], bool]:
    """Places of sources and targets: of one group where all groups do the same, else of all."""
    if isinstance(pairs, AxisPairs) and pairs.mesh.axes == placement.mesh.axes:
        grid = _grid(placement, pairs.axes)
        return [(grid[s], grid[t]) for s, t in pairs.pairs if s != t], True
    listed: Sequence[Sequence[int]] = () if pairs is None else pairs if isinstance(pairs, tuple) else pairs.expand()
    at = placement.coordinates
    return [(a, b) for a, b in (at(pair) for pair in listed) if a != b], False


def _grid(placement: Placement, axes: tuple[AxisRef, ...]) -> list[_Place]:
    """Places of the members of the first group over ``axes``."""
    found: list[_Place] | None = placement.memory.get(axes)
    if found is None:
        positions = [0]
        for apart, extent in placement.strides(axes):
            positions = [p + k * apart for p in positions for k in range(extent)]
        found = placement.memory[axes] = [placement.at(p) for p in positions]
    return found


def _between(placement: Placement, pairs: Groups) -> dict[str, int]:
    """By resource how many groups share each of its links."""
    assert isinstance(pairs, AxisPairs)
    parts = placement.parts_along(placement.strides(pairs.axes))
    return {r: p.shared for p in parts for r in p.links.resources}


def _send(placement: Placement, source: _Place, target: _Place, used: Counter[tuple[str, _Place, int]]) -> float:
    """Count the links on the way of one message; seconds until its first byte is there."""
    links = placement.links
    outermost = max(n for n, (a, b) in enumerate(zip(source, target, strict=True)) if a != b)
    level = links[outermost].level
    at, seconds = source, 0.0
    for n, x in enumerate(links):
        a, b = at[n], target[n]
        if a == b or x.level != level:
            continue
        if not x.torus:
            used[x.name, source, 0] += 1
            seconds += x.latency
        else:
            ahead = (b - a) % x.size if x.around else b - a
            forward = 2 * ahead <= x.size if x.around else ahead > 0
            hops = abs(ahead) if forward or not x.around else x.size - ahead
            rest = (*at[:n], 0, *at[n + 1 :])
            for h in range(hops):
                link = (a + h) % x.size if forward else (a - h - 1) % x.size
                used[x.resources[0 if forward else 1], rest, link] += 1
            seconds += hops * x.latency
        at = (*at[:n], b, *at[n + 1 :])
    return seconds
