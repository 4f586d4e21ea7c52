"""The cheapest way between layouts by brute force: Dijkstra's algorithm over all layouts and all moves.

Nothing here is guided by the target, as the search under test is; so it is slow and for small meshes only.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations, count, permutations, product

from shardc.partitioner.emit.layout import Atoms, AxisLayout, AxisTable
from shardc.partitioner.reshard.moves import (
    AllReduce,
    AllToAll,
    Gather,
    MakePartial,
    Move,
    PadPart,
    Permute,
    ReduceScatter,
    ReshardStep,
    Slice,
)
from shardc.partitioner.reshard.price import Price

__all__ = ["Optimum", "all_layouts"]


def all_layouts(table: AxisTable, rank: int) -> tuple[AxisLayout, ...]:
    """Every way to put atoms on dimensions, in every order, or to leave them partial or unused."""
    found: dict[AxisLayout, None] = {}
    for places in product(range(rank + 2), repeat=table.count):
        held = [[a for a in range(table.count) if places[a] == d] for d in range(rank + 2)]
        for dims in product(*(permutations(atoms) for atoms in held[:rank])):
            found[table.layout(dims, held[rank])] = None
    return tuple(found)


class Optimum:
    """Least costs of an array of ``dims`` (4 bytes an element) between the layouts of a mesh."""

    def __init__(self, table: AxisTable, dims: tuple[int, ...], price: Price) -> None:
        self.table = table
        self.dims = dims
        self.price = price
        self.layouts = all_layouts(table, len(dims))
        self.size = {x: math.prod(table.local_dims(x, dims)) for x in self.layouts}
        self.edges = cache(self._edges)

    def costs(self, source: AxisLayout, limit: int) -> Mapping[AxisLayout, tuple[float, int]]:
        """(cost, collectives) from ``source`` to all layouts that paths without larger shards than ``limit`` reach."""
        best: dict[AxisLayout, tuple[float, int]] = {source: (0.0, 0)}
        heap: list[tuple[float, int, int, AxisLayout]] = [(0.0, 0, 0, source)]
        done: set[AxisLayout] = set()
        ticket = count(1)
        while heap:
            cost, steps, _, state = heapq.heappop(heap)
            if state in done:
                continue
            done.add(state)
            for (more, collectives), after in self.edges(state):
                total = (round(cost + more, 12), steps + collectives)
                if self.size[after] <= limit and (after not in best or total < best[after]):
                    best[after] = total
                    heapq.heappush(heap, (*total, next(ticket), after))
        return best

    def _edges(self, state: AxisLayout) -> list[tuple[tuple[float, int], AxisLayout]]:
        return [(self.price.step(self.dims, 4, ReshardStep(state, move, x)), x) for move, x in self._moves(state)]

    def _moves(self, state: AxisLayout) -> Iterator[tuple[Move, AxisLayout]]:
        table, partial = self.table, state.unreduced
        free = [a for a in range(table.count) if a not in state.used and a not in partial]
        for d, atoms in enumerate(state.dims):
            for start in range(len(atoms)):
                rest, take = atoms[:start], atoms[start:]
                yield Gather(d, take), _with(table, state, {d: rest})
                yield PadPart(d, take, "sum"), _with(table, state, {d: rest}, (*partial, *take))
            for run in _orders(free):
                yield Slice(d, run), _with(table, state, {d: atoms + run})
            for run in _orders(partial):
                rest = tuple(a for a in partial if a not in run)
                yield ReduceScatter(d, run), _with(table, state, {d: atoms + run}, rest)
        yield from self._exchanges(state)
        for some in _subsets(partial):
            yield AllReduce(some), _with(table, state, {}, tuple(a for a in partial if a not in some))
        for some in _subsets(free):
            yield MakePartial(some, "sum"), table.layout(state.dims, (*partial, *some))
        extents = [table.extent(atoms) for atoms in state.dims]
        for other in self.layouts:
            same = other.unreduced == partial and [table.extent(atoms) for atoms in other.dims] == extents
            if same and other is not state:
                yield Permute(), other

    def _exchanges(self, state: AxisLayout) -> Iterator[tuple[Move, AxisLayout]]:
        rank = len(state.dims)
        parts = [
            (s, t, atoms[start:])
            for s, atoms in enumerate(state.dims)
            for start in range(len(atoms))
            for t in range(rank)
            if s != t
        ]
        for s, t, take in parts:
            dims = {s: state.dims[s][: -len(take)], t: state.dims[t] + take}
            yield AllToAll(((s, t, take),)), _with(self.table, state, dims)
        for (s, t, a), (u, v, b) in permutations(parts, 2):
            if s != u and not {s, u} & {t, v}:
                dims = {s: state.dims[s][: -len(a)], u: state.dims[u][: -len(b)]}
                dims |= {t: state.dims[t] + a + b} if t == v else {t: state.dims[t] + a, v: state.dims[v] + b}
                yield AllToAll(((s, t, a), (u, v, b))), _with(self.table, state, dims)


def _orders(atoms: Atoms | list[int]) -> Iterator[Atoms]:
    for n in range(1, len(atoms) + 1):
        yield from permutations(atoms, n)


def _subsets(atoms: Atoms | list[int]) -> Iterator[Atoms]:
    for n in range(1, len(atoms) + 1):
        yield from combinations(atoms, n)


def _with(table: AxisTable, state: AxisLayout, dims: dict[int, Atoms], partial: Atoms | None = None) -> AxisLayout:
    return table.layout(
        (dims.get(d, atoms) for d, atoms in enumerate(state.dims)),
        state.unreduced if partial is None else partial,
    )
