"""Sums over devices that all hold the same."""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardc.analysis.explain.collect import CollectiveGroup
from shardc.analysis.explain.diagnostics.survey import Survey
from shardc.analysis.explain.explanation import Diagnostic, Suggestion
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.units import bytes_text

__all__ = ["redundant_reductions"]


def redundant_reductions(survey: Survey) -> Iterator[Diagnostic]:
    """One warning for equal reductions."""
    for group in survey.groups:
        row, op = group.rows[0], group.instructions[0]
        if row["op"] not in ("all-reduce", "reduce-scatter") or not survey.matters(group):
            continue
        axes = [a for a in row["axes"] if a in survey.sizes]
        alike = [a for a in axes if all(a not in _differs(survey, o) for o in op.operands)]
        if alike:
            yield _warned(survey, group, alike)


def _differs(survey: Survey, value: Instruction) -> frozenset[str]:
    """Axes along which a summand differs, but for one device having it and the others nothing."""
    if value.opcode == "select":
        chosen, *arms = value.operands
        kept = frozenset().union(*(survey.axes.get(a, frozenset()) for a in arms))
        if chosen.opcode in ("broadcast", "compare") and survey.axes.get(chosen, frozenset()) - kept:
            return kept
    return survey.axes.get(value, frozenset(survey.sizes))


def _warned(survey: Survey, group: CollectiveGroup, alike: list[str]) -> Diagnostic:
    row = group.rows[0]
    factor = math.prod(survey.sizes[a] for a in alike)
    over = " and ".join(alike)
    text = (
        f"{row['op']} %{row['name']} sums values over {over} that are equal on all its {factor} devices:"
        f" {bytes_text(group.wire_bytes)} on the wire, where multiplying by {factor} would do"
    )
    way = f"split what is summed over {over}, or leave {over} out of the sum"
    numbers = {"wire_bytes": group.wire_bytes, "copies": float(factor)}
    names = tuple(r["name"] for r in group.rows)
    return Diagnostic("redundant-reduction", text, row["value"], row["source"], numbers, Suggestion(way), names)
