"""Collectives message by message over single links: what the closed formulas of `shardc.collectives` must agree with.

Devices stand in a grid; a message takes links in order, and all messages of a round share them. Nothing here knows a
formula: algorithms move named chunks, and whoever calls checks that they arrived.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shardc.costs.network.placement import Placement
from shardc.costs.network.topology import Links

Place = tuple[int, ...]
#: (source, target, bytes)
Message = tuple[Place, Place, float]


@dataclass
class Network:
    """``rounds`` of messages, one after the other; ``total`` bytes by link over all of them."""

    links: Sequence[Links]
    seconds: float = 0.0
    total: Counter[object] = field(default_factory=Counter)

    def round(self, messages: Iterable[Message]) -> None:
        """All these at the same time: the busiest link, and the longest way."""
        loads: Counter[object] = Counter()
        longest = 0.0
        for source, target, nbytes in messages:
            for share, path in self.routes(source, target):
                for link in path:
                    loads[link] += nbytes * share
                longest = max(longest, sum(self.links[link[1]].latency for link in path if link[0] != "in"))
        self.seconds += longest + self.busiest(loads)
        self.total.update(loads)

    def busiest(self, loads: Counter[object]) -> float:
        return max((n / self.links[link[1]].bandwidth for link, n in loads.items()), default=0.0)  # type: ignore[index]

    def routes(self, source: Place, target: Place) -> list[tuple[float, list[tuple[str, int, Place, int]]]]:
        """Ways with their shares: halves where both ways around are as long."""
        outermost = max(n for n, (a, b) in enumerate(zip(source, target, strict=True)) if a != b)
        level = self.links[outermost].level
        if not self.links[outermost].torus:
            return [(1.0, [("out", outermost, source, 0), ("in", outermost, target, 0)])]
        steps: list[list[tuple[float, int, int]]] = []
        for n, x in enumerate(self.links):
            apart = target[n] - source[n]
            if x.level != level or not apart:
                continue
            ways = [(1, apart % x.size), (-1, -apart % x.size)] if x.around else [(1 if apart > 0 else -1, abs(apart))]
            least = min(hops for _, hops in ways)
            best = [(sign, hops) for sign, hops in ways if hops == least]
            steps.append([(1 / len(best), n, sign * hops) for sign, hops in best])
        out = []
        for chosen in itertools.product(*steps):
            path, at = [], list(source)
            for _, n, way in chosen:
                for _ in range(abs(way)):
                    sign = 1 if way > 0 else -1
                    path.append(("+" if way > 0 else "-", n, tuple(at), sign))
                    at[n] = (at[n] + sign) % self.links[n].size
            assert tuple(at) == target
            out.append((math.prod(c[0] for c in chosen), path))
        return out


def groups_at(placement: Placement, groups: Iterable[Sequence[int]]) -> list[list[Place]]:
    """Groups of devices as places, members in the order of their coordinates, outermost dimension first."""
    return [sorted(placement.coordinates(g), key=lambda p: p[::-1]) for g in groups]


def ring_gather(network: Network, groups: Sequence[Sequence[Place]], whole: float, *, around: bool) -> None:
    """Every group passes its members' chunks on, to both sides; where both sides bring the last chunk, by halves."""
    m = len(groups[0])
    chunk = whole / m
    have = [[{k} for k in range(m)] for _ in groups]
    for step in range(1, m):
        messages: list[Message] = []
        news: list[tuple[int, int, int]] = []
        for g, group in enumerate(groups):
            for k in range(m):
                for sign in (1, -1):
                    other, origin = k + sign, k - sign * (step - 1)
                    if around:
                        other, origin = other % m, origin % m
                    if not (0 <= other < m and 0 <= origin < m) or (around and step > m // 2):
                        continue
                    half = around and m % 2 == 0 and step == m // 2
                    messages.append((group[k], group[other], chunk / 2 if half else chunk))
                    assert origin in have[g][k]
                    news.append((g, other, origin))
        for g, k, origin in news:
            have[g][k].add(origin)
        if messages:
            network.round(messages)
    assert all(len(h) == m for group in have for h in group)


def doubling_gather(network: Network, group: Sequence[Place], whole: float) -> None:
    """Bruck's all-gather: what one has goes to partners at distances 1, 2, 4, ..., at last only what lacks."""
    m, distance = len(group), 1
    have = [[k] for k in range(m)]
    while distance < m:
        sent = [h[: m - distance] for h in have]
        network.round((group[k], group[(k - distance) % m], whole / m * len(sent[k])) for k in range(m))
        have = [h + sent[(k + distance) % m] for k, h in enumerate(have)]
        distance *= 2
    assert all(sorted(h) == list(range(m)) for h in have)


def rail_rings(network: Network, nodes: Sequence[Sequence[Place]], whole: float) -> None:
    """As many rings as a node has devices, each with its share of every chunk, entering at another device."""
    m = len(nodes[0])
    for c in range(m):
        ring = [node[(c + k) % m] for node in nodes for k in range(m)]
        g = len(ring)
        for _ in range(g - 1):
            network.round((ring[k], ring[(k + 1) % g], whole / g / m) for k in range(g))


def axes_gather(network: Network, groups: Sequence[Sequence[Place]], whole: float, dims: Sequence[int]) -> None:
    """One share of the data gathered along ``dims``, one after the other; loads only."""
    have = whole / len(groups[0])
    for d in dims:
        lines: dict[object, list[Place]] = {}
        for number, group in enumerate(groups):
            for place in group:
                lines.setdefault((number, *place[:d], *place[d + 1 :]), []).append(place)
        m = len(next(iter(lines.values())))
        ordered = [sorted(line) for line in lines.values()]
        around = network.links[d].around and m * _apart(ordered[0], d) == network.links[d].size
        ring_gather(network, ordered, have * m, around=around)
        have *= m


def _apart(line: Sequence[Place], d: int) -> int:
    return line[1][d] - line[0][d]
