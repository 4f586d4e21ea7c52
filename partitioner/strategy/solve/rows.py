"""Rows of memory over what a network has left: which ones matter, and what a choice uses in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.partitioner.strategy.solve.network import CostNetwork
from shardc.partitioner.strategy.solve.problem import Numbers

__all__ = ["MemoryRows"]

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class MemoryRows:
    """The rows of a network in which something is still to be decided; those within another one are left out.

    ``rows`` are the problem's, ``limits`` what is left in each, and use k is ``amounts[k]`` (per option) of
    ``variables[k]`` in ``starts[k] <= row < stops[k]``, counted in ``rows``.
    """

    rows: Indices
    limits: Numbers
    variables: Indices
    starts: Indices
    stops: Indices
    amounts: tuple[Numbers, ...]

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
        return cls(
            rows,
            left[rows],
            np.array([uses[k][0] for k in kept], np.intp),
            at[starts[kept]],
            at[stops[kept]],
            tuple(uses[k][3] for k in kept),
        )

    def used(self, positions: Mapping[int, int]) -> Numbers:
        """What the options at ``positions`` use in each row."""
        amounts = [float(a[positions[int(v)]]) for v, a in zip(self.variables, self.amounts, strict=True)]
        return self.spread(np.array(amounts))

    def spread(self, amounts: Numbers) -> Numbers:
        """One amount per use, summed in each row."""
        change = np.zeros(len(self.rows) + 1)
        np.add.at(change, self.starts, amounts)
        np.subtract.at(change, self.stops, amounts)
        return np.cumsum(change)[:-1]

    def weigh(self, multipliers: Numbers) -> Numbers:
        """The sum of ``multipliers`` over each use's rows."""
        sums = np.concatenate([[0.0], np.cumsum(multipliers)])
        weights: Numbers = sums[self.stops] - sums[self.starts]
        return weights


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
