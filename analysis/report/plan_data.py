"""The plan of layouts as the page shows it: decisions with their drawings, memory over the program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from shardc.analysis.report.tensors import layout_data
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import Shape
from shardc.launcher.drawings.layout_picture import shown_dimensions
from shardc.partitioner.plan.plan_reasons import LayoutDecision, PlanReasons, layout_words

__all__ = ["plan_data"]

#: Points of the memory curve: a screen shows no more.
_POINTS = 1000


def plan_data(plan: PlanReasons, strings: Callable[[str], int], drawings: list[dict[str, Any]]) -> dict[str, Any]:
    """What the page's section about ``plan`` is made of; new ``drawings`` are put behind those that are there.

    A layout is [words, drawing, parts down, across, in other dimensions, is it partial, is it flat]. The
    curve has the most bytes of each stretch of places: [first place, planned, propagated].
    """
    told = plan.to_dict()
    known: dict[tuple[tuple[int, ...], str], int] = {}

    def layout(shape: Shape, sharding: Sharding | None) -> list[Any] | None:
        if sharding is None:
            return None
        key = (shape.dims, str(sharding.as_layout))
        if key not in known:
            known[key] = len(drawings)
            drawings.append(layout_data(shape, sharding))
        return [layout_words(sharding), known[key], *_parts(shape, sharding), bool(sharding.unreduced), shape.rank < 2]

    def row(d: LayoutDecision) -> dict[str, Any]:
        return {
            "names": list(d.names),
            "role": d.role,
            "leaf": d.leaf,
            "opcode": d.opcode,
            "source": strings(d.source),
            "op_name": strings(d.op_name),
            "shape": str(d.shape),
            "wanted": layout(d.shape, d.wanted),
            "chosen": layout(d.shape, d.chosen),
            "next": layout(d.shape, d.next_best),
            "moved": d.moved,
            "bytes": d.local_bytes,
            "wanted_bytes": d.bytes_in(d.wanted),
            "wanted_more": d.wanted_more,
            "next_more": d.next_more,
            "times": d.times,
            "binds": list(d.binds),
        }

    return {
        **told,
        "proof": plan.proof,
        "decisions": [row(d) for d in plan.decisions],
        "memory": _curve(plan),
        "places": len(plan.usage),
    }


def _parts(shape: Shape, sharding: Sharding) -> tuple[int, int, int]:
    counts = sharding.num_shards()
    down, across = (1 if n is None else counts[n] for n in shown_dimensions(shape.dims, counts))
    return down, across, math.prod(counts) // (down * across)


def _curve(plan: PlanReasons) -> list[list[float]]:
    stretch = -(-len(plan.usage) // _POINTS) or 1

    def most(usage: Sequence[float], start: int) -> float:
        return round(max(usage[start : start + stretch], default=0.0))

    places = range(0, len(plan.usage), stretch)
    return [[start, most(plan.usage, start), most(plan.wanted_usage, start)] for start in places]
