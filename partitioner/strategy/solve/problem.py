"""A problem of choice: one option per variable, costs of options and of pairs of options, and rows of memory.

`ChoiceProblem` is the question, `ChosenOptions` the answer. Example: two variables that should agree::

    agree = np.array([[0.0, 5.0], [5.0, 0.0]])
    problem = ChoiceProblem((np.array([1.0, 2.0]), np.array([4.0, 0.0])), (PairCost(0, 1, agree),))
    solve_choice(problem).choice  # (1, 1)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import InputError

__all__ = ["BindingRow", "ChoiceProblem", "ChosenOptions", "MemoryExcess", "MemoryUse", "PairCost"]

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PairCost:
    """The costs of pairs of options: ``table[i, j]`` for option i of ``first`` and j of ``second``. inf: not allowed
    together. Equal tables should be one array: then they take memory and work only once.
    """

    first: int
    second: int
    table: Numbers


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory that the options of a variable use in the rows ``start <= row < stop`` (times of a timeline, or one
    row)."""

    variable: int
    start: int
    stop: int
    amounts: Numbers


@dataclass(frozen=True, slots=True)
class ChoiceProblem:
    """``costs[v][i]`` is the own cost of option i of variable v (inf: not allowed); a fixed variable has one option.

    In each row the amounts that the chosen options use may not exceed its limit. Weights (trip counts) are in the
    costs. A pair of variables may occur in several of ``pairs``.
    """

    costs: tuple[Numbers, ...]
    pairs: tuple[PairCost, ...] = ()
    limits: Numbers = field(default_factory=lambda: np.zeros(0))
    uses: tuple[MemoryUse, ...] = ()

    def check(self) -> None:
        """Raise `InputError` where shapes, numbers or rows do not fit."""
        sizes = [len(c) for c in self.costs]
        for v, cost in enumerate(self.costs):
            if not len(cost) or np.isnan(cost).any() or np.isneginf(cost).any():
                raise InputError("a variable needs options with costs that are numbers", where=f"variable {v}")
        for table in {id(p.table): p.table for p in self.pairs}.values():
            if np.isnan(table).any() or np.isneginf(table).any():
                raise InputError("costs of a pair must be numbers or inf")
        for p in self.pairs:
            if p.first == p.second or p.table.shape != (sizes[p.first], sizes[p.second]):
                raise InputError("the table of a pair does not fit its variables", where=f"{p.first}, {p.second}")
        for u in self.uses:
            if len(u.amounts) != sizes[u.variable] or not 0 <= u.start <= u.stop <= len(self.limits):
                raise InputError("a use does not fit its variable or its rows", where=f"variable {u.variable}")
            if not np.isfinite(u.amounts).all() or (u.amounts < 0).any():
                raise InputError("amounts of memory must be finite, from 0", where=f"variable {u.variable}")

    def cost(self, choice: Sequence[int]) -> float:
        """The cost of ``choice``, without rows."""
        own = math.fsum(float(c[k]) for c, k in zip(self.costs, choice, strict=True))
        return own + math.fsum(float(p.table[choice[p.first], choice[p.second]]) for p in self.pairs)

    def usage(self, choice: Sequence[int]) -> Numbers:
        """The memory that ``choice`` uses in each row."""
        return self.sum_uses([float(u.amounts[choice[u.variable]]) for u in self.uses])

    def least_usage(self) -> Numbers:
        """The least memory of every choice, per row: each variable takes its smallest option."""
        allowed = [np.isfinite(c) for c in self.costs]
        return self.sum_uses([float(u.amounts[allowed[u.variable]].min(initial=np.inf)) for u in self.uses])

    def sum_uses(self, amounts: Sequence[float]) -> Numbers:
        """One amount for each of ``uses``, summed in each row."""
        change = np.zeros(len(self.limits) + 1)
        np.add.at(change, [u.start for u in self.uses], amounts)
        np.subtract.at(change, [u.stop for u in self.uses], amounts)
        return np.cumsum(change)[:-1]


@dataclass(frozen=True, slots=True)
class BindingRow:
    """A row that increases the cost: ``multiplier`` is the saving of one more unit of memory (the slope of the
    bound)."""

    row: int
    usage: float
    multiplier: float


@dataclass(frozen=True, slots=True)
class MemoryExcess:
    """No choice was found within a row. ``at_least`` is the proven excess, ``found`` the excess of the given choice.

    ``heaviest`` has the variables that use most memory there and their use, the largest first.
    """

    row: int
    limit: float
    at_least: float
    found: float
    heaviest: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class ChosenOptions:
    """An option per variable, their cost, and the lower ``bound`` on all choices. ``choice`` is None if no choice is
    allowed even without rows: ``conflict`` then has variables that contradict each other. With ``excess``, the choice
    is the one closest to the memory limits, and its cost is not an answer. ``work`` counts programs: iterations of the
    simplex method, and columns of integer programs.
    """

    choice: tuple[int, ...] | None
    cost: float
    bound: float
    method: str
    binding: tuple[BindingRow, ...] = ()
    excess: MemoryExcess | None = None
    conflict: tuple[int, ...] = ()
    work: int = 0

    @property
    def gap(self) -> float:
        """The share of the cost that is not proven to be necessary: 0.01 is one percent."""
        if self.cost <= self.bound:
            return 0.0
        return (self.cost - self.bound) / max(abs(self.cost), 1e-300)
