"""Rounds of candidates: every group's search to its end, then the best ones once more, partitioned for the machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shardc.analysis.sweep.assess import Outcome, SweepCandidate, SweepSettings
from shardc.analysis.sweep.meshes import MeshSearch, Sizes
from shardc.analysis.sweep.result_cache import OutcomeCache
from shardc.analysis.sweep.sets import AnnotationSet
from shardc.analysis.sweep.workers import Assessment, Assessor
from shardc.hlo.errors import RunError

__all__ = ["Group", "Progress", "SearchRounds"]

#: What has been done, and how much that is of how much at most.
Progress = Callable[[int, int], None]


class Group:
    """The meshes of one set and one number of devices, and what has been found of them. ``program`` is the digest in
    its candidates' `Assessment`."""

    def __init__(
        self,
        source: int,
        program: str,
        chosen: AnnotationSet,
        axes: Sequence[str],
        meshes: tuple[Sizes, ...],
        limit: int,
        devices: int,
    ) -> None:
        self.source, self.program, self.set, self.axes, self.devices = source, program, chosen, axes, devices
        self.search = MeshSearch(meshes, limit)
        self.found: dict[Sizes, Outcome] = {}

    def next(self) -> list[Sizes]:
        """The meshes of the next round."""
        if not self.found:
            return self.search.first()
        return self.search.following({m: o.step_seconds if o.runs else math.inf for m, o in self.found.items()})

    def candidate(self, mesh: Sizes) -> SweepCandidate:
        sizes = dict(zip(self.axes, mesh, strict=True))
        return SweepCandidate(self.devices, sizes, self.set.name, self.set.specs, self.source, self.set.auto)


@dataclass
class SearchRounds:
    """Rounds of candidates until every group's search is over, then the best ones once more; of ``most`` in all."""

    assessor: Assessor
    kept: OutcomeCache
    groups: Sequence[Group]
    settings: SweepSettings
    progress: Progress
    refine: int
    most: int
    done: int = 0

    def run(self) -> list[Outcome]:
        while wave := [(g, mesh) for g in self.groups for mesh in g.next()]:
            self._assess(wave, self.settings)
        best = self._best()
        before = {(id(g), mesh): g.found[mesh] for g, mesh in best}
        if best:
            self._assess(best, replace(self.settings, for_machine=True))
        for g, mesh in best:
            old = before[id(g), mesh]
            if not g.found[mesh].runs or g.found[mesh].step_seconds > old.step_seconds:
                g.found[mesh] = old
        return [o for g in self.groups for o in g.found.values()]

    def _best(self) -> list[tuple[Group, Sizes]]:
        """The fastest by number of devices."""
        every: dict[int, list[tuple[float, int, Sizes, Group]]] = {}
        for k, g in enumerate(self.groups):
            runs = ((o.step_seconds, k, mesh, g) for mesh, o in g.found.items() if o.runs and not g.set.auto)
            every.setdefault(g.devices, []).extend(runs)
        return [(g, mesh) for rows in every.values() for _, _, mesh, g in sorted(rows, key=_order)[: self.refine]]

    def _assess(self, wave: Sequence[tuple[Group, Sizes]], settings: SweepSettings) -> None:
        tasks = [Assessment(g.program, g.candidate(mesh), settings) for g, mesh in wave]
        new = []
        for number, outcome in enumerate(self.kept.find(tasks)):
            if outcome is None:
                new.append(number)
            else:
                self._found(wave[number], outcome)

        def done(place: int, found: Outcome | RunError) -> None:
            number = new[place]
            self._found(wave[number], self._made(tasks[number], found))

        self.assessor([tasks[number] for number in new], done)

    def _found(self, of: tuple[Group, Sizes], outcome: Outcome) -> None:
        group, mesh = of
        group.found[mesh] = outcome
        self.done += 1
        self.progress(self.done, max(self.most, self.done))

    def _made(self, task: Assessment, found: Outcome | RunError) -> Outcome:
        """A new outcome; that of a candidate whose worker failed is not kept, another time it may not."""
        if isinstance(found, Outcome):
            self.kept.keep(task, found)
            return found
        c = task.candidate
        return Outcome(c.devices, dict(c.mesh), c.name, found.what + (f" ({found.where})" if found.where else ""))


def _order(row: tuple[float, int, Sizes, Group]) -> tuple[float, int, Sizes]:
    return row[:3]
