"""The least cost of an option above the bound, which shows the options that a cheaper choice may still contain.

Messages and multipliers leave own costs and pair costs whose least values make the bound. A choice with an option costs
at least that option's *surplus* more than the bound: its own cost, and the least of its pairs. Options whose surplus
exceeds the gap are in no better choice. Few options remain if the bound is good.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.partitioner.strategy.solve.dual import DualBound
from shardc.partitioner.strategy.solve.problem import Numbers

__all__ = ["Near", "Surplus"]


@dataclass(frozen=True, slots=True)
class Near:
    """Positions of ``options`` of each variable, and the remaining ``pairs`` of them."""

    options: dict[int, NDArray[np.intp]]
    pairs: dict[tuple[int, int], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Surplus:
    """The surplus of ``options`` of each variable and of ``pairs`` of options, over the dual's bound."""

    options: dict[int, Numbers]
    pairs: dict[tuple[int, int], Numbers]

    @classmethod
    def of(cls, dual: DualBound) -> Surplus:
        """The surplus at the messages and multipliers of ``dual``."""
        own: dict[int, Numbers] = {}
        rest: dict[tuple[int, int], Numbers] = {}
        for v in dual.order:
            cost = dual.own[v] + sum(dual.messages[v].values())
            own[v] = cost - cost.min()
            for u in dual.network.tables[v]:
                if v < u:
                    left = dual.rest(v, u)
                    rest[v, u] = left - left.min()
        options, plain = dict(own), dict(own)
        side: dict[tuple[int, int], Numbers] = {}
        for (v, u), left in rest.items():
            side[v, u], side[u, v] = left.min(axis=1), left.min(axis=0)
            plain[v], plain[u] = plain[v] + side[v, u], plain[u] + side[u, v]
            options[v] = options[v] + (left + own[u][None, :]).min(axis=1)
            options[u] = options[u] + (left + own[v][:, None]).min(axis=0)
        pairs = {
            (v, u): left + (plain[v] - side[v, u])[:, None] + (plain[u] - side[u, v])[None, :]
            for (v, u), left in rest.items()
        }
        return cls(options, pairs)

    @property
    def least(self) -> float:
        """The least cost of every choice above the bound: some variable has no option with less."""
        return max((float(s.min()) for s in self.options.values()), default=0.0)

    def within(self, most: float) -> Near:
        """Options, and pairs of options, that choices within this distance above the bound may contain."""
        keep = {v: _is_near(s, most) for v, s in self.options.items()}
        pairs = {(v, u): _is_near(s, most)[np.ix_(keep[v], keep[u])] for (v, u), s in self.pairs.items()}
        return Near({v: np.flatnonzero(k) for v, k in keep.items()}, pairs)

    @property
    def columns(self) -> int:
        """How many options and pairs are allowed at all."""
        return len(self._every())

    def _every(self) -> Numbers:
        parts = [*self.options.values(), *(s.ravel() for s in self.pairs.values())]
        every: Numbers = np.concatenate([np.zeros(0), *parts])
        return every[np.isfinite(every)]

    def spread(self, columns: int, most: float) -> float:
        """The largest distance above the bound, up to ``most``, within which at most ``columns`` options and pairs
        lie."""
        every = self._every()
        if len(every) <= columns:
            return most
        return min(most, float(np.partition(every, columns)[columns]))


def _is_near(surplus: Numbers, most: float) -> NDArray[np.bool_]:
    return (surplus <= most) & np.isfinite(surplus)
