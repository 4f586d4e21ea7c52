"""Variable elimination: the cheapest values of variables with costs between them (Bertelè and Brioschi, 1972).

Variables are eliminated one by one, the one with the smallest joint table first, each into the table of its neighbours:
dynamic programming, exact on whatever is nearly a tree. Where a table would grow beyond a limit nothing is decided:
the caller has other means.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.partitioner.strategy.solve.problem import Numbers

__all__ = ["CostTable", "eliminate_variables"]


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs of ``variables`` together; ``table`` has an axis for each."""

    variables: tuple[int, ...]
    table: Numbers


def eliminate_variables(
    sizes: Mapping[int, int], tables: Sequence[CostTable], largest: int
) -> tuple[float, dict[int, int]] | None:
    """The least sum of ``tables`` and values that have it, the first of equals; None where a joint table grows beyond
    ``largest`` entries."""
    order = _find_order(sizes, tables, largest)
    if order is None:
        return None
    least = 0.0
    of: dict[int, dict[int, CostTable]] = {v: {} for v in sizes}
    for n, t in enumerate(tables):
        for v in t.variables:
            of[v][n] = t
        if not t.variables:
            least += float(t.table)
    steps: list[tuple[tuple[int, ...], NDArray[np.intp]]] = []
    fresh = len(tables)
    for v in order:
        mine = list(of.pop(v).values())
        scope = (v, *sorted({u for t in mine for u in t.variables} - {v}))
        joint = _add_tables([sizes[u] for u in scope], scope, mine)
        steps.append((scope, joint.argmin(axis=0)))
        rest = joint.min(axis=0)
        if len(scope) == 1:
            least += float(rest)
        for u in scope[1:]:
            of[u] = {n: t for n, t in of[u].items() if v not in t.variables}
            of[u][fresh] = CostTable(scope[1:], rest)
        fresh += 1
    found: dict[int, int] = {}
    for scope, at in reversed(steps):
        found[scope[0]] = int(at[tuple(found[u] for u in scope[1:])])
    return least, found


def _find_order(sizes: Mapping[int, int], tables: Sequence[CostTable], largest: int) -> list[int] | None:
    """Variables by the size of their joint tables as they are when it is their turn; None: one is too large."""
    near: dict[int, set[int]] = {v: {v} for v in sizes}
    for t in tables:
        for v in t.variables:
            near[v].update(t.variables)
    extent = {v: _extent(sizes, around) for v, around in near.items()}
    heap = [(e, v) for v, e in extent.items()]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        e, v = heapq.heappop(heap)
        if v not in near or e != extent[v]:
            continue
        if e > largest:
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


def _add_tables(shape: Sequence[int], scope: tuple[int, ...], tables: Sequence[CostTable]) -> Numbers:
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
