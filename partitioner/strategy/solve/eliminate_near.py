"""The cheapest of the options near the bound, by elimination: exact at the prices that memory has.

Relaxations of pairs are weak where neighbours form circles that disagree; tables of few variables are small where each
has few options left. So elimination begins with the options nearest to the bound. Its result lowers the cost, and with
it the number of options that a cheaper choice may still contain.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shardc.partitioner.strategy.solve.dual import DualBound
from shardc.partitioner.strategy.solve.eliminate import CostTable, can_eliminate, eliminate_variables
from shardc.partitioner.strategy.solve.marginals import find_marginals
from shardc.partitioner.strategy.solve.search import Incumbent, measure
from shardc.partitioner.strategy.solve.surplus import Surplus

__all__ = ["eliminate_near", "sharpen"]

#: Parts of all entries with which elimination begins, one after the other.
_SHARES = (1024, 32, 1)


def eliminate_near(dual: DualBound, surplus: Surplus, best: Incumbent, together: int) -> float:
    """A bound from eliminations whose joint tables have at most ``together`` entries in total; ``best`` is updated with
    their results. ``surplus`` is that of ``dual``. Omitted options cost more than the dual's bound by their surplus.
    """
    bound = dual.bound
    for entries in (together // n for n in _SHARES):
        fits = best.excess <= 0 and np.isfinite(best.cost)
        most = best.cost - dual.bound if fits else np.inf
        if surplus.least > most or surplus.least == np.inf:
            return dual.bound + most
        spread = _find_spread(dual, surplus, most, entries)
        if spread is None:
            continue
        kept = _options_within(surplus, spread)
        found = eliminate_variables({v: len(k) for v, k in kept.items()}, _find_rest(dual, kept), entries, most)
        assert found is not None
        positions = {v: int(kept[v][k]) for v, k in found[1].items()}
        best.offer(positions, *measure(dual.network, dual.rows, positions))
        dual.pressed |= frozenset(dual.rows.find_exceeded(dual.rows.used(positions)))
        bound = max(bound, dual.bound + min(spread, found[0]))
        if spread == most or found[0] <= spread:
            break
    return bound


def sharpen(dual: DualBound, surplus: Surplus, best: Incumbent, together: int) -> Surplus:
    """``surplus`` with the exact least cost above the bound of each option within the gap, at the prices of ``dual``.

    It stays unchanged if joint tables have more than ``together`` entries in total, or if ``best`` does not fit.
    """
    if best.excess > 0 or not np.isfinite(best.cost):
        return surplus
    kept = _options_within(surplus, best.cost - dual.bound)
    if not all(len(k) for k in kept.values()):
        return surplus
    found = find_marginals({v: len(k) for v, k in kept.items()}, _find_rest(dual, kept), together)
    if found is None:
        return surplus
    options = {v: np.full(len(s), np.inf) for v, s in surplus.options.items()}
    for v, k in kept.items():
        options[v][k] = np.maximum(surplus.options[v][k], found[v])
    pairs = {
        (v, u): np.maximum(left, np.maximum(options[v][:, None], options[u][None, :]))
        for (v, u), left in surplus.pairs.items()
    }
    return Surplus(options, pairs)


def _find_spread(dual: DualBound, surplus: Surplus, most: float, entries: int) -> float | None:
    """The largest surplus of options, up to ``most``, for which joint tables have at most ``entries`` entries in
    total."""
    pairs = [(v, u) for v in dual.order for u in dual.network.tables[v] if v < u]

    def fits(spread: float) -> bool:
        return can_eliminate({v: len(k) for v, k in _options_within(surplus, spread).items()}, pairs, entries)

    if fits(most):
        return most
    every = np.concatenate(list(surplus.options.values()))
    spreads = np.unique(every[(every <= most) & (every >= surplus.least)])
    low, high = 0, len(spreads)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(float(spreads[middle])) else (low, middle)
    return float(spreads[low]) if len(spreads) and fits(float(spreads[low])) else None


def _options_within(surplus: Surplus, spread: float) -> dict[int, NDArray[np.intp]]:
    return {v: np.flatnonzero((s <= spread) & np.isfinite(s)) for v, s in surplus.options.items()}


def _find_rest(dual: DualBound, kept: Mapping[int, NDArray[np.intp]]) -> list[CostTable]:
    """The costs of the kept options above the bound; they are at least 0."""
    tables: list[CostTable] = []
    for v in dual.order:
        cost = dual.own[v] + sum(dual.messages[v].values())
        tables.append(CostTable((v,), (cost - cost.min())[kept[v]]))
        for u in dual.network.tables[v]:
            if v < u:
                rest = dual.rest(v, u)
                tables.append(CostTable((v, u), (rest - rest.min())[np.ix_(kept[v], kept[u])]))
    return tables
