"""Marginals: the least sum of tables with each value of each variable, by elimination in both directions. Forward
elimination passes on the least cost of the eliminated variables. On the way back, each variable gets the least cost of
all others. So one pass in each direction gives the answer for all values of all variables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shardc.partitioner.strategy.solve.eliminate import CostTable, add_tables, find_order
from shardc.partitioner.strategy.solve.problem import Numbers

__all__ = ["find_marginals"]

#: No joint table has more entries: each is held whole.
_LARGEST = 1 << 24


def find_marginals(sizes: Mapping[int, int], tables: Sequence[CostTable], together: int) -> dict[int, Numbers] | None:
    """The least sum of ``tables`` with each value of each variable: an array of ``sizes[v]`` numbers for variable v.

    None where joint tables have more than so many entries ``together``. Example: two variables with costs [1, 2] and
    [5, 3] that have no table in common have the marginals [4, 5] and [6, 4].
    """
    order = find_order(sizes, [t.variables for t in tables], min(_LARGEST, together), together)
    if order is None:
        return None
    place = {v: k for k, v in enumerate(order)}
    tree = _EliminationTree(sizes, order, {v: [] for v in order})
    constant = math.fsum(float(t.table) for t in tables if not t.variables)
    for t in tables:
        if t.variables:
            tree.tables[min(t.variables, key=place.__getitem__)].append(t)
    for v in order:
        tree.hand_on(v, place)
    least = {v: float(tree.handed[v]) for v in order if len(tree.scopes[v]) == 1}
    outside = {v: np.asarray(constant + math.fsum(m for u, m in least.items() if u != v)) for v in least}
    return {v: tree.hand_back(v, outside) for v in reversed(order)}


@dataclass(frozen=True, slots=True)
class _EliminationTree:
    """``scopes[v]`` are v and the neighbours that it has when it is eliminated. ``tables[v]`` are summed then, together
    with the tables that its ``children`` ``handed`` on."""

    sizes: Mapping[int, int]
    order: Sequence[int]
    tables: dict[int, list[CostTable]]
    scopes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    children: dict[int, list[int]] = field(default_factory=dict)
    handed: dict[int, Numbers] = field(default_factory=dict)

    def hand_on(self, v: int, place: Mapping[int, int]) -> None:
        """Eliminate v; its parent is the variable of its scope that comes next."""
        mine = self.children.setdefault(v, [])
        others = {u for t in self.tables[v] for u in t.variables} | {u for c in mine for u in self.scopes[c][1:]}
        self.scopes[v] = (v, *sorted(others - {v}))
        self.handed[v] = self._join(v, []).min(axis=0)
        if len(self.scopes[v]) > 1:
            self.children.setdefault(min(self.scopes[v][1:], key=place.__getitem__), []).append(v)

    def hand_back(self, v: int, outside: dict[int, Numbers]) -> Numbers:
        """The marginals of v; its children get the least cost of everything ``outside`` of them."""
        scope = self.scopes[v]
        joint = self._join(v, [CostTable(scope[1:], outside.pop(v))])
        for c in self.children[v]:
            theirs = self.scopes[c][1:]
            kept = [u for u in scope if u in theirs]
            least = joint.min(axis=tuple(n for n, u in enumerate(scope) if u not in theirs))
            total = least.transpose([kept.index(u) for u in theirs])
            with np.errstate(invalid="ignore"):
                outside[c] = np.where(np.isfinite(total), total - self.handed[c], np.inf)
        marginals: Numbers = joint.min(axis=tuple(range(1, joint.ndim)))
        return marginals

    def _join(self, v: int, more: Sequence[CostTable]) -> Numbers:
        """The sum of all tables over the scope of v."""
        scope = self.scopes[v]
        theirs = [CostTable(self.scopes[c][1:], self.handed[c]) for c in self.children[v]]
        return add_tables([self.sizes[u] for u in scope], scope, [*self.tables[v], *theirs, *more])
