"""Lower bounds for problems that are too large for elimination: messages along pairs, and multipliers for rows of
memory.

Messages move costs between pairs and their variables (sequential reweighted passing, Kolmogorov 2015); for all
messages, the least own costs plus the least pair costs are a lower bound on every choice. A multiplier makes a row's
memory a cost; it is adjusted to the memory that a rounded choice uses. Each round leaves a bound and a choice for the
search to start from.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shardc.partitioner.strategy.solve.network import CostNetwork
from shardc.partitioner.strategy.solve.problem import Numbers
from shardc.partitioner.strategy.solve.rows import MemoryRows

__all__ = ["DualBound"]


class DualBound:
    """Messages and multipliers of a network; ``bound`` is the best bound so far, with ``best`` multipliers.

    ``pressed`` are rows of memory that answers to relaxed problems exceeded: programs begin with them. ``work`` counts
    all programs that were made from it: iterations of the simplex method, and the columns of integer programs, which
    take about the same time.
    """

    def __init__(self, network: CostNetwork, rows: MemoryRows) -> None:
        self.network, self.rows = network, rows
        self.order = list(network.alive)
        self.users = np.unique(rows.variables).tolist()
        self.multipliers = np.zeros(len(rows.rows))
        self.best = self.multipliers
        self.bound = -np.inf
        self.work = 0
        self.pressed = frozenset[int]()
        self.messages: dict[int, dict[int, Numbers]] = {
            v: {u: np.zeros(len(network.costs[v])) for u in network.tables[v]} for v in network.alive
        }
        self.best_messages = {v: dict(m) for v, m in self.messages.items()}
        self.own: dict[int, Numbers] = {}
        self.set_multipliers(self.multipliers)

    def set_multipliers(self, multipliers: Numbers) -> None:
        """Costs with memory at these prices."""
        self.multipliers = multipliers
        self.own = dict(zip(self.order, (self.network.costs[v] for v in self.order), strict=True))
        if multipliers.any():
            prices = self.rows.price(multipliers)
            for v in self.users:
                at = self.rows.offsets[v]
                self.own[v] = self.own[v] + prices[at : at + len(self.own[v])]

    def round(self) -> dict[int, int]:
        """Pass messages forward and backward; returns the choice that the backward pass makes, variable by variable."""
        n = self.network
        place = {v: k for k, v in enumerate(self.order)}
        found: dict[int, int] = {}
        for order, back in ((self.order, False), (self.order[::-1], True)):
            for v in order:
                mine = self.messages[v]
                later = [u for u in mine if (place[u] > place[v]) != back]
                for u in mine:
                    if (place[u] > place[v]) == back:
                        rest = n.tables[v][u] - self.messages[u][v][None, :]
                        mine[u] = rest.min(axis=1)
                if back:
                    seen = self.own[v]
                    for u, message in mine.items():
                        seen = seen + (n.tables[v][u][:, found[u]] if u in found else message)
                    found[v] = int(np.argmin(seen))
                if later:
                    share = (self.own[v] + sum(mine.values())) / max(len(later), len(mine) - len(later))
                    for u in later:
                        mine[u] = mine[u] - share
        self.measure()
        return found

    def measure(self) -> None:
        """The bound that messages and multipliers prove."""
        n = self.network
        parts = [n.base, -float(self.multipliers @ self.rows.limits)]
        for v in self.order:
            parts.append(float((self.own[v] + sum(self.messages[v].values())).min()))
            parts.extend(float(self.rest(v, u).min()) for u in n.tables[v] if v < u)
        bound = float(np.sum(parts))
        if bound > self.bound:
            self.bound, self.best = bound, self.multipliers
            self.best_messages = {v: dict(m) for v, m in self.messages.items()}

    def rest(self, v: int, u: int) -> Numbers:
        """The pair costs of v and u that remain after the messages."""
        left: Numbers = self.network.tables[v][u] - self.messages[v][u][:, None] - self.messages[u][v][None, :]
        return left

    def return_to_best(self) -> None:
        """Take the messages and multipliers of the best bound."""
        self.messages = {v: dict(m) for v, m in self.best_messages.items()}
        self.set_multipliers(self.best)

    def follow(self, used: Numbers, upper: float, step: float) -> None:
        """Increase the multipliers of rows that were exceeded (Polyak's step, with the cost ``upper``)."""
        slope = used - self.rows.limits
        slope[(slope < 0) & (self.multipliers <= 0)] = 0.0
        length = float(slope @ slope)
        if length > 0:
            rise = step * max(upper - self.bound, abs(upper) * 1e-3) / length
            self.set_multipliers(np.maximum(self.multipliers + rise * slope, 0.0))

    def sweep(self, found: dict[int, int], waiting: set[int]) -> Iterator[tuple[int, Numbers]]:
        """For each variable that is ``waiting`` at its turn: the costs of its options at these prices, with the present
        ``found`` options of the others. The variable then no longer waits."""
        for v in self.order:
            if v in waiting:
                waiting.discard(v)
                total = self.own[v]
                for u, table in self.network.tables[v].items():
                    total = total + table[:, found[u]]
                yield v, total
