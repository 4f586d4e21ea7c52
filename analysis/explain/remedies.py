"""Remedies: candidates that were tried, and make the whole program cheaper by removing or shrinking a collective."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardc.analysis.explain.candidates import AnnotationCandidate, AnnotationCandidates, merged
from shardc.analysis.explain.collect import CollectiveGroup, collect_collectives, key_of
from shardc.analysis.explain.compare_programs import ProgramComparer
from shardc.analysis.explain.explanation import Change, ProgramTotals, Remedy
from shardc.hlo.errors import InputError
from shardc.hlo.units import bytes_text
from shardc.partitioner.program import PartitionedProgram

__all__ = ["RemedySearch", "SearchLimits", "Tried"]


#: A remedy makes a collective at least so much cheaper.
_CHEAPER = 0.75


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How much to look: for remedies of the ``groups`` most costly collectives, ``tries`` programs for each, no new
    try after ``seconds``; at most ``shown`` remedies each."""

    groups: int = 0
    tries: int = 12
    seconds: float = 30.0
    shown: int = 3

    def __post_init__(self) -> None:
        for name, value in (("remedies", self.groups), ("tries", self.tries), ("seconds", self.seconds)):
            kind = int | float if name == "seconds" else int
            if isinstance(value, bool) or not isinstance(value, kind) or not value >= 0:
                raise InputError(
                    f"{name} is {value!r}", fix=f"give {'seconds' if kind is not int else 'a number'}, 0 or more"
                )


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a search: remedies, the best first, how many were tried, and how many were not for lack of time
    (``late``) or tries (``beyond``)."""

    remedies: tuple[Remedy, ...] = ()
    tried: int = 0
    late: int = 0
    beyond: int = 0


@dataclass(slots=True)
class RemedySearch:
    """Looks for remedies; time counts from when it was made. ``helpful`` are the candidates that make the program
    cheaper, of all that were tried."""

    comparer: ProgramComparer
    candidates: AnnotationCandidates
    limits: SearchLimits
    began: float = field(default_factory=time.monotonic)
    helpful: dict[tuple[tuple[str, str], ...], AnnotationCandidate] = field(default_factory=dict)

    def for_groups(self, groups: Sequence[CollectiveGroup]) -> list[Tried]:
        """Remedies for each of the groups. One without a remedy gets those of other groups that help it too."""
        found = [self.for_group(group) for group in groups]
        return [
            replace(tried, remedies=self._of_others(group)) if any(group.causes) and not tried.remedies else tried
            for group, tried in zip(groups, found, strict=True)
        ]

    def _of_others(self, group: CollectiveGroup) -> tuple[Remedy, ...]:
        return self._shown([self.attempt(candidate, group) for candidate in tuple(self.helpful.values())])

    def _shown(self, found: Iterable[Remedy | None]) -> tuple[Remedy, ...]:
        """The best of what was found."""
        good = sorted((r for r in found if r is not None), key=_worth)
        return tuple(_distinct(good)[: self.limits.shown])

    def for_group(self, group: CollectiveGroup) -> Tried:
        """Remedies for equal collectives."""
        found = [self.candidates.of(causes[0]) for causes in group.causes if causes]
        if not found:
            return Tried()
        return self.tried(merged(found), group)

    def tried(self, candidates: Sequence[AnnotationCandidate], group: CollectiveGroup | None = None) -> Tried:
        """Those candidates that make the program cheaper; of a ``group``, if given, too."""
        found: list[Remedy | None] = []
        count = late = 0
        for candidate in candidates[: self.limits.tries]:
            if time.monotonic() - self.began > self.limits.seconds:
                late += 1
                continue
            count += 1
            found.append(self.attempt(candidate, group))
        beyond = max(0, len(candidates) - self.limits.tries)
        return Tried(self._shown(found), count, late, beyond)

    def best(
        self,
        candidates: Sequence[AnnotationCandidate],
        accept: Callable[[ProgramTotals], bool],
        worth: Callable[[ProgramTotals], object],
    ) -> Remedy | None:
        """Of the candidates whose totals ``accept`` takes the one with the least ``worth``; the first of equals."""
        base = self.comparer.base
        before = self.comparer.totals(base)
        found: list[tuple[Any, int, Remedy]] = []
        for number, candidate in enumerate(candidates[: self.limits.tries]):
            if time.monotonic() - self.began > self.limits.seconds:
                break
            partitioned = self.comparer.with_annotations(base.program, candidate.specs)
            after = None if partitioned is None else self.comparer.totals(partitioned)
            if after is not None and accept(after):
                remedy = Remedy(candidate.what, _changes(candidate), before, after, True, _costs(before, after))
                found.append((worth(after), number, remedy))
        return min(found, key=lambda entry: entry[:2])[2] if found else None

    def attempt(self, candidate: AnnotationCandidate, group: CollectiveGroup | None) -> Remedy | None:
        """The program with a candidate's annotations; None where it is no better."""
        base = self.comparer.base
        after = self.comparer.with_annotations(base.program, candidate.specs)
        if after is None or not self.comparer.better(after):
            return None
        self.helpful.setdefault(candidate.specs, candidate)
        removes = False
        if group is not None:
            old, new = (self._about(p, group) for p in (base, after))
            if new > _CHEAPER * old:
                return None
            removes = new == 0 and self._gone(after, group)
        totals = (self.comparer.totals(base), self.comparer.totals(after))
        return Remedy(candidate.what, _changes(candidate), *totals, removes, _costs(*totals))

    def _gone(self, partitioned: PartitionedProgram, group: CollectiveGroup) -> bool:
        """Whether a program has none of what the collectives of ``group`` are about, with all that were joined."""
        return not any(group.keys & other.keys for other in collect_collectives(partitioned))

    def _about(self, partitioned: PartitionedProgram, group: CollectiveGroup) -> float:
        """What a program spends (seconds, else bytes) on that which the collectives of ``group`` are about."""
        keys = {key_of(row, c) for row, causes in zip(group.rows, group.causes, strict=True) for c in causes[:1]}
        total = 0.0
        for other in collect_collectives(partitioned, self.comparer.price()):
            for row, causes in zip(other.rows, other.causes, strict=True):
                if any(key_of(row, c) in keys for c in causes):
                    total += row["wire_bytes"] if other.seconds is None else other.seconds / len(other.rows)
        return total


