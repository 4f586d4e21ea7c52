"""Resharding: the cheapest way from one layout to another.

`Resharder.path` searches over layouts (A* on bytes sent, then number of collectives). Moves are
those of `moves.py`. States never exceed the larger padded shard of the two ends, so a path through full
replication is only taken when an end is replicated. Where the padding of small uneven sizes rules that out, states
are at least split into as many shards as the less split end. Atoms that always move together are treated as one at
first and split up only when that finds nothing.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardc.collectives.machine import Machine
from shardc.partitioner.layout import Atoms, AxisTable, Layout
from shardc.partitioner.moves import (
    AllReduce,
    AllToAll,
    Cost,
    Gather,
    Move,
    Partial,
    Permute,
    ReduceScatter,
    Slice,
    Step,
)
from shardc.partitioner.price import Bytes, Price, Seconds

__all__ = ["Path", "Resharder"]


#: States looked at before a search takes what it has or gives up; simple reshards need fewer than twenty.
_PATIENCE = 400


@dataclass(frozen=True, slots=True)
class Path:
    """Steps in order, and what they cost together."""

    cost: Cost
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class _Goal:
    """What one search is about."""

    dims: tuple[int, ...]
    nbytes: int
    target: Layout
    blocks: tuple[int, ...]
    limit: float = math.inf
    shards: int = 1
    patience: float = math.inf
    size: int = 0


class Resharder:
    """Finds paths and remembers them by dimensions, element size and the two layouts.

    Costs are bytes, or seconds when a ``machine`` is given, and numbers of collectives.
    """

    def __init__(self, table: AxisTable, machine: Machine | None = None) -> None:
        self.table = table
        self.price: Price = Bytes(table) if machine is None else Seconds(table, machine)
        self._paths: dict[tuple[tuple[int, ...], int, Layout, Layout], Path] = {}

    def path(self, dims: tuple[int, ...], nbytes: int, source: Layout, target: Layout) -> Path:
        """The cheapest path for an array of global ``dims`` with elements of ``nbytes``."""
        key = (dims, nbytes, source, target)
        found = self._paths.get(key)
        if found is None:
            found = self._paths[key] = self._search(*key)
        return found

    def cost(self, dims: tuple[int, ...], nbytes: int, source: Layout, target: Layout) -> Cost:
        """Bytes sent per device (or seconds) and number of collectives of that path."""
        return (0.0, 0) if source is target else self.path(dims, nbytes, source, target).cost

    def _search(self, dims: tuple[int, ...], nbytes: int, source: Layout, target: Layout) -> Path:
        if source is target:
            return Path((0.0, 0), ())
        ends = [math.prod(self.table.local_dims(x, dims)) for x in (source, target)]
        coarse, fine = _blocks(self.table, source, target), tuple(range(self.table.count))
        fewest = min(self.table.extent(x.used) for x in (source, target))
        for blocks, limit, shards, patience in (
            (coarse, max(ends), 1, _PATIENCE),
            (fine, max(ends), 1, _PATIENCE),
            (fine, math.inf, fewest, _PATIENCE),
            (coarse, math.inf, 1, math.inf),
        ):
            goal = _Goal(dims, nbytes, target, blocks, limit, shards, patience, ends[1])
            found = self._find(goal, source)
            if found is not None:
                return found
        raise AssertionError(f"no path from {source} to {target}")

    def _find(self, goal: _Goal, source: Layout) -> Path | None:
        """A* with `_at_least` as the bound; after ``goal.patience`` states the best path so far, if any."""
        best: dict[Layout, tuple[float, int, int]] = {source: (0.0, 0, 0)}
        back: dict[Layout, Step] = {}
        heap: list[tuple[float, int, int, int, Layout]] = [(0.0, 0, 0, 0, source)]
        done: set[Layout] = set()
        pushed = 0
        while heap and len(done) < goal.patience:
            state = heapq.heappop(heap)[-1]
            if state in done:
                continue
            done.add(state)
            if state is goal.target:
                break
            wire, collectives, length = best[state]
            for move, after in _moves(self.table, goal, state):
                if after in done or not self._allowed(goal, after):
                    continue
                step = Step(state, move, after)
                more = self.price.step(goal.dims, goal.nbytes, step)
                total = (wire + more[0], collectives + more[1], length + 1)
                if after not in best or total < best[after]:
                    best[after] = total
                    back[after] = step
                    pushed += 1
                    bound = total[0] + self._at_least(goal, after)
                    heapq.heappush(heap, (bound, total[1], total[2], pushed, after))
        if goal.target not in best:
            return None
        return Path(best[goal.target][:2], _walk_back(back, source, goal.target))

    def _at_least(self, goal: _Goal, state: Layout) -> float:
        """Bytes that a device must still receive: what of its target shard it does not hold, or has to reduce."""
        table, target = self.table, goal.target
        held = 1
        for old, new in zip(state.dims, target.dims, strict=True):
            common = 0
            while common < min(len(old), len(new)) and old[common] == new[common]:
                common += 1
            held *= table.extent(old[common:])
        partial = table.extent(a for a in state.unreduced if a not in target.unreduced)
        return self.price.at_least(goal.nbytes * goal.size * (1 - 1 / max(held, partial)))

    def _allowed(self, goal: _Goal, state: Layout) -> bool:
        small = math.prod(self.table.local_dims(state, goal.dims)) <= goal.limit
        return small and self.table.extent(state.used) >= goal.shards


def _walk_back(back: dict[Layout, Step], source: Layout, end: Layout) -> tuple[Step, ...]:
    steps: list[Step] = []
    while end is not source:
        steps.append(back[end])
        end = back[end].before
    return tuple(reversed(steps))


def _blocks(table: AxisTable, source: Layout, target: Layout) -> tuple[int, ...]:
    """For each atom, the first atom of the run it belongs to: neighbours in both layouts."""
    following: list[set[int | None]] = [set() for _ in range(table.count)]
    for layout in (source, target):
        for atoms in (*layout.dims, layout.unreduced):
            for i, a in enumerate(atoms):
                following[a].add(atoms[i + 1] if i + 1 < len(atoms) else None)
    starts: list[int] = []
    for a in range(table.count):
        joined = a > 0 and following[a - 1] == {a} and _seen(a, source) == _seen(a - 1, source)
        joined = joined and _seen(a, target) == _seen(a - 1, target)
        starts.append(starts[a - 1] if joined else a)
    return tuple(starts)


def _seen(atom: int, layout: Layout) -> int | None:
    for d, atoms in enumerate(layout.dims):
        if atom in atoms:
            return d
    return -1 if atom in layout.unreduced else None


def _moves(table: AxisTable, goal: _Goal, state: Layout) -> Iterator[tuple[Move, Layout]]:
    """Moves worth trying from ``state``, each with the layout it leads to."""
    target = goal.target
    busy = state.used | frozenset(state.unreduced)
    for d, atoms in enumerate(state.dims):
        wanted = target.dims[d]
        settled = wanted[: len(atoms)] == atoms
        for take in _suffixes(goal, atoms) if not settled else ():
            kept = atoms[: len(atoms) - len(take)]
            yield Gather(d, take), _with(table, state, {d: kept})
            for e in range(len(state.dims)):
                if e != d and set(take) & set(target.dims[e]):
                    yield AllToAll(((d, e, take),)), _with(table, state, {d: kept, e: state.dims[e] + take})
        for run in _runs(goal, atoms, wanted, lambda a: a not in busy):
            yield Slice(d, run), _with(table, state, {d: atoms + run})
        for run in _runs(goal, atoms, wanted, lambda a: a in state.unreduced):
            rest = tuple(a for a in state.unreduced if a not in run)
            yield ReduceScatter(d, run), _with(table, state, {d: atoms + run}, rest)
    yield from _partial_moves(table, goal, state, busy)
    yield from _permutes(table, goal, state, busy)


def _partial_moves(table: AxisTable, goal: _Goal, state: Layout, busy: frozenset[int]) -> Iterator[tuple[Move, Layout]]:
    """All-reduces, and the free way back: one member keeps the value, the others hold the identity."""
    target = goal.target
    same = state.reduction == target.reduction or not target.unreduced
    finished = tuple(a for a in state.unreduced if not same or a not in target.unreduced)
    if finished:
        yield AllReduce(finished), _with(table, state, {}, tuple(a for a in state.unreduced if a not in finished))
        scattered = {a for atoms in target.dims for a in atoms}
        early = tuple(a for a in finished if a not in scattered)
        if early and early != finished:
            yield AllReduce(early), _with(table, state, {}, tuple(a for a in state.unreduced if a not in early))
    start = tuple(a for a in target.unreduced if a not in busy)
    if start and (not state.unreduced or same):
        unreduced = (*state.unreduced, *start)
        yield Partial(start, target.reduction), table.layout(state.dims, unreduced, target.reduction)


def _permutes(table: AxisTable, goal: _Goal, state: Layout, busy: frozenset[int]) -> Iterator[tuple[Move, Layout]]:
    """Same shard sizes, other devices: the target itself, target axes first, or target axes instead."""
    target = goal.target
    extents = [table.extent(a) for a in state.dims]
    held = set(state.unreduced)
    options: list[tuple[Atoms, ...]] = []
    if extents == [table.extent(a) for a in target.dims]:
        options.append(target.dims)
    for d, atoms in enumerate(state.dims):
        wanted = target.dims[d]
        if not atoms or wanted[: len(atoms)] == atoms:
            continue
        first = tuple(a for a in wanted if a in atoms)
        ordered = first + tuple(a for a in atoms if a not in first)
        options.append((*state.dims[:d], ordered, *state.dims[d + 1 :]))
        heads = (wanted[:n] for n in range(1, len(wanted) + 1))
        fitting = (h for h in heads if table.extent(h) == extents[d] and all(a in atoms or a not in busy for a in h))
        options.extend((*state.dims[:d], h, *state.dims[d + 1 :]) for h in fitting)
    for dims in options:
        used = [a for atoms in dims for a in atoms]
        if dims != state.dims and len(set(used)) == len(used) and not held & set(used):
            yield Permute(), table.layout(dims, state.unreduced, state.reduction)


def _suffixes(goal: _Goal, atoms: Atoms) -> Iterator[Atoms]:
    """The minor-most parts of ``atoms`` that do not cut a block."""
    for start in range(len(atoms)):
        a = atoms[start]
        if start == 0 or goal.blocks[a] != goal.blocks[atoms[start - 1]]:
            yield atoms[start:]


def _runs(goal: _Goal, atoms: Atoms, wanted: Atoms, free: Callable[[int], bool]) -> Iterator[Atoms]:
    """What could be appended to ``atoms`` on the way to ``wanted``: its free atoms in order, all or the first blocks.

    Where the next wanted atom is not free, later ones may go first; a permute puts them in order in the end.
    """
    loose = tuple(a for a in wanted if a not in atoms and free(a))
    next_up: Atoms = ()
    if wanted[: len(atoms)] == atoms:
        for a in wanted[len(atoms) :]:
            if not free(a):
                break
            next_up += (a,)
    for candidates in dict.fromkeys((next_up, loose)):
        for end in range(1, len(candidates) + 1):
            if end == len(candidates) or goal.blocks[candidates[end]] != goal.blocks[candidates[end - 1]]:
                yield candidates[:end]


def _with(table: AxisTable, state: Layout, dims: dict[int, Atoms], unreduced: Atoms | None = None) -> Layout:
    return table.layout(
        (dims.get(d, atoms) for d, atoms in enumerate(state.dims)),
        state.unreduced if unreduced is None else unreduced,
        state.reduction,
    )
