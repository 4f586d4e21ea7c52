"""Algorithms of collectives, each a law: seconds = start + bytes * per_byte, and what links it keeps busy.

A group meets a machine's links as parts (`GroupExtent`), innermost first. Through a switch partners exchange at
distances 1, 2, 4, ... (Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
2005). Along a dimension of a torus data goes around in both directions; over several dimensions it is cut into as many
shares, each of which takes the dimensions in another order, so that all links work at once (Jain and Sabharwal,
"Optimal Bucket Algorithms for Large MPI Collectives on Torus Interconnects", ICS 2010). Over several levels little
crosses the outer links: hierarchies go level by level; rings that leave each node through every device's own network
port, and trees (Sanders, Speck and Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
2009), keep all levels busy at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from shardc.costs.network.placement import GroupExtent

__all__ = ["Law", "laws"]


@dataclass(frozen=True, slots=True)
class Law:
    """``busy``: seconds per byte that each resource of links works; ``sent``: by links what one device sends of each
    byte."""

    algorithm: str
    start: float
    per_byte: float
    busy: Mapping[str, float]
    sent: Mapping[str, float]

    def scaled(self, factor: float) -> Law:
        """The same with ``factor`` bytes for each."""
        busy = {k: factor * v for k, v in self.busy.items()}
        sent = {k: factor * v for k, v in self.sent.items()}
        return Law(self.algorithm, self.start, self.per_byte * factor, busy, sent)


def laws(opcode: str, parts: Sequence[GroupExtent]) -> tuple[Law, ...]:
    """What could run a collective whose group meets at ``parts``; bytes are those of the local result."""
    g = math.prod(p.members for p in parts)
    if opcode == "all-reduce":
        return tuple(_all_reduce(parts))
    if opcode == "all-gather":
        return tuple(_gather(parts))
    if opcode == "reduce-scatter":
        return tuple(law.scaled(g) for law in _gather(parts))
    if opcode in ("all-to-all", "ragged-all-to-all"):
        return tuple(_exchange(parts))
    return (_broadcast(parts),)


def _all_reduce(parts: Sequence[GroupExtent]) -> Iterator[Law]:
    """Scattered sums are gathered again; through switches, small sums go in half as many steps."""
    for law in _gather(parts):
        yield replace(law.scaled(2), start=2 * law.start)
    if not any(p.links.torus for p in parts):
        yield _trees(parts)
        # Members beyond a power of two hand over to others first, and are told in the end.
        rounds = [(p, _doubling_steps(p) + (p.members & (p.members - 1) != 0)) for p in parts]
        busy = {p.links.name: n / p.links.bandwidth for p, n in rounds}
        start = sum(n * p.links.latency for p, n in rounds)
        yield Law("recursive doubling", start, sum(busy.values()), busy, {p.links.name: n for p, n in rounds})


def _gather(parts: Sequence[GroupExtent]) -> Iterator[Law]:
    """Per byte of the whole that everybody has in the end."""
    yield _hierarchy(parts)
    if len(parts) > 1 and not any(p.links.torus for p in parts):
        yield _rails(parts)


def _hierarchy(parts: Sequence[GroupExtent]) -> Law:
    """One level after the other: a level's devices gather their share of what the inner ones will gather."""
    stages: list[Law] = []
    inside = 1
    for _, level in groupby(parts, key=lambda p: p.links.level):
        met = list(level)
        stage = _torus(met) if met[0].links.torus else _doubling(met[0])
        stages.append(stage.scaled(1 / inside))
        inside *= math.prod(p.members for p in met)
    name = stages[0].algorithm if len(stages) == 1 else "hierarchical"
    return _together(name, stages, sum(s.start for s in stages), sum(s.per_byte for s in stages))


