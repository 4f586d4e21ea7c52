"""Which moves are worth trying on the way from one layout to another.

Shards never become smaller than the target's without a reason: a slice or an exchange brings an axis to a dimension
that the target splits by it, or one of the same size that a permute puts into its place. Blocks are runs of atoms that
both ends keep together; they move as one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations

from shardc.partitioner.emit.layout import Atoms, AxisLayout, AxisTable
from shardc.partitioner.reshard.moves import (
    AllReduce,
    AllToAll,
    Gather,
    MakePartial,
    Move,
    PadPart,
    Permute,
    ReduceScatter,
    Slice,
)

__all__ = ["Blocks", "Trials", "blocks_of"]

#: With no more blocks than this, what rarely helps is tried too.
_FEW = 4

#: For each atom, the first atom of its block.
Blocks = tuple[int, ...]

#: A dimension and an index among its atoms.
_Place = tuple[int, int]
_UNUSED: _Place = (-1, 0)


def blocks_of(table: AxisTable, source: AxisLayout, target: AxisLayout, *, cut: bool = False) -> Blocks:
    """For each atom, the first atom of the run it belongs to: neighbours in both layouts.

    With ``cut``, runs that move are cut into parts of equal size, so that a part of one can stand in for another.
    """
    old, new = _places(table, source), _places(table, target)
    starts: list[int] = []
    for a in range(table.count):
        joined = a > 0 and old[a] == _after(old[a - 1]) and new[a] == _after(new[a - 1])
        starts.append(starts[-1] if joined else a)
    return _cut(table, old, new, starts) if cut else tuple(starts)


def _cut(table: AxisTable, old: Sequence[_Place], new: Sequence[_Place], starts: Sequence[int]) -> Blocks:
    moving = [a for a in range(table.count) if old[a][0] != new[a][0]]
    if not moving:
        moving = [a for a in range(table.count) if old[a] != new[a]]
    lengths = Counter(starts[a] for a in moving).values()
    unit = math.gcd(*lengths) if len({table.extents[a] for a in moving}) == 1 else 1
    inside = frozenset(moving)
    return tuple(a - (a - first) % unit if a in inside else first for a, first in enumerate(starts))


def _places(table: AxisTable, layout: AxisLayout) -> list[_Place]:
    """For each atom, which dimension it splits, at which place; partial ones count as one more, unused ones as -1."""
    out = [_UNUSED] * table.count
    for d, atoms in enumerate((*layout.dims, layout.unreduced)):
        for i, a in enumerate(atoms):
            out[a] = (d, i)
    return out


def _after(place: _Place) -> _Place:
    return (place[0], place[1] + 1) if place[0] >= 0 else place


@dataclass(frozen=True)
class Trials:
    """Moves worth trying towards ``target``.

    With ``share``, devices that hold copies may also split them up to share the work of what follows. Along ``uneven``
    dimensions two slices are more than one.
    """

    table: AxisTable
    target: AxisLayout
    blocks: Blocks
    share: bool = False
    uneven: tuple[int, ...] = ()

    @cached_property
    def thorough(self) -> bool:
        """Whether there are so few blocks that moves that rarely help are tried too."""
        return len(set(self.blocks)) <= _FEW

    @cached_property
    def place(self) -> Sequence[_Place]:
        """Where the target has each atom."""
        return _places(self.table, self.target)

    @cached_property
    def whole(self) -> Mapping[int, int]:
        """How many atoms each block has."""
        return Counter(self.blocks)

    def moves(self, state: AxisLayout) -> Iterator[tuple[Move, AxisLayout]]:
        """Moves from ``state``, each with the layout it leads to."""
        return _Trial(self, state).all()


class _Trial:
    """The moves from one state."""

    def __init__(self, trials: Trials, state: AxisLayout) -> None:
        self.trials = trials
        self.table = trials.table
        self.target = trials.target
        self.blocks = trials.blocks
        self.state = state
        self.partial = frozenset(state.unreduced)
        self.busy = state.used | self.partial
        self.free = frozenset(range(self.table.count)) - self.busy

    def all(self) -> Iterator[tuple[Move, AxisLayout]]:
        leaving: list[tuple[int, Atoms]] = []
        for d, atoms in enumerate(self.state.dims):
            if self.target.dims[d][: len(atoms)] != atoms:
                for take in self._suffixes(atoms):
                    leaving.append((d, take))
                    yield Gather(d, take), self._with({d: atoms[: len(atoms) - len(take)]})
            for run in self._runs(d, self.free, share=self.trials.share):
                yield Slice(d, run), self._with({d: atoms + run})
            for run in self._runs(d, self.partial, share=True):
                rest = tuple(a for a in self.state.unreduced if a not in run)
                yield ReduceScatter(d, run), self._with({d: atoms + run}, rest)
        single = [(s, t, take) for s, take in leaving for t in range(len(self.state.dims)) if self._suits(s, t, take)]
        for part in single:
            yield self._exchange((part,))
        yield from self._partial()
        yield from self._permutes()
        if len(self.state.dims) > 2:
            yield from self._exchanges([p for p in single if self._aim(p[1], p[2])])

    # -- all-to-all ------------------------------------------------------------------------------------------

    def _exchanges(self, single: Sequence[tuple[int, int, Atoms]]) -> Iterator[tuple[Move, AxisLayout]]:
        """Two exchanges at once, where sources and targets differ."""
        for parts in combinations(single, 2):
            (s, t, _), (u, v, _) = parts
            if s != u and not {s, u} & {t, v}:
                yield self._exchange(parts)
                if t == v:
                    yield self._exchange(parts[::-1])
        for s, v, take in single:
            for cut in range(1, len(take)):
                major, minor = take[:cut], take[cut:]
                for t in range(len(self.state.dims)):
                    if t not in (s, v) and self._aim(t, minor) and self.blocks[minor[0]] == minor[0]:
                        yield self._exchange(((s, v, major), (s, t, minor)))

    def _exchange(self, parts: tuple[tuple[int, int, Atoms], ...]) -> tuple[Move, AxisLayout]:
        dims = dict(enumerate(self.state.dims))
        for s, t, take in parts:
            dims[s] = tuple(a for a in dims[s] if a not in take)
            dims[t] += take
        return AllToAll(parts), self._with(dims)

    def _suits(self, s: int, t: int, take: Atoms) -> bool:
        """Whether the target splits dimension ``t`` by some of these atoms, or by others that may replace them."""
        if s == t or self.blocks[take[0]] != take[0]:
            return False
        return self.trials.thorough or self._aim(t, take) or self._fits(t, take, self.target.dims[t], self.table)

    def _aim(self, t: int, take: Atoms) -> bool:
        return not set(take).isdisjoint(self.target.dims[t])

    def _fits(self, d: int, more: Atoms, wanted: Atoms, table: AxisTable) -> bool:
        whole = table.extent(wanted)
        return whole > 1 and whole % (table.extent(self.state.dims[d]) * table.extent(more)) == 0

    # -- slices and reduce-scatters --------------------------------------------------------------------------

    def _runs(self, d: int, free: frozenset[int], *, share: bool) -> Iterator[Atoms]:
        """What could be appended to dimension ``d`` of the atoms that are ``free``.

        Its wanted atoms in order, all or the first blocks; where the next wanted one is not free, later ones may go
        first, or others in its place: a permute puts them right in the end.
        """
        atoms, wanted = self.state.dims[d], self.target.dims[d]
        loose = tuple(a for a in wanted if a in free)
        next_up: Atoms = ()
        if wanted[: len(atoms)] == atoms:
            for a in wanted[len(atoms) :]:
                if a not in free:
                    break
                next_up += (a,)
        found: dict[Atoms, None] = {}
        for candidates in (next_up, loose):
            for end in range(1, len(candidates) + 1):
                if end == len(candidates) or self.blocks[candidates[end]] != self.blocks[candidates[end - 1]]:
                    found[candidates[:end]] = None
        blocks = list(self._free_blocks(free))
        if self.trials.thorough and d in self.trials.uneven:
            for n in range(2, len(blocks) + 1):
                found |= {sum(order, ()): None for order in permutations(blocks, n)}
        for block in blocks:
            if share or self._fits(d, block, wanted, self.table) or not self.target.used.isdisjoint(block):
                found[block] = None
        yield from found

    def _free_blocks(self, free: frozenset[int]) -> Iterator[Atoms]:
        members: dict[int, list[int]] = {}
        for a in sorted(free):
            members.setdefault(self.blocks[a], []).append(a)
        whole = self.trials.whole
        yield from (tuple(block) for first, block in members.items() if len(block) == whole[first])

    # -- partial values --------------------------------------------------------------------------------------

    def _partial(self) -> Iterator[tuple[Move, AxisLayout]]:
        """All-reduces, and the free ways back: one member keeps the value and the others hold the identity, or each
        pads its part with that."""
        state, target = self.state, self.target
        same = state.reduction == target.reduction or not target.unreduced
        finished = tuple(a for a in state.unreduced if not same or a not in target.unreduced)
        if finished:
            yield AllReduce(finished), self._with({}, tuple(a for a in state.unreduced if a not in finished))
            scattered = {a for atoms in target.dims for a in atoms}
            early = tuple(a for a in finished if a not in scattered)
            if early and early != finished:
                yield AllReduce(early), self._with({}, tuple(a for a in state.unreduced if a not in early))
        start = tuple(a for a in target.unreduced if a not in self.busy)
        if state.unreduced and not same:
            return
        if start:
            unreduced = (*state.unreduced, *start)
            yield MakePartial(start, target.reduction), self.table.layout(state.dims, unreduced, target.reduction)
        for d, atoms in enumerate(state.dims):
            for take in self._suffixes(atoms):
                if set(take).issubset(target.unreduced):
                    dims = (*state.dims[:d], atoms[: len(atoms) - len(take)], *state.dims[d + 1 :])
                    after = self.table.layout(dims, (*state.unreduced, *take), target.reduction)
                    yield PadPart(d, take, target.reduction), after

    # -- permutes --------------------------------------------------------------------------------------------

    def _permutes(self) -> Iterator[tuple[Move, AxisLayout]]:
        """Same shard sizes, other devices: the target's axes first, in one dimension or in all of them."""
        state, target, table = self.state, self.target, self.table
        heads: dict[int, list[Atoms]] = {}
        for d, atoms in enumerate(state.dims):
            wanted = target.dims[d]
            if atoms and wanted[: len(atoms)] != atoms:
                extent = table.extent(atoms)
                fitting = (wanted[:n] for n in range(1, len(wanted) + 1) if extent % table.extent(wanted[:n]) == 0)
                loose = tuple(a for a in wanted if a in atoms)
                heads[d] = list(dict.fromkeys((*fitting, loose)))
        options = [{d: h} for d, hs in heads.items() for h in hs]
        if len(heads) > 1:
            options.append({d: max(hs, key=table.extent) for d, hs in heads.items()})
        found: dict[tuple[Atoms, ...], None] = {}
        for chosen in options:
            dims = self._fill(chosen)
            if dims is not None and dims != state.dims:
                found[dims] = None
        for dims in found:
            yield Permute(), table.layout(dims, state.unreduced, state.reduction)

    def _fill(self, heads: dict[int, Atoms]) -> tuple[Atoms, ...] | None:
        """Dimensions of the same extents that begin with ``heads``; the rest are axes they had, lost, or free ones."""
        table, state = self.table, self.state
        taken = {a for head in heads.values() for a in head}
        if taken & self.partial:
            return None
        dims: list[Atoms] = []
        lacking: list[list[int]] = []
        kept = set(taken)
        for d, atoms in enumerate(state.dims):
            head = heads.get(d, ())
            own = sorted((a for a in atoms if a not in taken), key=self.trials.place.__getitem__)
            lack = [table.extents[a] for a in atoms]
            for a in head:
                if table.extents[a] not in lack:
                    return None
                lack.remove(table.extents[a])
            rest: list[int] = []
            for a in own:
                if table.extents[a] in lack:
                    lack.remove(table.extents[a])
                    rest.append(a)
            kept.update(rest)
            dims.append((*head, *rest))
            lacking.append(lack)
        lost = [a for atoms in state.dims for a in atoms if a not in kept]
        free = sorted(self.free - kept)
        for d, lack in enumerate(lacking):
            for extent in lack:
                more = next((a for a in (*lost, *free) if a not in kept and table.extents[a] == extent), None)
                if more is None:
                    return None
                kept.add(more)
                dims[d] += (more,)
        return tuple(self._leave_late(heads.get(d, ()), atoms) for d, atoms in enumerate(dims))

    def _leave_late(self, head: Atoms, atoms: Atoms) -> Atoms:
        """Behind ``head`` those first that become partial: parts are padded for nothing when all else is done."""
        partial = self.target.unreduced
        return head + tuple(sorted(atoms[len(head) :], key=lambda a: a not in partial))

    # -- helpers ---------------------------------------------------------------------------------------------

    def _suffixes(self, atoms: Atoms) -> Iterator[Atoms]:
        """The minor-most parts of ``atoms`` that do not cut a block."""
        for start in range(len(atoms)):
            a = atoms[start]
            if start == 0 or self.blocks[a] != self.blocks[atoms[start - 1]]:
                yield atoms[start:]

    def _with(self, dims: dict[int, Atoms], unreduced: Atoms | None = None) -> AxisLayout:
        state = self.state
        return self.table.layout(
            (dims.get(d, atoms) for d, atoms in enumerate(state.dims)),
            state.unreduced if unreduced is None else unreduced,
            state.reduction,
        )
