"""Rows of memory of a reduced network: the rows that matter, and the memory that a choice uses in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.partitioner.strategy.solve.network import CostNetwork
from shardc.partitioner.strategy.solve.problem import Numbers

__all__ = ["MemoryRows"]

Indices = NDArray[np.intp]

#: So many rows that are exceeded come into a program at a time.
_AT_A_TIME = 20


@dataclass(frozen=True, slots=True)
class MemoryRows:
    """The rows of a network with undecided uses, without rows that another one contains. ``rows`` are their indices in
    the problem, ``limits`` the memory left in each. Use k is of ``variables[k]`` in ``starts[k] <= row < stops[k]``,
    counted in ``rows``; its amounts lie from ``begins[k]`` in ``amounts``, one per option, and ``slots`` has where each
    of these options is among all of the network's (``offsets``: per variable).
    """

    rows: Indices
    limits: Numbers
    variables: Indices
    starts: Indices
    stops: Indices
    amounts: Numbers
    begins: Indices
    slots: Indices
    offsets: dict[int, int]

    @classmethod
    def of(cls, network: CostNetwork) -> MemoryRows:
        """The rows that matter of ``network``, which has dropped those that no choice exceeds."""
        uses = [(v, *rows, amounts) for v in network.alive for rows, amounts in network.uses[v].items()]
        left = network.limits - network.spent
        starts = np.array([u[1] for u in uses], np.intp)
        stops = np.array([u[2] for u in uses], np.intp)
        rows = _find_maximal(starts, stops, left)
        at = np.concatenate([[0], np.cumsum(np.isin(np.arange(len(left)), rows))]).astype(np.intp)
        kept = [k for k in range(len(uses)) if at[stops[k]] > at[starts[k]]]
        offsets: dict[int, int] = {}
        size = 0
        for v in network.alive:
            offsets[v] = size
            size += len(network.costs[v])
        sizes = [len(uses[k][3]) for k in kept]
        begins = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)[:-1]
        slots = [np.arange(offsets[uses[k][0]], offsets[uses[k][0]] + len(uses[k][3])) for k in kept]
        return cls(
            rows,
            left[rows],
            np.array([uses[k][0] for k in kept], np.intp),
            at[starts[kept]],
            at[stops[kept]],
            np.concatenate([np.zeros(0), *(uses[k][3] for k in kept)]),
            begins,
            np.concatenate([np.zeros(0, np.intp), *slots]),
            offsets,
        )

    def used(self, positions: Mapping[int, int]) -> Numbers:
        """The memory that the options at ``positions`` use in each row."""
        if not len(self.variables):
            return np.zeros(len(self.rows))
        at = np.zeros(int(self.variables.max()) + 1, np.intp)
        for v, k in positions.items():
            if v < len(at):
                at[v] = k
        amounts = self.amounts[self.begins + at[self.variables]]
        count = len(self.rows) + 1
        change = np.bincount(self.starts, amounts, count) - np.bincount(self.stops, amounts, count)
        return np.cumsum(change)[:-1]

    def used_by(self, weights: Numbers) -> Numbers:
        """The memory used in each row by the given share of each of the network's options."""
        sizes = np.diff(np.append(self.begins, len(self.amounts)))
        use = np.repeat(np.arange(len(sizes)), sizes)
        amounts = np.bincount(use, weights[self.slots] * self.amounts, len(sizes))
        count = len(self.rows) + 1
        change = np.bincount(self.starts, amounts, count) - np.bincount(self.stops, amounts, count)
        return np.cumsum(change)[:-1]

    def find_exceeded(self, used: Numbers, tolerance: float = 0.0, known: Collection[int] = ()) -> list[int]:
        """The rows that ``used`` exceeds most, by more than ``tolerance`` of their limits, without those ``known``."""
        over = used - self.limits
        over[list(known)] = 0.0
        most = np.argsort(-over, kind="stable")[:_AT_A_TIME].tolist()
        return [k for k in most if over[k] > tolerance * self.limits[k]]

    def price(self, multipliers: Numbers) -> Numbers:
        """The price of the memory of each of the network's options, in the order of ``offsets``."""
        sums = np.concatenate([[0.0], np.cumsum(multipliers)])
        sizes = np.diff(np.append(self.begins, len(self.amounts)))
        prices = np.repeat(sums[self.stops] - sums[self.starts], sizes)
        paid: Numbers = np.bincount(self.slots, prices * self.amounts).astype(np.float64)
        return paid

    def entries(self, row: int) -> tuple[Indices, Numbers]:
        """The options that use memory in ``row``, with their amounts; an option may occur several times."""
        live = np.flatnonzero((self.starts <= row) & (row < self.stops))
        sizes = np.diff(np.append(self.begins, len(self.amounts)))[live]
        at = np.concatenate([np.arange(b, b + n) for b, n in zip(self.begins[live], sizes, strict=True)])
        at = at[self.amounts[at] > 0]
        return self.slots[at], self.amounts[at]


def _find_maximal(starts: Indices, stops: Indices, left: Numbers) -> Indices:
    """Rows that have uses and no neighbour with the same ones, or more of them, and no more memory left."""
    count = len(left)
    begins, ends = np.zeros(count + 1, np.intp), np.zeros(count + 1, np.intp)
    np.add.at(begins, starts, 1)
    np.add.at(ends, stops, 1)
    live = np.cumsum(begins - ends)[:-1]
    kept: list[int] = []
    for row in np.flatnonzero(live):
        if not kept or ends[kept[-1] + 1 : row + 1].any():
            if kept and not begins[kept[-1] + 1 : row + 1].any() and left[kept[-1]] <= left[row]:
                continue
            kept.append(int(row))
        elif not begins[kept[-1] + 1 : row + 1].any():
            # The same uses as in the row before: the one with less memory left counts.
            if left[row] < left[kept[-1]]:
                kept[-1] = int(row)
        elif left[row] <= left[kept[-1]]:
            kept[-1] = int(row)
        else:
            kept.append(int(row))
    return np.array(kept, np.intp)
