"""Dimensions that do not divide: devices hold, send and compute padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardc.analysis.explain.diagnostics.survey import Survey
from shardc.analysis.explain.explanation import Diagnostic, Suggestion
from shardc.analysis.uneven_splits import UnevenSplit, uneven_splits
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.units import bytes_text, count_text

__all__ = ["padding"]


def padding(survey: Survey) -> Iterator[Diagnostic]:
    """One warning per size and number of shards, of values that are large enough to matter."""
    least = survey.thresholds.memory * survey.totals.peak_bytes
    for split in uneven_splits(survey.partitioned.propagated.module):
        large = [value for value in split.values if value[2] >= least]
        if large and split.share >= survey.thresholds.padding:
            yield _warning(survey, split, large)


def _warning(survey: Survey, split: UnevenSplit, values: Sequence[tuple[Instruction, int, int]]) -> Diagnostic:
    largest, dimension, local = max(values, key=lambda value: value[2])
    n, k, axes, share = split.size, split.shards, split.axes, split.share
    idle = k - -(-n // split.chunk)
    name = _name(survey, largest)
    others = f" and of {count_text(len(values) - 1, 'more value')}" if len(values) > 1 else ""
    text = (
        f"dimension {dimension} of {name} {largest.shape}{others} has size {n}, "
        f"which does not divide by the {count_text(k, 'shard')} over {axes}: each shard holds {split.chunk}, "
        f"so padding adds {share:.1%} ({bytes_text(local)} per device with padding)"
    )
    text += f"; {idle} of {count_text(k, 'device')} hold only padding" if idle else ""
    near = (n // k * k, split.padded)
    numbers = {"size": float(n), "shards": float(k), "padding": share, "bytes": float(local)}
    numbers["idle_devices"] = float(idle)
    sizes = " or ".join(str(m) for m in dict.fromkeys(near) if m)
    way = f"make the size {sizes}, or split another dimension over {axes}"
    return Diagnostic("padding", text, name, largest.source, numbers, Suggestion(way))


def _name(survey: Survey, op: Instruction) -> str:
    candidates = survey.candidates
    if candidates is None:
        return f"%{op.name}"
    value = candidates.tracer.number(op.name)
    return f"%{op.name}" if value is None else candidates.history.name(value)
