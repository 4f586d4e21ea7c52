"""All warnings of a program, the kinds in a fixed order."""

from __future__ import annotations

from shardc.analysis.explain.diagnostics.flips import flips
from shardc.analysis.explain.diagnostics.gathers import full_gathers
from shardc.analysis.explain.diagnostics.padding import padding
from shardc.analysis.explain.diagnostics.reductions import redundant_reductions
from shardc.analysis.explain.diagnostics.repeated_work import repeated_work
from shardc.analysis.explain.diagnostics.replicated import replicated
from shardc.analysis.explain.diagnostics.survey import Survey
from shardc.analysis.explain.diagnostics.whole_results import whole_results
from shardc.analysis.explain.explanation import Diagnostic

__all__ = ["KINDS", "warnings"]

#: What is looked for, in the order in which it is told.
KINDS = (repeated_work, replicated, full_gathers, flips, redundant_reductions, padding, whole_results)


def warnings(survey: Survey) -> tuple[Diagnostic, ...]:
    """Everything worth a warning."""
    return tuple(w for kind in KINDS for w in kind(survey))
