"""The direct way from one layout to another: a path that needs no search, most often the one that a search finds.

What makes parts smaller goes first, what makes them larger last: slices, reduce-scatters, exchanges, reductions of what
nobody splits, permutes, gathers. What becomes partial is split until the end, and padded there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    ReshardStep,
    Slice,
)

__all__ = ["direct_way"]

#: A move, and the dimensions and partial axes behind it.
_Next = tuple[Move, list[Atoms], Atoms]


def direct_way(table: AxisTable, source: AxisLayout, target: AxisLayout) -> tuple[ReshardStep, ...]:
    """Steps from ``source`` to ``target``, in order. Example: from partial sums to parts, one reduce-scatter."""
    kept = [a for a in source.unreduced if a in target.unreduced and source.reduction == target.reduction]
    padded = [tuple(a for a in old if a in target.unreduced) for old in source.dims]
    aim = table.layout((new + more for new, more in zip(target.dims, padded, strict=True)), kept, source.reduction)
    steps = list(_DirectWay(table, source, aim).steps())
    state = aim
    for d, atoms in enumerate(padded):
        if atoms:
            dims = (*state.dims[:d], target.dims[d], *state.dims[d + 1 :])
            after = table.layout(dims, (*state.unreduced, *atoms), target.reduction)
            steps.append(ReshardStep(state, PadPart(d, atoms, target.reduction), after))
            state = after
    if state is not target:
        more = tuple(a for a in target.unreduced if a not in state.unreduced)
        steps.append(ReshardStep(state, MakePartial(more, target.reduction), target))
    return tuple(steps)


class _DirectWay:
    """``state`` is where the way to ``target`` has come to; nothing becomes partial on it."""

    def __init__(self, table: AxisTable, source: AxisLayout, target: AxisLayout) -> None:
        self.table = table
        self.state = source
        self.target = target

    def steps(self) -> Iterator[ReshardStep]:
        while self.state is not self.target:
            before = self.state
            move, dims, partial = next(
                found
                for find in (self._slice, self._scatter, self._exchange, self._reduce, self._permute, self._enlarge)
                if (found := find()) is not None
            )
            self.state = self.table.layout(dims, partial, before.reduction)
            yield ReshardStep(before, move, self.state)

    def _slice(self) -> _Next | None:
        busy = {*self.state.used, *self.state.unreduced}
        for d, run in self._runs(lambda a: a not in busy):
            return Slice(d, run), self._dims(d, run), self.state.unreduced
        return None

    def _scatter(self) -> _Next | None:
        finished = self._finished()
        for d, run in self._runs(finished.__contains__):
            return ReduceScatter(d, run), self._dims(d, run), self._partial_without(run)
        return None

    def _exchange(self) -> _Next | None:
        """What a dimension wants next is the minor-most of another one that it leaves."""
        for t, (have, want) in enumerate(self._ends()):
            more = want[len(have) :] if want[: len(have)] == have else ()
            for s, (old, new) in enumerate(self._ends()):
                for n in range(min(len(more), len(old)), 0, -1):
                    if s != t and old[-n:] == more[:n] and new[: len(old) - n + 1] != old[: len(old) - n + 1]:
                        dims = self._dims(t, more[:n])
                        dims[s] = old[:-n]
                        return AllToAll(((s, t, more[:n]),)), dims, self.state.unreduced
        return None

    def _reduce(self) -> _Next | None:
        early = tuple(a for a in self._finished() if a not in self.target.used)
        return (AllReduce(early), list(self.state.dims), self._partial_without(early)) if early else None

    def _permute(self) -> _Next | None:
        """All dimensions that have as many parts as they should, where devices can exchange whole parts."""
        ends, extent = list(self._ends()), self.table.extent
        changed = [old != new and extent(old) == extent(new) for old, new in ends]
        dims = [new if other else old for (old, new), other in zip(ends, changed, strict=True)]
        kept = {a for (old, _), other in zip(ends, changed, strict=True) if not other for a in old}
        kept.update(self.state.unreduced)
        moved = {a for atoms, other in zip(dims, changed, strict=True) if other for a in atoms}
        return (Permute(), dims, self.state.unreduced) if any(changed) and not moved & kept else None

    def _enlarge(self) -> _Next:
        for d, (old, new) in enumerate(self._ends()):
            same = 0
            while same < min(len(old), len(new)) and old[same] == new[same]:
                same += 1
            if same < len(old):
                dims = list(self.state.dims)
                dims[d] = old[:same]
                return Gather(d, old[same:]), dims, self.state.unreduced
        finished = self._finished()
        return AllReduce(finished), list(self.state.dims), self._partial_without(finished)

    # -- helpers ---------------------------------------------------------------------------------------------

    def _ends(self) -> Iterator[tuple[Atoms, Atoms]]:
        return zip(self.state.dims, self.target.dims, strict=True)

    def _finished(self) -> Atoms:
        return tuple(a for a in self.state.unreduced if a not in self.target.unreduced)

    def _runs(self, fits: Callable[[int], bool]) -> Iterator[tuple[int, Atoms]]:
        """What dimensions want next of the atoms that fit; where their first ones are wrong, whatever they want, as far
        as a permute can put it right."""
        for d, (old, new) in enumerate(self._ends()):
            if new[: len(old)] == old:
                run = new[len(old) :]
                wrong = [n for n, a in enumerate(run) if not fits(a)]
                run = run[: wrong[0]] if wrong else run
            else:
                run = tuple(filter(fits, new))
                run = run if self.table.extent(new) % self.table.extent(old + run) == 0 else ()
            if run:
                yield d, run

    def _dims(self, d: int, more: Atoms) -> list[Atoms]:
        dims = list(self.state.dims)
        dims[d] += more
        return dims

    def _partial_without(self, atoms: Atoms) -> Atoms:
        return tuple(a for a in self.state.unreduced if a not in atoms)
