"""The extra cost of another option for one variable, if its neighbours may change too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from shardc.partitioner.strategy.solve.problem import ChoiceProblem, Numbers

__all__ = ["Alternatives"]

#: So many variables follow one that was changed at most.
_FOLLOW = 48
#: So many of a variable's options are tried.
_TRIES = 3
#: What a row may be exceeded by, as a part of it: sums are rounded.
_SLACK = 1e-6


class Alternatives:
    """Alternatives to ``choice``. Each one changes one variable, then those neighbours whose change lowers the cost."""

    def __init__(self, problem: ChoiceProblem, choice: Sequence[int]) -> None:
        self.problem = problem
        self.choice = tuple(choice)
        self.tables: list[list[tuple[int, Numbers]]] = [[] for _ in problem.costs]
        for p in problem.pairs:
            self.tables[p.first].append((p.second, p.table))
            self.tables[p.second].append((p.first, p.table.T))
        self.uses: list[list[tuple[int, int, Numbers]]] = [[] for _ in problem.costs]
        for u in problem.uses:
            self.uses[u.variable].append((u.start, u.stop, u.amounts))
        self.room = problem.limits - problem.usage(choice) if len(problem.limits) else problem.limits

    def more(self, variable: int, options: Sequence[int]) -> float | None:
        """The extra cost of the best of ``options`` for that variable; None if none of the tried ones is allowed. The
        search is not complete: a cheaper choice may exist.
        """
        hopes = self.hopes(variable)[list(options)]
        tried = [options[k] for k in np.argsort(hopes, kind="stable")[:_TRIES]]
        found: list[float] = []
        for k in tried:
            more = self._difference(self._follow(variable, k, careful=False))
            if more is None and len(self.room):
                more = self._difference(self._follow(variable, k, careful=True))
            found += [] if more is None else [more]
        return max(0.0, min(found)) if found else None

    def rank(self, variable: int, groups: Mapping[object, Sequence[int]]) -> list[object]:
        """The keys of ``groups`` of a variable's options, sorted by the lowest possible cost."""
        hopes = self.hopes(variable)
        least = {key: float(hopes[list(options)].min()) for key, options in groups.items()}
        return sorted((k for k, hope in least.items() if np.isfinite(hope)), key=least.__getitem__)

    def hopes(self, variable: int) -> Numbers:
        """The lowest possible cost of each option, as if each neighbour could change independently."""
        found = self.problem.costs[variable].copy()
        near: dict[int, Numbers] = {}
        for u, table in self.tables[variable]:
            near[u] = near[u] + table if u in near else table
        for u, table in near.items():
            found += (table + self._local(u, self.choice.__getitem__, variable)).min(axis=1)
        return found

    def _local(self, variable: int, chosen: Callable[[int], int], without: int = -1) -> Numbers:
        """The costs of a variable's options with the present options of its neighbours."""
        found = self.problem.costs[variable].copy()
        for u, table in self.tables[variable]:
            if u != without:
                found += table[:, chosen(u)]
        return found

    def _follow(self, variable: int, option: int, *, careful: bool) -> dict[int, int]:
        """The changes that follow from this option in its neighbourhood; with ``careful``, only those within the
        memory."""
        new = {variable: option}

        def chosen(v: int) -> int:
            return new.get(v, self.choice[v])

        queue = deque(dict.fromkeys(u for u, _ in self.tables[variable]))
        for _ in range(_FOLLOW):
            if not queue:
                break
            v = queue.popleft()
            costs = self._local(v, chosen)
            best = int(costs.argmin())
            if v == variable or not costs[best] < costs[chosen(v)]:
                continue
            if careful and not self._fits({**new, v: best}):
                continue
            new[v] = best
            queue.extend(u for u, _ in self.tables[v] if u not in queue)
        return new

    def _difference(self, new: Mapping[int, int]) -> float | None:
        """The extra cost of the changes; None if they are not allowed."""
        more = 0.0
        for v, k in new.items():
            costs = self.problem.costs[v]
            more += float(costs[k] - costs[self.choice[v]])
            for u, table in self.tables[v]:
                if u not in new:
                    more += float(table[k, self.choice[u]] - table[self.choice[v], self.choice[u]])
                elif v < u:
                    more += float(table[k, new[u]] - table[self.choice[v], self.choice[u]])
        return more if np.isfinite(more) and self._fits(new) else None

    def _fits(self, new: Mapping[int, int]) -> bool:
        """Whether the changes fit in memory, or increase its use nowhere."""
        if not len(self.room):
            return True
        change = np.zeros(len(self.room) + 1)
        for v, k in new.items():
            for start, stop, amounts in self.uses[v]:
                by = amounts[k] - amounts[self.choice[v]]
                change[start] += by
                change[stop] -= by
        used = np.cumsum(change)[:-1]
        return not (used > np.maximum(self.room, 0) + _SLACK * np.abs(self.problem.limits)).any()
