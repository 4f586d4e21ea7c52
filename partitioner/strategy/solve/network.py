"""A problem during its reduction: variables, tables between neighbours, and the decisions so far.

`CostNetwork` holds one table per pair of neighbours, seen from both ends. A variable that leaves it becomes a
`Decided`: its option as a function of its neighbours' options. Read backwards, these extend a choice of the network to
one of the problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.partitioner.strategy.solve.problem import ChoiceProblem, Numbers

__all__ = ["CostNetwork", "Decided", "ImpossibleChoiceError"]

Indices = NDArray[np.intp]


class ImpossibleChoiceError(Exception):
    """No option of ``variable`` is allowed with any options of its neighbours."""

    def __init__(self, variable: int, neighbours: Sequence[int]) -> None:
        super().__init__(variable)
        self.variables = (variable, *sorted(neighbours))


@dataclass(frozen=True, slots=True)
class Decided:
    """``variable`` takes ``option[positions]``, the positions being those of ``neighbours`` among ``theirs``."""

    variable: int
    neighbours: tuple[int, ...]
    theirs: tuple[Indices, ...]
    option: Indices


class CostNetwork:
    """``options[v]`` are the remaining options of v in the problem, ``costs[v]`` their costs, ``uses[v]`` their memory.

    ``tables[v][u]`` has v's options as its rows; equal tables stay one array while nothing changes them. ``base`` is
    the fixed cost, ``spent`` the fixed use in each row.
    """

    def __init__(self, problem: ChoiceProblem) -> None:
        count = len(problem.costs)
        self.base = 0.0
        self.options: list[Indices] = [np.arange(len(c)) for c in problem.costs]
        self.costs: list[Numbers] = list(problem.costs)
        self.tables: list[dict[int, Numbers]] = [{} for _ in range(count)]
        self.uses: list[dict[tuple[int, int], Numbers]] = [{} for _ in range(count)]
        self.alive = dict.fromkeys(range(count))
        self.decided: list[Decided] = []
        self.limits = problem.limits
        self.change = np.zeros(len(problem.limits) + 1)
        for p in problem.pairs:
            self.join(p.first, p.second, p.table)
        for u in problem.uses:
            self.use(u.variable, (u.start, u.stop), u.amounts)

    @property
    def spent(self) -> Numbers:
        """The memory that decided variables use in each row."""
        return np.cumsum(self.change)[:-1]

    def join(self, v: int, u: int, table: Numbers) -> None:
        """Add ``table`` to the pair costs of v and u."""
        known = self.tables[v].get(u)
        total = table if known is None else known + table
        self.tables[v][u] = total
        self.tables[u][v] = total.T

    def part(self, v: int, u: int) -> None:
        """Forget the table of v and u."""
        del self.tables[v][u], self.tables[u][v]

    def use(self, v: int, rows: tuple[int, int], amounts: Numbers) -> None:
        """Add to the memory that v's options use in ``rows``."""
        if rows[0] < rows[1] and amounts.any():
            known = self.uses[v].get(rows)
            self.uses[v][rows] = amounts if known is None else known + amounts

    def keep(self, v: int, positions: Indices) -> None:
        """Keep only the options of v at ``positions``."""
        if not len(positions):
            raise ImpossibleChoiceError(v, list(self.tables[v]))
        self.options[v] = self.options[v][positions]
        self.costs[v] = self.costs[v][positions]
        for u, table in self.tables[v].items():
            self.tables[v][u] = kept = table[positions]
            self.tables[u][v] = kept.T
        self.uses[v] = {rows: amounts[positions] for rows, amounts in self.uses[v].items()}

    def remove(self, v: int, neighbours: Sequence[int], positions: Indices) -> None:
        """Take v out: its option is at ``positions``, indexed by its neighbours' positions.

        The caller must pass on its costs and tables before; `hand_uses` passes on its memory.
        """
        theirs = tuple(self.options[u] for u in neighbours)
        self.decided.append(Decided(v, tuple(neighbours), theirs, self.options[v][positions]))
        for u in list(self.tables[v]):
            self.part(v, u)
        self.uses[v] = {}
        del self.alive[v]

    def fix(self, v: int, position: int) -> None:
        """Decide v: its costs are added to its neighbours, and its memory to ``spent``."""
        self.base += float(self.costs[v][position])
        for u, table in self.tables[v].items():
            self.costs[u] = self.costs[u] + table[position]
        for (start, stop), amounts in self.uses[v].items():
            self.change[start] += amounts[position]
            self.change[stop] -= amounts[position]
        self.remove(v, (), np.asarray(position))

    def expand(self, chosen: dict[int, int]) -> tuple[int, ...]:
        """The problem's choice from ``chosen``, which has an option of the problem for each variable that is left."""
        found = dict(chosen)
        for step in reversed(self.decided):
            at = tuple(
                int(np.searchsorted(options, found[u])) for u, options in zip(step.neighbours, step.theirs, strict=True)
            )
            found[step.variable] = int(step.option[at])
        return tuple(found[v] for v in range(len(self.options)))
