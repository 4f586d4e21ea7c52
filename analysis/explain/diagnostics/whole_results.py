"""Results that are whole, or in fewer parts, since their size does not divide."""

from __future__ import annotations

from collections.abc import Iterator

from shardc.analysis.explain.diagnostics.survey import Survey
from shardc.analysis.explain.explanation import Diagnostic, Suggestion
from shardc.sharding.propagation.whole_results import whole_results as found_in

__all__ = ["whole_results"]


def whole_results(survey: Survey) -> Iterator[Diagnostic]:
    """One warning for each that is large enough to matter."""
    outcome, module = survey.partitioned.propagated.outcome, survey.partitioned.module
    least = survey.thresholds.memory * survey.totals.peak_bytes
    for result in found_in(outcome, module) if outcome is not None else ():
        more = result.bytes_held - result.bytes_of_part
        if more and more >= least:
            text = f"of {result.name} {result.shape}, {result.reason}"
            numbers = {"bytes": float(result.bytes_held), "part_bytes": float(result.bytes_of_part)}
            way = f"annotate the result with {result.spec}, or make the size {result.padded}"
            yield Diagnostic("whole-result", text, result.name, "", numbers, Suggestion(way))
