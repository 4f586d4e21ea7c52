"""Equal decisions, such as those of equal layers, are made once.

Two variables are equal if their costs are equal and their pair costs with equal neighbours are equal, up to a number of
steps (colour refinement: Weisfeiler and Leman, 1968). The merged problem has one variable for each class. Each of its
choices is a choice of the whole problem, with the same cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.partitioner.strategy.solve.problem import ChoiceProblem, MemoryUse, PairCost

__all__ = ["MergedProblem", "merge_equal"]

#: How far equal variables have equal surroundings. Layers begin to differ only so near to a network's ends.
_STEPS = 6


@dataclass(frozen=True, slots=True)
class MergedProblem:
    """``problem`` with a variable per class; ``classes`` has the class of each of the whole problem's."""

    problem: ChoiceProblem
    classes: tuple[int, ...]

    def expand(self, choice: Sequence[int]) -> tuple[int, ...]:
        """The choice of the whole problem."""
        return tuple(choice[c] for c in self.classes)

    def collapse(self, choice: Sequence[int]) -> tuple[int, ...]:
        """The choice of the merged problem that takes, for each class, what its first variable has."""
        first: dict[int, int] = {}
        for c, k in zip(self.classes, choice, strict=True):
            first.setdefault(c, k)
        return tuple(first[c] for c in range(len(first)))


def merge_equal(whole: ChoiceProblem) -> MergedProblem:
    """``whole`` with one variable for each class of equal variables."""
    classes = _classes(whole)
    count = max(classes, default=-1) + 1
    costs: list[NDArray[np.float64]] = [np.zeros(0)] * count
    for cost, c in zip(whole.costs, classes, strict=True):
        costs[c] = costs[c] + cost if len(costs[c]) else cost.copy()
    times: dict[tuple[int, int, int], int] = {}
    tables = {id(p.table): p.table for p in whole.pairs}
    for p in whole.pairs:
        key = (classes[p.first], classes[p.second], id(p.table))
        times[key] = times.get(key, 0) + 1
    pairs: list[PairCost] = []
    for (u, v, table), n in times.items():
        if u == v:
            costs[u] += n * np.diagonal(tables[table])
        else:
            pairs.append(PairCost(u, v, tables[table] if n == 1 else n * tables[table]))
    uses = tuple(MemoryUse(classes[u.variable], u.start, u.stop, u.amounts) for u in whole.uses)
    return MergedProblem(ChoiceProblem(tuple(costs), tuple(pairs), whole.limits, uses), classes)


def _classes(problem: ChoiceProblem) -> tuple[int, ...]:
    """A number per variable, the same for equal ones, in the order of the first ones."""
    near: list[list[tuple[int, int, int]]] = [[] for _ in problem.costs]
    for p in problem.pairs:
        near[p.first].append((0, id(p.table), p.second))
        near[p.second].append((1, id(p.table), p.first))
    colours = _number([c.tobytes() for c in problem.costs])
    for _ in range(_STEPS):
        signs = [
            (colours[v], tuple(sorted((side, table, colours[u]) for side, table, u in near[v])))
            for v in range(len(colours))
        ]
        finer = _number(signs)
        if max(finer, default=0) == max(colours, default=0):
            break
        colours = finer
    return tuple(colours)


def _number(signs: Sequence[object]) -> list[int]:
    known: dict[object, int] = {}
    return [known.setdefault(s, len(known)) for s in signs]
