"""Improves a choice part by part: some neighbouring variables are chosen again, exactly, while all others stay fixed. A
part surrounds two variables that share memory, so that one can use the memory that the other saves. Parts overlap and
start at different variables, so one part can change what another cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from shardc.partitioner.strategy.solve.network import CostNetwork
from shardc.partitioner.strategy.solve.problem import ChoiceProblem, ChosenOptions, MemoryUse, Numbers, PairCost
from shardc.partitioner.strategy.solve.rows import MemoryRows
from shardc.partitioner.strategy.solve.search import Incumbent, measure

__all__ = ["improve_by_parts"]

#: How many times smaller the first parts are than the largest.
_SMALLEST = 8

_Solve = Callable[[ChoiceProblem, Sequence[int]], ChosenOptions]


def improve_by_parts(
    network: CostNetwork,
    rows: MemoryRows,
    best: Incumbent,
    seed: int,
    work: int,
    columns: int,
    solve: _Solve,
    is_spent: Callable[[], bool] = lambda: False,
) -> None:
    """Improve ``best``, which fits, by parts of at most ``columns`` columns (options and pairs) and ``work`` in total.

    Parts stay small as long as that helps; ``seed`` decides where they start. ``solve`` solves a part's problem from a
    given choice. The search ends early if its work ``is_spent``.
    """
    search = _PartSearch(network, rows, dict(best.positions))
    order, most = list(network.alive), columns // _SMALLEST
    number = 0
    while work > 0 and most <= columns:
        rng = np.random.default_rng((seed, number))
        covered: set[int] = set()
        gained = whole = False
        for centre in rng.permutation(order).tolist():
            if work <= 0 or whole:
                break
            if centre not in covered:
                free, size = search.grow(centre, most, rng)
                gained |= search.improve(free, solve)
                covered.update(free)
                whole = len(free) == len(order)
                work = 0 if is_spent() else work - size
        best.offer(search.found, *measure(network, rows, search.found))
        if whole:
            return
        number += 1
        if not gained:
            most *= 2


@dataclass(slots=True)
class _PartSearch:
    """The positions ``found`` so far, with the memory ``used`` in each row; ``uses`` has the uses of each variable."""

    network: CostNetwork
    rows: MemoryRows
    found: dict[int, int]
    used: Numbers = field(init=False)
    uses: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.used = self.rows.used(self.found)
        for k, v in enumerate(self.rows.variables.tolist()):
            self.uses.setdefault(v, []).append(k)

    def grow(self, centre: int, most: int, rng: np.random.Generator) -> tuple[list[int], int]:
        """Variables around ``centre`` and a partner, the nearest first, within a limit of columns; also returns their
        columns."""
        n = self.network
        found: dict[int, None] = {}
        size = 0
        work = [centre, self._find_partner(centre, rng)]
        for v in work:
            if v not in found:
                more = len(n.costs[v]) + sum(t.size for w, t in n.tables[v].items() if w in found)
                if not found or size + more <= most:
                    size += more
                    found[v] = None
                    work += rng.permutation(list(n.tables[v])).tolist()
        return sorted(found), size

    def _find_partner(self, centre: int, rng: np.random.Generator) -> int:
        """Another variable that uses memory in the row of ``centre`` with the least room; ``centre`` itself if there is
        none."""
        rows = self.rows
        spans = [slice(rows.starts[k], rows.stops[k]) for k in self.uses.get(centre, ())]
        if not spans:
            return centre
        left = rows.limits - self.used
        row = min((s.start + int(left[s].argmin()) for s in spans), key=lambda r: float(left[r]))
        live = np.unique(rows.variables[(rows.starts <= row) & (row < rows.stops)])
        return int(rng.choice(live))

    def improve(self, free: Sequence[int], solve: _Solve) -> bool:
        """Choose the variables ``free`` again; returns whether the cost fell."""
        present = [self.found[v] for v in free]
        problem = self._pose(free)
        answer = solve(problem, present)
        if answer.choice is None or answer.excess is not None or answer.cost >= problem.cost(present):
            return False
        for v, k in zip(free, answer.choice, strict=True):
            self._count(v, -1)
            self.found[v] = k
            self._count(v, 1)
        return True

    def _pose(self, free: Sequence[int]) -> ChoiceProblem:
        """The problem of some variables while all others are fixed."""
        n, rows = self.network, self.rows
        place = {v: k for k, v in enumerate(free)}
        costs: list[Numbers] = []
        pairs: list[PairCost] = []
        uses: list[MemoryUse] = []
        for v, k in place.items():
            cost = n.costs[v]
            for u, table in n.tables[v].items():
                if u not in place:
                    cost = cost + table[:, self.found[u]]
                elif v < u:
                    pairs.append(PairCost(k, place[u], table))
            costs.append(cost)
            for at in self.uses.get(v, ()):
                begin = rows.begins[at]
                amounts = rows.amounts[begin : begin + len(cost)]
                uses.append(MemoryUse(k, int(rows.starts[at]), int(rows.stops[at]), amounts))
        problem = ChoiceProblem(tuple(costs), tuple(pairs), rows.limits, tuple(uses))
        others = self.used - problem.usage([self.found[v] for v in free])
        return ChoiceProblem(problem.costs, problem.pairs, rows.limits - others, problem.uses)

    def _count(self, v: int, sign: int) -> None:
        rows, k = self.rows, self.found[v]
        for at in self.uses.get(v, ()):
            self.used[rows.starts[at] : rows.stops[at]] += sign * rows.amounts[rows.begins[at] + k]
