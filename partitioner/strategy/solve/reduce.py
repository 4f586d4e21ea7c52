"""Decisions without a search: exact reductions, each valid with and without rows of memory. Options that are allowed
with no option of a neighbour are removed, and so are dominated ones. A variable that another one determines is merged
into it. A variable without memory and with at most two neighbours is eliminated. Rows that no choice exceeds are
removed. Changed variables are examined again, those with few neighbours first.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from shardc.partitioner.strategy.solve.network import CostNetwork, ImpossibleChoiceError
from shardc.partitioner.strategy.solve.problem import Numbers

__all__ = ["drop_rows", "reduce_network"]

#: Work of one test for dominated options, in entries compared, beyond which it is left out.
_LARGEST_COMPARISON = 1 << 21
#: An elimination over two neighbours may make a table of so many entries.
_LARGEST_TABLE = 1 << 16


def reduce_network(network: CostNetwork) -> None:
    """Shrink ``network`` until none of the reductions applies; raises `ImpossibleChoiceError`."""
    drop_rows(network)
    _NetworkReducer(network).run()


def drop_rows(network: CostNetwork) -> None:
    """Remove rows that no choice exceeds, and the memory that every option uses."""
    count = len(network.limits)
    most = network.spent
    change = np.zeros(count + 1)
    for v in network.alive:
        for (start, stop), amounts in network.uses[v].items():
            top = amounts.max()
            change[start] += top
            change[stop] -= top
    most = most + np.cumsum(change)[:-1]
    tight = np.concatenate([[0], np.cumsum(most > network.limits)])
    for v in network.alive:
        kept: dict[tuple[int, int], Numbers] = {}
        for (start, stop), amounts in network.uses[v].items():
            low = amounts.min()
            network.change[start] += low
            network.change[stop] -= low
            if tight[stop] > tight[start] and (amounts > low).any():
                kept[start, stop] = amounts - low
        network.uses[v] = kept


class _NetworkReducer:
    def __init__(self, network: CostNetwork) -> None:
        self.network = network
        #: Per variable, the neighbours whose tables have changed since it was looked at.
        self.changed = {v: set(network.tables[v]) for v in network.alive}
        self.waiting = [(len(network.tables[v]), v) for v in network.alive]
        heapq.heapify(self.waiting)
        self.queued = set(network.alive)

    def run(self) -> None:
        while self.waiting:
            _, v = heapq.heappop(self.waiting)
            self.queued.discard(v)
            if v in self.network.alive:
                self._reduce(v)

    def _wake(self, v: int) -> None:
        if v not in self.queued and v in self.network.alive:
            self.queued.add(v)
            heapq.heappush(self.waiting, (len(self.network.tables[v]), v))

    def _wake_pair(self, v: int, u: int) -> None:
        self.changed[v].add(u)
        self.changed[u].add(v)
        self._wake(v)
        self._wake(u)

    def _keep(self, v: int, positions: NDArray[np.intp]) -> None:
        self.network.keep(v, positions)
        self._wake(v)
        for u in self.network.tables[v]:
            self._wake_pair(v, u)

    def _reduce(self, v: int) -> None:
        n = self.network
        self._look_at_changes(v)
        if len(n.costs[v]) == 1:
            around = list(n.tables[v])
            n.fix(v, 0)
            for u in around:
                self._wake(u)
            return
        if not n.uses[v] and len(n.tables[v]) <= 2 and self._eliminate(v):
            return
        if not self._drop_dominated(v):
            self._merge(v)

    def _look_at_changes(self, v: int) -> None:
        """Drop options that no neighbour allows, and turn tables with equal rows or columns into own costs."""
        n = self.network
        allowed = np.isfinite(n.costs[v])
        changed, self.changed[v] = self.changed[v], set()
        for u in sorted(changed):
            table = n.tables[v].get(u)
            if table is None:
                continue
            if not np.isfinite(table).any():
                raise ImpossibleChoiceError(v, [u])
            if (table == table[:1]).all():
                n.part(v, u)
                n.costs[u] = n.costs[u] + table[0]
                self._wake(u)
            elif (table == table[:, :1]).all():
                n.part(v, u)
                n.costs[v] = n.costs[v] + table[:, 0]
                allowed &= np.isfinite(n.costs[v])
                self._wake(u)
            else:
                allowed &= np.isfinite(table).any(axis=1)
        if not allowed.all():
            self._keep(v, np.flatnonzero(allowed))

    def _eliminate(self, v: int) -> bool:
        """Eliminate a variable with at most two neighbours: this is exact, since it uses no memory."""
        n = self.network
        around = list(n.tables[v])
        cost = n.costs[v]
        if not around:
            at = int(np.argmin(cost))
            n.base += float(cost[at])
            n.remove(v, (), np.asarray(at))
            return True
        a = around[0]
        joint = cost[:, None] + n.tables[v][a]
        if len(around) == 1:
            n.costs[a] = n.costs[a] + joint.min(axis=0)
            n.remove(v, around, joint.argmin(axis=0))
            self._wake(a)
            return True
        b = around[1]
        other = n.tables[v][b]
        rows, columns = joint.shape[1], other.shape[1]
        if rows * columns > _LARGEST_TABLE or rows * columns * len(cost) > _LARGEST_COMPARISON:
            return False
        table = joint[:, :, None] + other[:, None, :]
        n.remove(v, around, table.argmin(axis=0))
        n.join(a, b, table.min(axis=0))
        self._wake_pair(a, b)
        return True

    def _drop_dominated(self, v: int) -> bool:
        """Drop options for which another one is at least as cheap with all neighbours, and uses no more memory
        anywhere."""
        n = self.network
        size = len(n.costs[v])
        tables = n.tables[v]
        if size * size * (2 + sum(t.shape[1] for t in tables.values())) > _LARGEST_COMPARISON:
            return False
        better = n.costs[v][:, None] - n.costs[v][None, :]
        for table in sorted(tables.values(), key=lambda t: t.shape[1]):
            with np.errstate(invalid="ignore"):
                apart = table[:, None, :] - table[None, :, :]
            worst = np.where(np.isnan(apart), -np.inf, apart).max(axis=2)
            better = better + worst
        beats = better <= 0
        for amounts in n.uses[v].values():
            beats &= amounts[:, None] <= amounts[None, :]
        # Of equals the first stays.
        beats &= ~(beats.T & (np.arange(size)[:, None] >= np.arange(size)[None, :]))
        np.fill_diagonal(beats, False)
        dropped = beats.any(axis=0)
        if not dropped.any():
            return False
        self._keep(v, np.flatnonzero(~dropped))
        return True

    def _merge(self, v: int) -> bool:
        """Merge v into a neighbour that determines it, if tables do not grow."""
        n = self.network
        for u, table in n.tables[v].items():
            finite = np.isfinite(table)
            if not (finite.sum(axis=0) == 1).all():
                # A leaf may also be determined by what is best for it, where that needs least memory as well.
                if len(n.tables[v]) > 1:
                    continue
                joint = n.costs[v][:, None] + table
                at = joint.argmin(axis=0)
                if not self._is_thriftiest(v, at, finite):
                    continue
            else:
                at = finite.argmax(axis=0)
                if len(at) > len(table) and len(n.tables[v]) > 2:
                    continue
            self._merge_into(v, u, at)
            return True
        return False

    def _is_thriftiest(self, v: int, at: NDArray[np.intp], finite: NDArray[np.bool_]) -> bool:
        return all(
            bool((np.where(finite, amounts[:, None], np.inf).min(axis=0) >= amounts[at]).all())
            for amounts in self.network.uses[v].values()
        )

    def _merge_into(self, v: int, u: int, at: NDArray[np.intp]) -> None:
        n = self.network
        n.costs[u] = n.costs[u] + n.costs[v][at] + n.tables[v][u][at, np.arange(len(at))]
        around = [w for w in n.tables[v] if w != u]
        for w in around:
            n.join(u, w, n.tables[v][w][at])
        for rows, amounts in n.uses[v].items():
            n.use(u, rows, amounts[at])
        n.remove(v, (u,), at)
        self._wake(u)
        for w in around:
            self._wake_pair(u, w)