def _doubling(part: GroupExtent) -> Law:
    """Through a switch: each device sends what it has to partners that are ever farther away."""
    share = (part.members - 1) / part.members
    name, seconds = part.links.name, share / part.links.bandwidth
    return Law("halving-doubling", _doubling_steps(part) * part.links.latency, seconds, {name: seconds}, {name: share})


def _torus(parts: Sequence[GroupExtent]) -> Law:
    """Around the dimensions of a torus, all at once."""
    shares = _balance(parts)
    worst = max(share * _cost(p) for p, share in zip(parts, shares, strict=True))
    busy = {r: share * _cost(p) for p, share in zip(parts, shares, strict=True) for r in p.links.resources}
    sent = {p.links.name: share * p.shared for p, share in zip(parts, shares, strict=True)}
    start = sum(_hops(p) * p.links.latency for p in parts)
    one = parts[0]
    name = "multi-axis torus" if len(parts) > 1 else "bidirectional ring" if one.around else "line"
    return Law(name, start, worst, busy, sent)


def _cost(p: GroupExtent) -> float:
    """Seconds for each byte that everybody passes on along this dimension."""
    return p.shared / (p.links.bandwidth * (2 if p.around else 1))


def _hops(p: GroupExtent) -> int:
    """Links between the members that are farthest apart."""
    return p.shared * (p.members // 2 if p.around else p.members - 1)


def _balance(parts: Sequence[GroupExtent]) -> list[float]:
    """Of each byte that is gathered, how much every dimension carries: its cyclic orders, weighted so that all end at
    the same time where they can, else equally or one alone, whatever is soonest."""
    k, whole = len(parts), math.prod(p.members for p in parts)
    rows: list[list[float]] = []
    for first in range(k):
        row, have = [0.0] * k, 1
        for d in (*range(first, k), *range(first)):
            row[d] = (parts[d].members - 1) * have / whole
            have *= parts[d].members
        rows.append(row)
    costs = [_cost(p) for p in parts]
    tries = [[1 / k] * k, *([float(i == j) for j in range(k)] for i in range(k))]
    even = _even([[row[d] * costs[d] for row in rows] for d in range(k)])
    if even is not None:
        tries.insert(0, even)

    def carried(weights: Sequence[float]) -> list[float]:
        return [sum(w * row[d] for w, row in zip(weights, rows, strict=True)) for d in range(k)]

    return min((carried(w) for w in tries), key=lambda c: max(x * y for x, y in zip(c, costs, strict=True)))


def _even(seconds: Sequence[Sequence[float]]) -> list[float] | None:
    """Weights, none negative and one in all, with which every row of ``seconds`` gives the same."""
    k = len(seconds)
    # Unknown are the weights and the common value.
    table = [[*row, -1.0, 0.0] for row in seconds] + [[1.0] * k + [0.0, 1.0]]
    for column in range(k + 1):
        pivot = max(range(column, k + 1), key=lambda r: abs(table[r][column]))
        if abs(table[pivot][column]) < 1e-30:
            return None
        table[column], table[pivot] = table[pivot], table[column]
        for r in range(k + 1):
            if r != column:
                factor = table[r][column] / table[column][column]
                table[r] = [a - factor * b for a, b in zip(table[r], table[column], strict=True)]
    found = [table[n][-1] / table[n][n] for n in range(k)]
    return found if all(w >= -1e-12 for w in found) else None


def _rails(parts: Sequence[GroupExtent]) -> Law:
    """Rings through all devices, as many as a node has, each leaving the nodes by the port of another device."""
    g = math.prod(p.members for p in parts)
    busy: dict[str, float] = {}
    sent: dict[str, float] = {}
    start, inside = 0.0, 1
    for n, p in enumerate(parts):
        last = n == len(parts) - 1
        bytes_ = (g - 1) / g / inside * (1.0 if last else (p.members - 1) / p.members)
        sent[p.links.name], busy[p.links.name] = bytes_, bytes_ / p.links.bandwidth
        inside *= p.members
        start += (p.members - 1) * (g // inside) * p.links.latency
    return Law("ring", start, max(busy.values()), busy, sent)


def _trees(parts: Sequence[GroupExtent]) -> Law:
    """Two trees, each with half of the data: what is inner node in one is leaf in the other, so every device sends
    each byte once on the way up and once on the way down. Nodes hand over by all their ports."""
    inside = 1
    busy: dict[str, float] = {}
    sent: dict[str, float] = {}
    for p in parts:
        sent[p.links.name] = 2 / inside
        busy[p.links.name] = 2 / inside / p.links.bandwidth
        inside *= p.members
    start = 2 * sum(_doubling_steps(p) * p.links.latency for p in parts)
    return Law("tree", start, max(busy.values()), busy, sent)


def _broadcast(parts: Sequence[GroupExtent]) -> Law:
    """From one member to all: along a torus from neighbour to neighbour."""
    busy = {r: p.shared / p.links.bandwidth for p in parts for r in p.links.resources}
    sent = {p.links.name: float(p.shared) for p in parts}
    start = sum((_hops(p) if p.links.torus else _doubling_steps(p)) * p.links.latency for p in parts)
    return Law("tree", start, max(busy.values()), busy, sent)


def _exchange(parts: Sequence[GroupExtent]) -> Iterator[Law]:
    """Each member sends its own piece to each other one, by the outermost links at which the two differ; within a
    torus along one dimension after the other, pieces behind one another."""
    g = math.prod(p.members for p in parts)
    busy: dict[str, float] = {}
    sent: dict[str, float] = {}
    start = 0.0
    inside = 1
    for _, level in groupby(parts, key=lambda p: p.links.level):
        met = list(level)
        within = inside * math.prod(p.members for p in met)
        for p in met:
            if p.links.torus:
                load = within / g * _middle(p)
                busy.update(dict.fromkeys(p.links.resources, load / p.links.bandwidth))
                sent[p.links.name] = within / g * _distance(p)
                start += _hops(p) * p.links.latency
            else:
                sent[p.links.name] = (within - inside) / g
                busy[p.links.name] = sent[p.links.name] / p.links.bandwidth
                start += (within - inside) / inside * p.links.latency
        inside = within
    torus = any(p.links.torus for p in parts)
    yield Law("direct exchange" if torus else "pairwise exchange", start, max(busy.values()), busy, sent)
    if not torus:
        # Bruck et al., "Efficient Algorithms for All-to-All Communications in Multiport Message-Passing Systems", 1997.
        busy = {p.links.name: _doubling_steps(p) / 2 / p.links.bandwidth for p in parts}
        moved = {p.links.name: _doubling_steps(p) / 2 for p in parts}
        yield Law("Bruck", sum(_doubling_steps(p) * p.links.latency for p in parts), sum(busy.values()), busy, moved)


def _middle(p: GroupExtent) -> float:
    """Of what each member has, how much the busiest link takes in one direction."""
    n = p.members
    if p.around:
        # Pieces that have two shortest ways take both by halves.
        return p.shared * (n * n // 4 / (2 * n) if n % 2 == 0 else (n * n - 1) / (8 * n))
    return p.shared * (n // 2) * ((n + 1) // 2) / n


def _distance(p: GroupExtent) -> float:
    """Links that the average byte passes."""
    n = p.members
    return p.shared * (n * n // 4 / n if p.around else (n * n - 1) / (3 * n))


def _doubling_steps(p: GroupExtent) -> int:
    return math.ceil(math.log2(p.members))


def _together(name: str, stages: Iterable[Law], start: float, per_byte: float) -> Law:
    busy: dict[str, float] = {}
    sent: dict[str, float] = {}
    for stage in stages:
        for into, more in ((busy, stage.busy), (sent, stage.sent)):
            for key, value in more.items():
                into[key] = into.get(key, 0.0) + value
    return Law(name, start, per_byte, busy, sent)
