"""Explaining a partitioned program: every collective with its story, and what would remove it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap, zip_longest
from typing import Any

from shardc.analysis.explain.candidates import AnnotatableNames, AnnotationCandidates
from shardc.analysis.explain.chains import CauseTracer, layout_text
from shardc.analysis.explain.collect import CollectiveGroup, collect_collectives
from shardc.analysis.explain.compare_programs import ProgramComparer
from shardc.analysis.explain.diagnostics.find import warnings
from shardc.analysis.explain.diagnostics.survey import Survey, Thresholds
from shardc.analysis.explain.explanation import CollectiveReason, Diagnostic, Explanation
from shardc.analysis.explain.remedies import RemedySearch, SearchLimits, Tried
from shardc.hlo.progress import stage
from shardc.hlo.units import count_text
from shardc.partitioner.program import PartitionedProgram
from shardc.partitioner.report import OWN_COLLECTIVE
from shardc.partitioner.strategy.cause import Cause

__all__ = ["explain"]

#: Why a collective that was not inserted has no remedy.
_WRITTEN = "the program itself has this collective, such as one written in shard_map, so no annotation removes it"


@stage("explain")
def explain(
    partitioned: PartitionedProgram,
    machine: str | None = None,
    limits: SearchLimits | None = None,
    thresholds: Thresholds | None = None,
    comparer: ProgramComparer | None = None,
) -> Explanation:
    """Why each collective is there, the most costly first, and warnings from ``thresholds`` on.

    Remedies are looked for as far as ``limits`` go (default: none). ``comparer`` is the program's on that machine,
    where there is one: it keeps what it has partitioned.
    """
    comparer = comparer or ProgramComparer(partitioned, machine)
    return _Explainer(comparer, limits or SearchLimits(), thresholds or Thresholds()).explanation()


class _Explainer:
    def __init__(self, comparer: ProgramComparer, limits: SearchLimits, thresholds: Thresholds) -> None:
        self.thresholds = thresholds
        self.partitioned = partitioned = comparer.base
        self.machine = comparer.machine
        self.limits = limits
        self.comparer = comparer
        history = partitioned.propagated.provenance
        self.tracer = None if history is None else CauseTracer(history)
        self.remedies: RemedySearch | None = None
        self.names = None if self.tracer is None else AnnotatableNames(self.tracer.history, partitioned.program.module)
        if self.tracer is not None and self.names is not None and limits.groups > 0:
            self.remedies = RemedySearch(self.comparer, AnnotationCandidates(self.tracer, self.names), limits)

    def explanation(self) -> Explanation:
        partitioned = self.partitioned
        report = partitioned.facts
        groups = collect_collectives(partitioned, self.comparer.price())
        looked = [] if self.remedies is None else self.remedies.for_groups(groups[: self.limits.groups])
        reasons = tuple(starmap(self._reason, zip_longest(groups, looked)))
        return Explanation(
            partitioned.module.name,
            report["devices"],
            report["mesh"],
            self.machine or "",
            self.comparer.totals(partitioned),
            reasons,
            self._warnings(groups),
            partitioned.plan,
            partitioned.why_no_plan,
        )

    def _warnings(self, groups: Sequence[CollectiveGroup]) -> tuple[Diagnostic, ...]:
        candidates = (
            None if self.names is None or self.tracer is None else AnnotationCandidates(self.tracer, self.names)
        )
        survey = Survey(self.partitioned, groups, self.comparer, self.thresholds, candidates, self.remedies)
        return warnings(survey)

    def _reason(self, group: CollectiveGroup, looked: Tried | None) -> CollectiveReason:
        """Why the collectives of a group exist, and the remedies that were ``looked`` for."""
        row, causes = group.rows[0], group.causes[0]
        cause = causes[0] if causes else None
        told = self._told(cause)
        more = f" (one of {count_text(len(causes), 'collective')} that were joined)" if len(causes) > 1 else ""
        tried = looked or Tried()
        why_none = _WRITTEN if row["reason"] == OWN_COLLECTIVE else ""
        if looked is not None and not tried.remedies and not why_none:
            why_none = self._why_none(cause, tried)
        return CollectiveReason(
            names=tuple(r["name"] for r in group.rows),
            op=row["op"],
            axes=tuple(row["axes"]),
            group_size=row["group_size"],
            count=row["count"],
            unknown_trip_count=row["unknown_trip_count"],
            payload_bytes=row["payload_bytes"],
            wire_bytes=group.wire_bytes,
            seconds=group.seconds,
            line=row["source"],
            op_name=row["op_name"],
            reason=row["reason"],
            remedies=tried.remedies,
            tried=tried.tried,
            why_none=why_none,
            **{**told, "value": told["value"] + more if cause is not None else row["value"]},
        )

    def _told(self, cause: Cause | None) -> dict[str, Any]:
        """What a cause tells, by field."""
        told: dict[str, Any] = dict.fromkeys(("value", "shape", "before", "after", "conflict"), "")
        told |= {"parties": (), "choice": None}
        if cause is None:
            return told
        told["shape"] = str(cause.shape)
        told["before"], told["after"] = (layout_text(cause.table, x) for x in (cause.before, cause.after))
        told["value"] = f"%{cause.value}"
        if self.tracer is None:
            return told
        decided = cause.made if cause.before.unreduced and cause.made is not None else cause.asked
        told["value"] = self.tracer.name(cause)
        told["conflict"] = self.tracer.conflict(cause)
        told["parties"] = self.tracer.parties(cause)
        told["choice"] = None if decided is None else self.tracer.choice(decided)
        return told

    def _why_none(self, cause: Cause | None, tried: Tried) -> str:
        """Why there is no remedy."""
        left = []
        if tried.late:
            left.append(f"the limit of {self.limits.seconds:g} s left {count_text(tried.late, 'annotation')} untried")
        if tried.beyond:
            left.append(f"the limit of {count_text(self.limits.tries, 'try', 'tries')} left {tried.beyond} untried")
        if not tried.tried:
            return "; ".join(left) or "there is no other annotation to try"
        better = "takes less time" if self.machine else "sends fewer bytes"
        text = f"{count_text(tried.tried, 'other annotation')} tried, none {better} without repeating work"
        if cause is not None and cause.before.unreduced and cause.made is not None and self.tracer is not None:
            roots = [p.annotation for p in self.tracer.parties(cause) if p.role == "reduced" and p.annotation]
            split = f" ({'; '.join(dict.fromkeys(roots))})" if roots else ""
            text = (
                f"the sum runs over a split dimension{split}, so each device holds a part of it;"
                f" every such split needs this reduction; {text}"
            )
        return "; ".join([text, *left])
