"""A problem of choice: one option per variable, costs of options and of pairs of options, and rows of memory.

`ChoiceProblem` is what is asked, `ChosenOptions` what is answered. Example: two variables that had
better agree::

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
    """What options of two variables cost together: ``table[i, j]`` for option i of ``first`` and j of ``second``.

    inf: not allowed together. Equal tables had better be one array: then they take memory and work once.
    """

    first: int
    second: int
    table: Numbers


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What the options of a variable use in the rows ``start <= row < stop`` (times of a timeline, or one row)."""

    variable: int
    start: int
    stop: int
    amounts: Numbers


@dataclass(frozen=True, slots=True)
class ChoiceProblem:
    """``costs[v][i]`` is what option i of variable v costs by itself (inf: not allowed); a fixed one has one option.

    In each row the amounts that the chosen options use may not exceed its limit. Weights (trip counts) are in the
    costs. A pair of variables may stand in several of ``pairs``.
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
        """What ``choice`` costs, rows aside."""
        own = math.fsum(float(c[k]) for c, k in zip(self.costs, choice, strict=True))
        return own + math.fsum(float(p.table[choice[p.first], choice[p.second]]) for p in self.pairs)

    def usage(self, choice: Sequence[int]) -> Numbers:
        """What ``choice`` uses in each row."""
        return self.sum_uses([float(u.amounts[choice[u.variable]]) for u in self.uses])

    def least_usage(self) -> Numbers:
        """What every choice uses at least, each variable by itself."""
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
    """A row that keeps the cost up: ``multiplier`` is what a unit of memory more would save (a bound's slope)."""

    row: int
    usage: float
    multiplier: float


@dataclass(frozen=True, slots=True)
class MemoryExcess:
    """No choice was found within a row: ``at_least`` is proven to be missing there, ``found`` with the choice given.

    ``heaviest`` has the variables that use most there with what they use, largest first.
    """

    row: int
    limit: float
    at_least: float
    found: float
    heaviest: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class ChosenOptions:
    """An option per variable, what they cost, and ``bound``, which no choice goes below.

    ``choice`` is None where no choice is allowed at all, rows aside: ``conflict`` then has variables that contradict
    each other. With ``excess`` the choice is the one closest to the memory, and its cost no answer. ``work`` was done
    by programs: iterations of the simplex method, and columns of integer programs.
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
        """How much of the cost is not proven to be needed, from 0 on: 0.01 is one percent."""
        if self.cost <= self.bound:
            return 0.0
        return (self.cost - self.bound) / max(abs(self.cost), 1e-300)
