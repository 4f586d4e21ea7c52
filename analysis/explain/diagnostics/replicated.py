"""Large parameters that are whole on devices although others of the program's weights are split over the same axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardc.analysis.explain.candidates import AnnotationCandidates
from shardc.analysis.explain.diagnostics.survey import Survey
from shardc.analysis.explain.diagnostics.weights import weights
from shardc.analysis.explain.explanation import Diagnostic, ProgramTotals, Remedy, Suggestion
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.ir.types import DTYPES
from shardc.hlo.units import bytes_text
from shardc.sharding.notations.names import pattern_of

__all__ = ["replicated"]

#: A weight counts as an example for others that are at most so much larger.
_ALIKE = 16


def replicated(survey: Survey) -> Iterator[Diagnostic]:
    """One warning for parameters that are called alike but for numbers."""
    if survey.candidates is None:
        return
    rows = {row["name"] or f"arg{row['index']}": row for row in survey.arguments}
    values = weights(survey.candidates.names, rows)
    least = survey.thresholds.memory * survey.totals.peak_bytes
    groups: dict[tuple[str, str], list[str]] = {}
    for name in values:
        groups.setdefault((pattern_of(name), rows[name]["sharding"]), []).append(name)
    for names in groups.values():
        held = sum(_local_bytes(rows[n]) for n in names)
        lacking = [a for a in survey.sizes if _could_take(survey, rows, values, names[0], a)]
        if held >= least and lacking:
            yield _warning(survey, survey.candidates, names, held, lacking)


def _could_take(survey: Survey, rows: dict[str, Any], values: dict[str, int], name: str, axis: str) -> bool:
    """Whether a parameter is whole over an axis that splits comparable weights, and has a dimension for the axis."""
    row, size = rows[name], survey.sizes[axis]
    if axis in _axes(row) or not any(n % size == 0 for n in row["local_shape"]):
        return False
    mine = _local_bytes(row)
    return any(axis in _axes(rows[o]) and _global_bytes(rows[o]) * _ALIKE >= mine for o in values if o != name)


def _warning(
    survey: Survey, candidates: AnnotationCandidates, names: Sequence[str], held: int, lacking: list[str]
) -> Diagnostic:
    factor = 1
    for axis in lacking:
        factor *= survey.sizes[axis]
    share = held / max(survey.totals.peak_bytes, 1)
    many = f" (+{len(names) - 1} like it)" if len(names) > 1 else ""
    text = (
        f"parameter {names[0]}{many} is whole on all {factor} positions of {' and '.join(lacking)}, over which other"
        f" weights are split: {bytes_text(held)} per device, {share:.0%} of its memory"
    )
    numbers = {"bytes": float(held), "memory_share": share, "copies": float(factor)}
    way = f"split one of its dimensions over {' or '.join(lacking)}"
    remedy = _remedy(survey, candidates, names[0], lacking, held)
    return Diagnostic("replicated-parameter", text, names[0], "", numbers, Suggestion(way, remedy))


def _remedy(
    survey: Survey, candidates: AnnotationCandidates, name: str, lacking: list[str], held: int
) -> Remedy | None:
    """One that frees most of what could be freed, without more arithmetic, for the fewest bytes on the wire."""
    before = survey.totals
    value = candidates.names.argument(name)
    if value is None:
        return None
    tried = [c for axis in lacking for c in candidates.taking_on(value, AxisRef(axis))]

    def accept(after: ProgramTotals) -> bool:
        return after.peak_bytes < before.peak_bytes - held / 4 and after.flops <= before.flops * 1.02

    return survey.best(tried, accept, lambda after: (after.wire_bytes, after.peak_bytes))


def _axes(row: dict[str, Any]) -> set[str]:
    """Names of axes in a sharding's text."""
    text = row["sharding"]
    return {part.split(":")[0] for part in "".join(c if c not in "[]{}," else " " for c in text).split()}


def _local_bytes(row: dict[str, Any]) -> int:
    return _bytes(row["dtype"], row["local_shape"])


def _global_bytes(row: dict[str, Any]) -> int:
    return _bytes(row["dtype"], row["global_shape"])


def _bytes(dtype: str, dims: Sequence[int]) -> int:
    size = DTYPES[dtype].nbytes
    for n in dims:
        size *= n
    return size
