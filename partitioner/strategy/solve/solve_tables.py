"""Choices with cost tables over any number of variables: eliminated if that is small, else solved as pairs. A table of
three or more variables becomes an extra variable, whose options are its distinct entries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardc.partitioner.strategy.solve.eliminate import CostTable, eliminate_variables
from shardc.partitioner.strategy.solve.problem import ChoiceProblem, Numbers, PairCost
from shardc.partitioner.strategy.solve.solve import SolveLimits, solve_choice

__all__ = ["solve_tables"]


def solve_tables(
    sizes: Sequence[int], tables: Sequence[CostTable], start: Sequence[int], limits: SolveLimits
) -> list[int]:
    """Values, one of ``sizes[v]`` for each variable, with the least sum of ``tables`` that was found. It is optimal if
    no joint table grows beyond ``limits.table``, and never worse than ``start``.
    """
    exact = eliminate_variables(dict(enumerate(sizes)), tables, limits.table)
    if exact is not None:
        return [exact[1][v] for v in range(len(sizes))]
    costs: list[Numbers] = [np.zeros(n) for n in sizes]
    pairs: list[PairCost] = []
    begin = list(start)
    for t in tables:
        if len(t.variables) == 1:
            costs[t.variables[0]] = costs[t.variables[0]] + t.table
        elif len(t.variables) == 2:
            pairs.append(PairCost(*t.variables, t.table))
        elif t.variables:
            small, kinds = _find_kinds(t.table)
            entry = len(costs)
            costs.append(small.ravel())
            taken = [kind[begin[v]] for v, kind in zip(t.variables, kinds, strict=True)]
            begin.append(int(np.ravel_multi_index(taken, small.shape)))
            for v, kind, at in zip(t.variables, kinds, np.indices(small.shape), strict=True):
                pairs.append(PairCost(v, entry, np.where(kind[:, None] == at.reshape(1, -1), 0.0, np.inf)))
    answer = solve_choice(ChoiceProblem(tuple(costs), tuple(pairs)), begin, limits)
    return list((answer.choice or begin)[: len(sizes)])


def _find_kinds(table: Numbers) -> tuple[Numbers, list[np.ndarray[tuple[int], np.dtype[np.intp]]]]:
    """``table`` without equal slices, and where each slice is in it."""
    kinds = []
    for axis in range(table.ndim):
        _, first, kind = np.unique(table, axis=axis, return_index=True, return_inverse=True)
        table = table.take(first, axis)
        kinds.append(kind.reshape(-1))
    return table, kinds
