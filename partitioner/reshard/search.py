"""Resharding: the cheapest path from one layout to another, by A* over layouts with an admissible bound.

`Resharder.path` runs A* (Hart, Nilsson and Raphael, 1968) on bytes sent, then number of collectives. Its edges are the
moves of `moves`, its bound that of `lower_bound`. States never exceed the larger padded shard of the two ends, so a
path through full replication is only taken when an end is replicated. Where the padding of small uneven sizes rules
that out, states are at least split into as many shards as the less split end. Atoms that always move together are
treated as one at first and split up only when that finds nothing. Where the search exceeds its budget of nodes,
weighted A* (Pohl, 1970) looks for any good path.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shardc.costs.machines.machine import Machine
from shardc.partitioner.emit.layout import AxisLayout, AxisTable
from shardc.partitioner.reshard.direct_way import direct_way
from shardc.partitioner.reshard.joined_bytes import JOINED_BYTES
from shardc.partitioner.reshard.lower_bound import LowerBounds
from shardc.partitioner.reshard.moves import AllReduce, Cost, Gather, ReduceScatter, ReshardStep
from shardc.partitioner.reshard.price import Bytes, Price, Seconds
from shardc.partitioner.reshard.try_moves import Trials, blocks_of

__all__ = ["Path", "Resharder"]


#: States that a search expands before it takes what it has or gives up; simple reshards need fewer than twenty.
_NODE_BUDGET = 400
#: The weight of the bound in weighted A*, which follows where plain A* has exceeded its budget of nodes.
_HEURISTIC_WEIGHT = 3.0
#: Costs that differ by less, relatively, are equal.
_EXACT = 1e-12
#: A path is faster if it takes this part of the time, and these seconds less.
_SAVING = 0.9
_SAVING_SECONDS = 5e-6
#: Blocks of atoms are not cut into more than these.
_FEW = 5


@dataclass(frozen=True, slots=True)
class Path:
    """Steps in order, and what they cost together."""

    cost: Cost
    steps: tuple[ReshardStep, ...]


@dataclass(frozen=True, slots=True)
class _Goal:
    """What one search is about: states with at most ``limit`` elements in at least ``shards`` parts.

    The target has ``size`` elements; paths that cost ``ceiling`` or more are of no interest. With more
    ``heuristic_weight`` than 1 a path is found sooner, which need not be the cheapest.
    """

    dims: tuple[int, ...]
    nbytes: int
    trials: Trials
    limit: float
    size: int
    shards: int = 1
    node_budget: float = _NODE_BUDGET
    heuristic_weight: float = 1.0
    ceiling: float = math.inf

    @property
    def target(self) -> AxisLayout:
        return self.trials.target


class Resharder:
    """Finds paths and remembers them by dimensions, element size and the two layouts.

    Costs are bytes, or seconds when a ``machine`` is given, and numbers of collectives.
    """

    def __init__(self, table: AxisTable, machine: Machine | None = None) -> None:
        self.table = table
        self.price: Price = Bytes(table) if machine is None else Seconds(table, machine)
        self._bounds = LowerBounds(table, self.price.boundaries())
        self._least: dict[tuple[tuple[int, ...], int, AxisLayout, AxisLayout], float] = {}
        self._by_bytes = None if machine is None else Resharder(table)
        self._paths: dict[tuple[tuple[int, ...], int, AxisLayout, AxisLayout], Path] = {}
        self._like: dict[tuple[tuple[int, ...], int, AxisLayout, AxisLayout], Path | None] = {}
        self._direct: dict[tuple[AxisLayout, AxisLayout], tuple[ReshardStep, ...]] = {}
        self._expected: dict[tuple[tuple[int, ...], int, AxisLayout, AxisLayout, int], float] = {}

    def path(self, dims: tuple[int, ...], nbytes: int, source: AxisLayout, target: AxisLayout) -> Path:
        """The cheapest path for an array of global ``dims`` with elements of ``nbytes``."""
        key = (dims, nbytes, source, target)
        found = self._paths.get(key)
        if found is None:
            found = self._paths[key] = self._look_up(*key)
        return found

    def _look_up(self, dims: tuple[int, ...], nbytes: int, source: AxisLayout, target: AxisLayout) -> Path:
        """A path by bytes is the same for all even sizes, and is searched for once; time has it to beat."""
        if self._by_bytes is not None:
            known = self._reprice(dims, nbytes, self._by_bytes.path(dims, nbytes, source, target))
            return self._find_faster(dims, nbytes, source, target, known)
        devices = self.table.mesh.size
        like = (tuple(n if n % devices else devices for n in dims), 1, source, target)
        found = self._paths.get(like)
        if found is None:
            found = self._paths[like] = self._search(*like)
        return self._reprice(dims, nbytes, found)

    def _reprice(self, dims: tuple[int, ...], nbytes: int, path: Path) -> Path:
        costs = [self.price.step(dims, nbytes, step) for step in path.steps]
        return Path((sum((wire for wire, _ in costs), 0.0), sum(count for _, count in costs)), path.steps)

    def cost(self, dims: tuple[int, ...], nbytes: int, source: AxisLayout, target: AxisLayout) -> Cost:
        """Bytes sent per device (or seconds) and number of collectives of that path."""
        return (0.0, 0) if source is target else self.path(dims, nbytes, source, target).cost

    def start(self, dims: tuple[int, ...], nbytes: int, forms: Sequence[AxisLayout], target: AxisLayout) -> AxisLayout:
        """The form from which a value comes into ``target``: the nearest of those that are reduced furthest.

        Partial sums are so added up once. Two paths of their own would add them up in two orders, and readers would
        see different bits of one value.
        """
        if len(forms) == 1:
            return forms[0]
        whole = set(target.unreduced)
        fit = [f for f in forms if whole.issubset(f.unreduced)]
        least = min((len(f.unreduced) for f in fit), default=0)
        found = [f for f in fit if len(f.unreduced) == least] or forms
        return min(found, key=lambda form: self.cost(dims, nbytes, form, target))

    def at_least(self, dims: tuple[int, ...], nbytes: int, source: AxisLayout, target: AxisLayout) -> float:
        """A lower bound of that cost, found without a search."""
        if source is target:
            return 0.0
        key = (dims, nbytes, source, target)
        found = self._least.get(key)
        if found is None:
            shard = nbytes * math.prod(self.table.local_dims(target, dims))
            found = self._least[key] = self._bounds.least(nbytes * math.prod(dims), shard, source, target)
        return found

    def at_least_all(
        self, dims: tuple[int, ...], nbytes: int, sources: tuple[AxisLayout, ...], targets: tuple[AxisLayout, ...]
    ) -> NDArray[np.float64]:
        """Lower bounds from each source to each target."""
        shards = [nbytes * math.prod(self.table.local_dims(x, dims)) for x in targets]
        return self._bounds.least_of_all(nbytes * math.prod(dims), shards, sources, targets)

    def expect(
        self, dims: tuple[int, ...], nbytes: int, source: AxisLayout, target: AxisLayout, together: int = 1
    ) -> float:
        """About that cost, found without a search: bytes at least, seconds of the direct way.

        Of time the bound says little where arrays are small: it knows no algorithms, and no waits in their steps. Of
        so many equal arrays that may be moved ``together``, as small ones are, it is the cost of one.
        """
        if self._by_bytes is None or source is target:
            return self.at_least(dims, nbytes, source, target)
        key = (dims, nbytes, source, target, together)
        found = self._expected.get(key)
        if found is None:
            steps = self._direct.get((source, target))
            if steps is None:
                steps = self._direct[source, target] = direct_way(self.table, source, target)
            found = self._expected[key] = sum(self._share(dims, nbytes, step, together) for step in steps)
        return found

    def _share(self, dims: tuple[int, ...], nbytes: int, step: ReshardStep, together: int) -> float:
        """What one of so many equal arrays costs in a step that is made for as many of them as are joined; each of them
        is rearranged by itself."""
        price, count = self.price, 1
        if together > 1 and isinstance(step.move, Gather | AllReduce | ReduceScatter):
            size = nbytes * max(math.prod(self.table.local_dims(x, dims)) for x in (step.before, step.after))
            count = max(1, min(together, JOINED_BYTES // max(size, 1)))
        if count == 1 or not isinstance(price, Seconds):
            return price.step(dims, nbytes, step)[0]
        return price.travel(dims, nbytes * count, step)[0] / count + price.rearranged(dims, nbytes, step)

    def expect_all(
        self,
        dims: tuple[int, ...],
        nbytes: int,
        sources: tuple[AxisLayout, ...],
        targets: tuple[AxisLayout, ...],
        together: int = 1,
    ) -> NDArray[np.float64]:
        """`expect` from each source to each target."""
        if self._by_bytes is None:
            return self.at_least_all(dims, nbytes, sources, targets)
        return np.array([[self.expect(dims, nbytes, a, b, together) for b in targets] for a in sources])

    def _search(self, dims: tuple[int, ...], nbytes: int, source: AxisLayout, target: AxisLayout) -> Path:
        if source is target:
            return Path((0.0, 0), ())
        goal = self._goal(dims, nbytes, source, target)
        coarse, fine = blocks_of(self.table, source, target), tuple(range(self.table.count))
        fewest = min(self.table.extent(x.used) for x in (source, target))
        weighted = replace(goal, trials=replace(goal.trials, blocks=fine), heuristic_weight=_HEURISTIC_WEIGHT)
        for tried in (
            goal,
            weighted,
            replace(weighted, limit=math.inf, shards=fewest),
            replace(weighted, trials=replace(goal.trials, blocks=coarse), limit=math.inf, node_budget=math.inf),
        ):
            found = self._find(tried, source)
            if found is not None:
                return found
        raise AssertionError(f"no path from {source} to {target}")

    def _find_faster(
        self, dims: tuple[int, ...], nbytes: int, source: AxisLayout, target: AxisLayout, known: Path
    ) -> Path:
        """A path that takes less time than ``known`` and no more memory; ``known`` where none is found.

        One collective runs by the best algorithm for its links already, where there are no copies of the array whose
        links could help; and what saves less than models know of latencies is no better. Arrays of about the same
        size, evenly split, are searched for once.
        """
        ceiling = min(_SAVING * known.cost[0], known.cost[0] - _SAVING_SECONDS)
        copies = self.table.count - len({*source.used, *source.unreduced, *target.used, *target.unreduced})
        if (known.cost[1] <= 1 and not copies) or self.at_least(dims, nbytes, source, target) >= ceiling:
            return known
        goal = self._goal(dims, nbytes, source, target)
        goal = replace(goal, limit=max(goal.limit, *self._sizes(known, dims), 0), node_budget=_NODE_BUDGET // 4)
        devices, size = self.table.mesh.size, max(1, nbytes * math.prod(dims))
        like = (tuple(n if n % devices else devices for n in dims), size.bit_length() // 2, source, target)
        if like not in self._like:
            found = self._find_fastest(replace(goal, ceiling=ceiling), source)
            self._like[like] = found
            return known if found is None else found
        kept = self._like[like]
        if kept is None or max(self._sizes(kept, dims)) > goal.limit:
            return known
        priced = self._reprice(dims, nbytes, kept)
        return priced if priced.cost[0] < ceiling else known

    def _sizes(self, path: Path, dims: tuple[int, ...]) -> list[int]:
        """Elements of a device's part after each step."""
        return [math.prod(self.table.local_dims(step.after, dims)) for step in path.steps]

    def _find_fastest(self, goal: _Goal, source: AxisLayout) -> Path | None:
        """The best path below the goal's ceiling that is found with few blocks and with many."""
        known, ceiling = None, goal.ceiling
        for blocks in dict.fromkeys((blocks_of(self.table, source, goal.trials.target), goal.trials.blocks)):
            found = self._find(replace(goal, trials=replace(goal.trials, blocks=blocks), ceiling=ceiling), source)
            if found is not None:
                known, ceiling = found, found.cost[0]
        return known

    def _goal(self, dims: tuple[int, ...], nbytes: int, source: AxisLayout, target: AxisLayout) -> _Goal:
        table = self.table
        ends = [math.prod(table.local_dims(x, dims)) for x in (source, target)]
        uneven = tuple(d for d, n in enumerate(dims) if n % table.mesh.size)
        blocks = blocks_of(table, source, target, cut=True)
        if len(set(blocks)) > _FEW:
            blocks = blocks_of(table, source, target)
        trials = Trials(table, target, blocks, self._by_bytes is not None, uneven)
        return _Goal(dims, nbytes, trials, max(ends), ends[1])

    def _find(self, goal: _Goal, source: AxisLayout) -> Path | None:
        """A* with `_at_least` as the bound; after ``goal.trials`` states the best path so far, if any."""
        best: dict[AxisLayout, tuple[float, int, int]] = {source: (0.0, 0, 0)}
        back: dict[AxisLayout, ReshardStep] = {}
        heap: list[tuple[float, int, int, int, AxisLayout]] = [(self._at_least(goal, source), 0, 0, 0, source)]
        done: set[AxisLayout] = set()
        ceiling, pushed = goal.ceiling, 0
        while heap and len(done) < goal.node_budget:
            least, *_, state = heapq.heappop(heap)
            if state in done:
                continue
            done.add(state)
            if state is goal.target:
                break
            sent, collectives, length = best[state]
            for move, after in goal.trials.moves(state):
                if after in done or not self._allows(goal, after):
                    continue
                step = ReshardStep(state, move, after)
                more = self.price.step(goal.dims, goal.nbytes, step)
                total = (round(sent + more[0], 15), collectives + more[1], length + 1)
                if total[0] >= ceiling:
                    continue
                bound = total[0] + goal.heuristic_weight * self._at_least(goal, after)
                if after is goal.target and total[0] <= least * (1 + _EXACT) and total[1] <= 1:
                    # Nothing can be cheaper than the bound, or fewer than one collective.
                    back[after] = step
                    return Path(total[:2], _walk_back(back, source, after))
                if bound < ceiling * (1 - _EXACT) and (after not in best or total < best[after]):
                    best[after], back[after] = total, step
                    pushed += 1
                    if after is goal.target and ceiling < math.inf:
                        ceiling = total[0]
                    heapq.heappush(heap, (bound, total[1], total[2], pushed, after))
        if goal.target not in best:
            return None
        return Path(best[goal.target][:2], _walk_back(back, source, goal.target))

    def _at_least(self, goal: _Goal, state: AxisLayout) -> float:
        whole = goal.nbytes * math.prod(goal.dims)
        return self._bounds.least(whole, goal.nbytes * goal.size, state, goal.target)

    def _allows(self, goal: _Goal, state: AxisLayout) -> bool:
        small = math.prod(self.table.local_dims(state, goal.dims)) <= goal.limit
        return small and self.table.extent(state.used) >= goal.shards


def _walk_back(back: dict[AxisLayout, ReshardStep], source: AxisLayout, end: AxisLayout) -> tuple[ReshardStep, ...]:
    steps: list[ReshardStep] = []
    while end is not source:
        steps.append(back[end])
        end = back[end].before
    return tuple(reversed(steps))
