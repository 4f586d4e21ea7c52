"""Explaining a partitioned program: every collective with its story, and what would remove it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardc.analysis.explain.candidates import Candidates, Names
from shardc.analysis.explain.chains import Teller, layout_text
from shardc.analysis.explain.collect import Group, collected
from shardc.analysis.explain.diagnostics.find import warnings
from shardc.analysis.explain.diagnostics.survey import Survey, Thresholds
from shardc.analysis.explain.explanation import CollectiveReason, Explanation, Warned
from shardc.analysis.explain.judge import Judge
from shardc.analysis.explain.remedies import Limits, Remedies, Tried
from shardc.hlo.progress import stage
from shardc.partitioner.program import PartitionedProgram
from shardc.partitioner.strategy.cause import Cause

__all__ = ["explain"]


@stage("explain")
def explain(
    partitioned: PartitionedProgram,
    machine: str | None = None,
    limits: Limits | None = None,
    thresholds: Thresholds | None = None,
) -> Explanation:
    """Why each collective is there, the most costly first, and warnings from ``thresholds`` on.

    Remedies are looked for as far as ``limits`` go (default: none).
    """
    return _Explainer(partitioned, machine, limits or Limits(), thresholds or Thresholds()).explanation()


class _Explainer:
    def __init__(
        self, partitioned: PartitionedProgram, machine: str | None, limits: Limits, thresholds: Thresholds
    ) -> None:
        self.thresholds = thresholds
        self.partitioned = partitioned
        self.machine = machine
        self.limits = limits
        self.judge = Judge(partitioned, machine)
        history = partitioned.propagated.provenance
        self.teller = None if history is None else Teller(history)
        self.remedies: Remedies | None = None
        self.names = None if self.teller is None else Names(self.teller.history, partitioned.program.module)
        if self.teller is not None and self.names is not None and limits.groups > 0:
            self.remedies = Remedies(self.judge, Candidates(self.teller, self.names), limits)

    def explanation(self) -> Explanation:
        partitioned = self.partitioned
        report = partitioned.report()
        groups = collected(partitioned, self.judge.price())
        reasons = tuple(self._reason(group, n) for n, group in enumerate(groups))
        return Explanation(
            partitioned.module.name,
            report["devices"],
            report["mesh"],
            self.machine or "",
            self.judge.totals(partitioned),
            reasons,
            self._warnings(groups),
        )

    def _warnings(self, groups: Sequence[Group]) -> tuple[Warned, ...]:
        candidates = None if self.names is None or self.teller is None else Candidates(self.teller, self.names)
        survey = Survey(self.partitioned, groups, self.judge, self.thresholds, candidates, self.remedies)
        return warnings(survey)

    def _reason(self, group: Group, number: int) -> CollectiveReason:
        row, causes = group.rows[0], group.causes[0]
        cause = causes[0] if causes else None
        told = self._told(cause)
        more = f" and {len(causes) - 1} more, combined" if len(causes) > 1 else ""
        tried = Tried()
        if self.remedies is not None and number < self.limits.groups:
            tried = self.remedies.for_group(group)
        looked = tried.tried > 0 and not tried.remedies
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
            why_none=self._why_none(cause, tried) if looked else "",
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
        if self.teller is None:
            return told
        decided = cause.made if cause.before.unreduced and cause.made is not None else cause.asked
        told["value"] = self.teller.name(cause)
        told["conflict"] = self.teller.conflict(cause)
        told["parties"] = self.teller.parties(cause)
        told["choice"] = None if decided is None else self.teller.choice(decided)
        return told

    def _why_none(self, cause: Cause | None, tried: Tried) -> str:
        """Why there is no remedy."""
        unit = "time" if self.machine else "bytes"
        text = f"none of {tried.tried} other annotations that were tried costs less {unit} without repeating work"
        if cause is not None and cause.before.unreduced and cause.made is not None and self.teller is not None:
            roots = [p.annotation for p in self.teller.parties(cause) if p.role == "reduced" and p.annotation]
            split = f" ({'; '.join(dict.fromkeys(roots))})" if roots else ""
            text = (
                f"the sum goes over a dimension that is split{split}, so that each device has a part of it to add:"
                f" inherent in that split; {text}"
            )
        return text + (f"; {tried.left} were left for lack of time" if tried.left else "")
