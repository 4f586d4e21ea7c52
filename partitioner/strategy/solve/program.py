"""The linear program of a network: a column per option and per pair of options, the local polytope, rows of memory.

It contains only options and pairs within a surplus. Its costs include messages, so that the basis of slacks is as good
as the dual bound; they do not include multipliers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.partitioner.strategy.solve.dual import DualBound
from shardc.partitioner.strategy.solve.problem import Numbers
from shardc.partitioner.strategy.solve.surplus import Near, Surplus

__all__ = ["LinearProgram"]

Indices = NDArray[np.intp]


class _Entries:
    """Entries of the constraints, gathered row by row."""

    def __init__(self) -> None:
        self.rows: list[Indices] = []
        self.columns: list[Indices] = []
        self.values: list[Numbers] = []
        self.low: list[Numbers] = []
        self.high: list[Numbers] = []
        self.count = 0

    def add(self, rows: Indices, columns: Indices, value: Numbers | float) -> None:
        self.rows.append(rows)
        self.columns.append(columns)
        self.values.append(np.broadcast_to(np.asarray(value, float), rows.shape))

    def close(self, count: int, low: Numbers | float, high: Numbers | float) -> None:
        self.low.append(np.broadcast_to(np.asarray(low, float), (count,)))
        self.high.append(np.broadcast_to(np.asarray(high, float), (count,)))
        self.count += count


class LinearProgram:
    """Options and pairs with a surplus of at most ``most``.

    The binaries of variable v are columns from ``first[v]``, one per option of ``options[v]``; those of its sums over
    the pairs with u rows from ``sums[v, u]``. ``column`` has the column of each of the network's options, -1: none.
    """

    def __init__(self, dual: DualBound, surplus: Surplus, most: float) -> None:
        self.dual, self.rows = dual, dual.rows
        near = surplus.within(most)
        self.options = near.options
        self.first: dict[int, int] = {}
        self.sums: dict[tuple[int, int], int] = {}
        self.column = np.full(sum(len(s) for s in surplus.options.values()), -1)
        self._entries = _Entries()
        costs: list[Numbers] = []
        self.binaries = 0
        for v, kept in self.options.items():
            self.first[v] = self.binaries
            self.column[self.rows.offsets[v] + kept] = self.binaries + np.arange(len(kept))
            self.binaries += len(kept)
            costs.append((dual.network.costs[v] + sum(dual.messages[v].values()))[kept])
        variables = np.repeat(np.arange(len(costs)), [len(c) for c in costs])
        self._entries.add(variables, np.arange(self.binaries), 1.0)
        self._entries.close(len(costs), 1.0, 1.0)
        self._add_pairs(costs, near)
        self.objective = np.concatenate([np.zeros(0), *costs])
        #: HiGHS's tolerances are for numbers such as these.
        self.scale = 1e3 / max(float(np.abs(self.objective).max(initial=0.0)), 1e-300)

    def _add_pairs(self, costs: list[Numbers], near: Near) -> None:
        """A column per pair of options, whose sums over either side are the other's binaries."""
        entries, size = self._entries, self.binaries
        for (v, u), allowed in near.pairs.items():
            i, j = np.nonzero(allowed)
            costs.append(self.dual.rest(v, u)[self.options[v][i], self.options[u][j]])
            columns = np.arange(size, size + len(i))
            size += len(i)
            for (w, x), index in (((v, u), i), ((u, v), j)):
                count = len(self.options[w])
                self.sums[w, x] = entries.count
                entries.add(entries.count + index, columns, 1.0)
                entries.add(entries.count + np.arange(count), self.first[w] + np.arange(count), -1.0)
                entries.close(count, 0.0, 0.0)

    @property
    def impossible(self) -> bool:
        """Whether a variable has no option left."""
        return any(not len(kept) for kept in self.options.values())

    def memory_row(self, row: int) -> tuple[Indices, Numbers, float, float]:
        """Columns and their amounts in a row of memory, its limit, and the scale by which all were divided."""
        slots, amounts = self.rows.entries(row)
        there = self.column[slots] >= 0
        used = np.bincount(self.column[slots[there]], amounts[there], 1)
        columns = np.flatnonzero(used)
        scale = max(float(self.rows.limits[row]), 1.0)
        return columns, used[columns] / scale, float(self.rows.limits[row]) / scale, scale

    def model(self, highspy: Any, *, whole: bool) -> Any:
        """HiGHS's own form of the program without rows of memory; ``whole``: binaries are whole numbers."""
        entries = self._entries
        rows, columns = np.concatenate(entries.rows), np.concatenate(entries.columns)
        order = np.lexsort((rows, columns))
        count = len(self.objective)
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = count, entries.count
        model.col_cost_, model.offset_ = self.objective * self.scale, self.dual.network.base * self.scale
        model.col_lower_, model.col_upper_ = np.zeros(count), np.ones(count)
        model.row_lower_, model.row_upper_ = np.concatenate(entries.low), np.concatenate(entries.high)
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = np.searchsorted(columns[order], np.arange(count + 1)).astype(np.int32)
        model.a_matrix_.index_ = rows[order].astype(np.int32)
        model.a_matrix_.value_ = np.concatenate(entries.values)[order]
        if whole:
            kinds = [highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger]
            model.integrality_ = [kinds[k < self.binaries] for k in range(count)]
        return model
