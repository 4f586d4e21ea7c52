"""All warnings of a program, the kinds in a fixed order."""

from __future__ import annotations

from shardc.launcher.explain.explanation import Warned
from shardc.launcher.explain.pains.flips import flips
from shardc.launcher.explain.pains.gathers import full_gathers
from shardc.launcher.explain.pains.padding import padding
from shardc.launcher.explain.pains.reductions import redundant_reductions
from shardc.launcher.explain.pains.repeated_work import repeated_work
from shardc.launcher.explain.pains.replicated import replicated
from shardc.launcher.explain.pains.survey import Survey

__all__ = ["KINDS", "warnings"]

#: What is looked for, in the order in which it is told.
KINDS = (repeated_work, replicated, full_gathers, flips, redundant_reductions, padding)


def warnings(survey: Survey) -> tuple[Warned, ...]:
    """Everything worth a warning."""
    return tuple(w for kind in KINDS for w in kind(survey))