def _changes(candidate: AnnotationCandidate) -> tuple[Change, ...]:
    return tuple(Change(name, spec, candidate.before) for name, spec in candidate.specs)


def _costs(before: ProgramTotals, after: ProgramTotals) -> str:
    """What grows."""
    told = []
    if after.peak_bytes > before.peak_bytes * 1.001:
        more = after.peak_bytes - before.peak_bytes
        told.append(f"{bytes_text(more)} more memory ({more / max(before.peak_bytes, 1):.0%})")
    if after.flops > before.flops * 1.001:
        told.append(f"{(after.flops - before.flops) / max(before.flops, 1):.1%} more arithmetic")
    if after.wire_bytes > before.wire_bytes * 1.001:
        told.append(f"{bytes_text(after.wire_bytes - before.wire_bytes)} more on the wire")
    return ", ".join(told)


def _worth(remedy: Remedy) -> tuple[object, ...]:
    """The best first: those that need little more memory, then by what they save, then the fewest changes."""
    needs_more = remedy.after.peak_bytes > 1.1 * remedy.before.peak_bytes
    saved = remedy.saved_seconds if remedy.saved_seconds is not None else remedy.saved_bytes
    return (needs_more, -saved, len(remedy.changes), remedy.what)


def _distinct(remedies: Sequence[Remedy]) -> list[Remedy]:
    """Of those with the same outcome the one with the fewest changes."""
    found: dict[ProgramTotals, Remedy] = {}
    for r in remedies:
        found.setdefault(r.after, r)
    return list(found.values())
