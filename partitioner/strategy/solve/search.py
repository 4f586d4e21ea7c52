"""Good choices that fit: local search from a start, with memory prices that rise in exceeded rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shardc.partitioner.strategy.solve.dual import DualBound
from shardc.partitioner.strategy.solve.network import CostNetwork
from shardc.partitioner.strategy.solve.problem import Numbers
from shardc.partitioner.strategy.solve.rows import MemoryRows

__all__ = ["Incumbent", "improve_with_dual", "measure"]

#: Passes over all variables that one search makes at most.
_SWEEPS = 8
_REPAIRS = 12


@dataclass(slots=True)
class Incumbent:
    """The best positions so far: the least excess of memory first, then the least cost."""

    positions: dict[int, int]
    excess: float = math.inf
    cost: float = math.inf

    def offer(self, positions: dict[int, int], excess: float, cost: float) -> bool:
        """Replace the best positions by ``positions`` if these are better."""
        if (excess, cost) >= (self.excess, self.cost):
            return False
        self.positions, self.excess, self.cost = dict(positions), excess, cost
        return True


def improve_with_dual(dual: DualBound, start: dict[int, int] | None, rounds: int, gap: float) -> Incumbent:
    """``rounds`` of message passing, each followed by a search from its choice; ends early if the gap is at most
    ``gap``."""
    network, rows = dual.network, dual.rows
    best = Incumbent({v: int(np.argmin(network.costs[v])) for v in network.alive})
    if start is not None:
        _search(dual, best, dict(start))
    step = 1.0
    for n in range(rounds):
        before = dual.bound
        found = dual.round()
        used = rows.used(found)
        _search(dual, best, found)
        if best.excess <= 0 and best.cost - dual.bound <= gap * abs(best.cost):
            break
        if dual.bound <= before:
            step *= 0.9
        upper = best.cost if math.isfinite(best.cost) else _cost(network, found)
        if not math.isfinite(upper):
            upper = dual.bound + abs(dual.bound) + 1.0
        if n >= 2:
            dual.follow(used, upper, step)
    return best


def _cost(network: CostNetwork, found: dict[int, int]) -> float:
    parts = [network.base]
    for v, k in found.items():
        parts.append(float(network.costs[v][k]))
        parts.extend(float(t[k, found[u]]) for u, t in network.tables[v].items() if v < u)
    return math.fsum(parts)


def measure(network: CostNetwork, rows: MemoryRows, found: dict[int, int]) -> tuple[float, float]:
    """The excess of ``found`` over the rows (inf: it is not allowed at all), and its cost."""
    cost = _cost(network, found)
    return (_excess(rows, rows.used(found)) if math.isfinite(cost) else math.inf), cost


def _excess(rows: MemoryRows, used: Numbers) -> float:
    return float((used - rows.limits).max(initial=0.0))


def _search(dual: DualBound, best: Incumbent, found: dict[int, int]) -> None:
    """Coordinate descent at the dual's prices; while rows are exceeded, at prices that rise in these rows."""
    prices, better = dual.multipliers, False
    for _ in range(_REPAIRS):
        _descend(dual, found)
        used = dual.rows.used(found)
        excess, cost = measure(dual.network, dual.rows, found)
        better |= best.offer(found, excess, cost)
        over = used > dual.rows.limits
        if not over.any():
            break
        unit = max(float(dual.multipliers.max(initial=0.0)), abs(cost) / max(float(used.max()), 1.0) * 1e-3)
        if not math.isfinite(unit):
            break
        dual.set_multipliers(np.where(over, np.maximum(dual.multipliers * 2.0, unit), dual.multipliers))
    dual.set_multipliers(prices)
    if better and best.excess <= 0 and len(dual.rows.rows):
        _descend_within(dual, best)


def _descend(dual: DualBound, found: dict[int, int]) -> None:
    """Take the best option of each variable; variables whose neighbours changed are examined again."""
    waiting = set(dual.order)
    for _ in range(_SWEEPS):
        for v, costs in dual.sweep(found, waiting):
            k = int(np.argmin(costs))
            if costs[k] < costs[found[v]]:
                found[v] = k
                waiting.update(dual.network.tables[v])
        if not waiting:
            return


def _descend_within(dual: DualBound, best: Incumbent) -> None:
    """Take better options without a price for memory, as long as they fit."""
    prices = dual.multipliers
    dual.set_multipliers(np.zeros(len(prices)))
    rows, found = dual.rows, dict(best.positions)
    used = rows.used(found)
    uses: dict[int, list[int]] = {}
    for at, v in enumerate(rows.variables.tolist()):
        uses.setdefault(v, []).append(at)
    for _ in range(_SWEEPS):
        changed = False
        for v, costs in dual.sweep(found, set(dual.order)):
            now = found[v]
            for k in np.argsort(costs, kind="stable").tolist():
                if costs[k] >= costs[now]:
                    break
                trial = used.copy() if v in uses else used
                for at in uses.get(v, ()):
                    begin = rows.begins[at]
                    trial[rows.starts[at] : rows.stops[at]] += rows.amounts[begin + k] - rows.amounts[begin + now]
                if v not in uses or (trial <= rows.limits).all():
                    found[v], used, changed = k, trial, True
                    break
        if not changed:
            break
    dual.set_multipliers(prices)
    best.offer(found, 0.0, _cost(dual.network, found))
