"""A topological order of clusters that stays one while clusters are joined.

As in Pearce and Kelly's dynamic topological sort (JEA 2006), a change reorders only what stands between the two
clusters that it concerns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction, has_side_effect

__all__ = ["Cluster", "ClusterOrder"]


@dataclass(slots=True, eq=False)
class Cluster:
    """Instructions in program order; ``position`` is where the cluster stands."""

    members: list[Instruction]
    position: int

    @property
    def has_effect(self) -> bool:
        return any(map(has_side_effect, self.members))


class ClusterOrder:
    """A topological order of clusters that stays one while clusters are joined.

    Two clusters are joined only when they stand at most ``window`` places apart, so a join takes time in proportion
    to that and not to the program.
    """

    def __init__(
        self, clusters: Sequence[Sequence[Instruction]], users: Mapping[Instruction, Sequence[Instruction]], window: int
    ) -> None:
        self._places: list[Cluster | None] = [Cluster(list(members), n) for n, members in enumerate(clusters)]
        self.of = {m: c for c in self for m in c.members}
        self._users = users
        self.window = window

    def join(self, a: Cluster, b: Cluster) -> bool:
        """Make ``a`` the cluster of both; False, and nothing changes, where a third one would have to be between."""
        first, last = (a, b) if a.position < b.position else (b, a)
        start, end = first.position, last.position
        if end - start > self.window:
            return False
        behind = self._behind(first, last)
        region = [c for c in self._places[start + 1 : end] if c is not None]
        if behind is None or not _effects_stay(region, behind):
            return False
        after = [c for c in region if c in behind]
        before = [c for c in region if c not in behind]
        a.members = [*first.members, *last.members]
        for m in b.members:
            self.of[m] = a
        moved: list[Cluster | None] = [*before, a, *after]
        moved += [None] * (end + 1 - start - len(moved))
        self._places[start : end + 1] = moved
        for position, c in enumerate(moved, start):
            if c is not None:
                c.position = position
        return True

    def __iter__(self) -> Iterator[Cluster]:
        return (c for c in self._places if c is not None)

    def _behind(self, first: Cluster, last: Cluster) -> set[Cluster] | None:
        """What stands between the two and depends on ``first``; None if ``last`` depends on some of it."""
        found: set[Cluster] = set()
        stack = [first]
        while stack:
            c = stack.pop()
            for reader in self._readers(c):
                if reader is last and c is not first:
                    return None
                if reader is not last and reader.position < last.position and reader not in found:
                    found.add(reader)
                    stack.append(reader)
        return found

    def _readers(self, c: Cluster) -> Iterator[Cluster]:
        for m in c.members:
            for u in self._users[m]:
                reader = self.of.get(u)
                if reader is not None and reader is not c:
                    yield reader


def _effects_stay(region: Sequence[Cluster], behind: set[Cluster]) -> bool:
    """Whether clusters with effects would keep their order if everything ``behind`` moved to the end."""
    moved = False
    for c in region:
        if c.has_effect:
            if moved and c not in behind:
                return False
            moved |= c in behind
    return True
