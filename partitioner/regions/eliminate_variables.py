"""Variable elimination: the cheapest values of variables with costs between them (Bertelè and Brioschi, 1972).

Variables are eliminated one by one, the one with the smallest joint table first (min-weight order), each into the table
of its neighbours. This is dynamic programming: exact on trees and on whatever is nearly one. Where a table would grow
beyond `_LARGEST`, the decision with most neighbours keeps its present value, and the rest is solved around it.
A value with many readers gets a variable of its own: the set of layouts in which it is brought.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shardc.partitioner.strategy.solve.eliminate import CostTable

__all__ = ["Network"]

#: Entries of the largest joint table (256 KB): bounds the time of one elimination.
_LARGEST = 1 << 15
_Table = NDArray[np.float64]


@dataclass(slots=True)
class Network:
    """Variables with so many values each, what they have at present, and the costs between them."""

    sizes: list[int] = field(default_factory=list)
    present: list[int] = field(default_factory=list)
    factors: list[CostTable] = field(default_factory=list)

    def variable(self, size: int, present: int = 0) -> int:
        """A new variable."""
        self.sizes.append(size)
        self.present.append(present)
        return len(self.sizes) - 1

    def add(self, variables: Sequence[int], table: _Table) -> None:
        self.factors.append(CostTable(tuple(variables), table))

    def solve(self) -> list[int]:
        """Values of least total cost, as far as tables stay small; of equals, those that come first.

        Costs are finite at the present values, so that these can always be kept.
        """
        factors = list(self.factors)
        near: dict[int, set[int]] = {v: {v} for v in range(len(self.sizes))}
        for f in factors:
            for v in f.variables:
                near[v].update(f.variables)
        found: dict[int, int] = {}
        steps: list[tuple[int, CostTable]] = []
        while near:
            v = min(near, key=lambda v: (self._extent(near[v]), v))
            if self._extent(near[v]) > _LARGEST:
                v = max(near, key=lambda v: (len(near[v]), -v))
                found[v] = self.present[v]
                factors = [_fix(f, v, found[v]) for f in factors]
                for u in near.pop(v) - {v}:
                    near[u].discard(v)
                continue
            mine = [f for f in factors if v in f.variables]
            factors = [f for f in factors if v not in f.variables]
            joint = self._joint(mine, v, near[v])
            steps.append((v, joint))
            others = near.pop(v) - {v}
            if others:
                factors.append(CostTable(joint.variables[1:], joint.table.min(axis=0)))
            for u in others:
                near[u] |= others
                near[u].discard(v)
        for v, joint in reversed(steps):
            column = joint.table
            for u in joint.variables[1:]:
                column = column[:, found[u]]
            found[v] = int(np.argmin(column))
        return [found[v] for v in range(len(self.sizes))]

    def _extent(self, variables: set[int]) -> int:
        return math.prod(self.sizes[v] for v in variables)

    def _joint(self, factors: Sequence[CostTable], first: int, scope: set[int]) -> CostTable:
        """The sum of ``factors`` over ``scope``, ``first`` as the first axis."""
        variables = (first, *sorted(scope - {first}))
        axis = {v: n for n, v in enumerate(variables)}
        total: _Table = np.zeros([self.sizes[v] for v in variables])
        for f in factors:
            order = sorted(range(len(f.variables)), key=lambda n: axis[f.variables[n]])
            shape = [1] * len(variables)
            for n in order:
                shape[axis[f.variables[n]]] = self.sizes[f.variables[n]]
            total += f.table.transpose(order).reshape(shape)
        return CostTable(variables, total)


def _fix(f: CostTable, variable: int, value: int) -> CostTable:
    if variable not in f.variables:
        return f
    at = f.variables.index(variable)
    return CostTable((*f.variables[:at], *f.variables[at + 1 :]), np.take(f.table, value, axis=at))
