"""Dimensions that do not divide: devices hold, send and compute padding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shardc.analysis.explain.diagnostics.survey import Survey
from shardc.analysis.explain.explanation import Diagnostic, Suggestion
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.units import bytes_text

__all__ = ["padding"]


@dataclass(slots=True)
class _Wasted:
    """What one uneven split wastes: the largest value with it, how many values, bytes on a device."""

    largest: Instruction
    dimension: int
    local: int
    values: int = 0


def padding(survey: Survey) -> Iterator[Diagnostic]:
    """One warning per size and number of shards, of values that are large enough to matter."""
    found: dict[tuple[int, int, str], _Wasted] = {}
    least = survey.thresholds.memory * survey.totals.peak_bytes
    for op in survey.partitioned.propagated.module.instructions():
        if not isinstance(op.sharding, Sharding) or not op.shape.is_array:
            continue
        local = op.sharding.local_dims(op.shape.dims)
        nbytes = math.prod(local) * op.shape.dtype.nbytes
        if nbytes < least:
            continue
        for d, (n, k) in enumerate(zip(op.shape.dims, op.sharding.num_shards(), strict=True)):
            if n % k and local[d] * k / n - 1 >= survey.thresholds.padding:
                key = (n, k, " and ".join(str(a) for a in op.sharding.dims[d].axes))
                entry = found.setdefault(key, _Wasted(op, d, nbytes))
                entry.values += 1
                if nbytes > entry.local:
                    entry.largest, entry.dimension, entry.local = op, d, nbytes
    for (n, k, axes), wasted in found.items():
        yield _warning(survey, n, k, axes, wasted)


def _warning(survey: Survey, n: int, k: int, axes: str, wasted: _Wasted) -> Diagnostic:
    chunk = -(-n // k)
    share = chunk * k / n - 1
    idle = k - -(-n // chunk)
    name, op = _name(survey, wasted.largest), wasted.largest
    others = f" and of {wasted.values - 1} more values" if wasted.values > 1 else ""
    text = (
        f"dimension {wasted.dimension} of {name} {op.shape}{others}, {n}, does not divide by the {k} shards over"
        f" {axes}: each holds {chunk}, {share:.0%} of it padding ({bytes_text(wasted.local)} per device with it)"
    )
    text += f", {idle} of {k} devices hold nothing else" if idle else ""
    near = (n // k * k, chunk * k)
    numbers = {"size": float(n), "shards": float(k), "padding": share, "bytes": float(wasted.local)}
    numbers["idle_devices"] = float(idle)
    sizes = " or ".join(str(m) for m in dict.fromkeys(near) if m)
    way = f"make the size {sizes}, or split another dimension over {axes}"
    return Diagnostic("padding", text, name, op.source, numbers, Suggestion(way))


def _name(survey: Survey, op: Instruction) -> str:
    candidates = survey.candidates
    if candidates is None:
        return f"%{op.name}"
    value = candidates.tracer.number(op.name)
    return f"%{op.name}" if value is None else candidates.history.name(value)
