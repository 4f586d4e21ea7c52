"""Variable elimination: the cheapest values of variables with costs between them (Bertelè and Brioschi, 1972).

Variables are eliminated one by one, the one with the smallest joint table first, each into the table of its neighbours:
dynamic programming, exact on whatever is nearly a tree. If joint tables would exceed a limit of entries, nothing is
decided, and the caller uses another method. Large tables are never in memory as a whole.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shardc.partitioner.strategy.solve.problem import Numbers

__all__ = ["CostTable", "add_tables", "can_eliminate", "eliminate_variables", "find_order"]

#: Joint tables of more entries are gone through in parts, which stay in the cache.
_PART = 1 << 16


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs of ``variables`` together; ``table`` has an axis for each."""

    variables: tuple[int, ...]
    table: Numbers


def can_eliminate(sizes: Mapping[int, int], scopes: Iterable[Sequence[int]], together: int) -> bool:
    """Whether all joint tables of tables with these variables have at most ``together`` entries in total."""
    return find_order(sizes, scopes, together, together) is not None


def eliminate_variables(
    sizes: Mapping[int, int], tables: Sequence[CostTable], largest: int, most: float = math.inf
) -> tuple[float, dict[int, int]] | None:
    """The least sum of ``tables`` and values that have it, the first of equals; None where a joint table grows beyond
    ``largest`` entries.

    With ``most``, tables must have no costs below 0; a least sum beyond it may be returned as inf.
    """
    order = find_order(sizes, [t.variables for t in tables], largest)
    if order is None:
        return None
    least = 0.0
    of: dict[int, dict[int, CostTable]] = {v: {} for v in sizes}
    for n, t in enumerate(tables):
        for v in t.variables:
            of[v][n] = t
        if not t.variables:
            least += float(t.table)
    steps: list[tuple[int, list[CostTable]]] = []
    fresh = len(tables)
    for v in order:
        mine = list(of.pop(v).values())
        scope = (v, *sorted({u for t in mine for u in t.variables} - {v}))
        rest = _least([sizes[u] for u in scope], scope, mine, most)
        steps.append((v, mine))
        if len(scope) == 1:
            least += float(rest)
        for u in scope[1:]:
            of[u] = {n: t for n, t in of[u].items() if v not in t.variables}
            of[u][fresh] = CostTable(scope[1:], rest)
        fresh += 1
    found: dict[int, int] = {}
    for v, mine in reversed(steps):
        total = np.zeros(sizes[v])
        for t in mine:
            total += t.table[tuple(found.get(u, slice(None)) for u in t.variables)]
        found[v] = int(total.argmin())
    return least, found


def _least(shape: Sequence[int], scope: tuple[int, ...], tables: Sequence[CostTable], most: float) -> Numbers:
    """The least sum of ``tables`` over the first variable of ``scope``, for all values of the others; parts in which
    everything is beyond ``most`` are skipped."""
    if math.prod(shape) <= _PART or len(scope) == 1:
        least: Numbers = add_tables(shape, scope, tables).min(axis=0)
        return least
    least = np.full(shape[1:], np.inf)
    u, rest = scope[1], (scope[0], *scope[2:])
    for k in range(shape[1]):
        there = [_at(t, u, k) for t in tables]
        if most == math.inf or sum(float(t.table.min()) for t in there) <= most:
            least[k] = _least((shape[0], *shape[2:]), rest, there, most)
    return least


def _at(table: CostTable, variable: int, value: int) -> CostTable:
    """``table`` where ``variable`` has a value."""
    if variable not in table.variables:
        return table
    there = tuple(value if v == variable else slice(None) for v in table.variables)
    return CostTable(tuple(v for v in table.variables if v != variable), np.asarray(table.table[there]))


def find_order(
    sizes: Mapping[int, int], scopes: Iterable[Sequence[int]], largest: int, together: float = math.inf
) -> list[int] | None:
    """Variables by the size of their joint tables as they are when it is their turn; None: one is too large, or all
    are ``together``."""
    near: dict[int, set[int]] = {v: {v} for v in sizes}
    for scope in scopes:
        for v in scope:
            near[v].update(scope)
    extent = {v: _extent(sizes, around) for v, around in near.items()}
    heap = [(e, v) for v, e in extent.items()]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        e, v = heapq.heappop(heap)
        if v not in near or e != extent[v]:
            continue
        together -= e
        if e > largest or together < 0:
            return None
        others = near.pop(v) - {v}
        order.append(v)
        for u in others:
            near[u] |= others
            near[u].discard(v)
            now = _extent(sizes, near[u])
            if now != extent[u]:
                extent[u] = now
                heapq.heappush(heap, (now, u))
    return order


def _extent(sizes: Mapping[int, int], variables: set[int]) -> int:
    return math.prod(sizes[v] for v in variables)


def add_tables(shape: Sequence[int], scope: tuple[int, ...], tables: Sequence[CostTable]) -> Numbers:
    """The sum of ``tables`` over ``scope``."""
    axis = {v: n for n, v in enumerate(scope)}
    total = np.zeros(shape)
    for t in tables:
        order = sorted(range(len(t.variables)), key=lambda n: axis[t.variables[n]])
        aligned = [1] * len(scope)
        for n in order:
            aligned[axis[t.variables[n]]] = shape[axis[t.variables[n]]]
        total += t.table.transpose(order).reshape(aligned)
    return total
