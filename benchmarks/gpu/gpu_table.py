"""The figures of a GPU as a table: what is wanted, and what was measured; nothing else is ever put in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_programs import BOUND_BY_MEMORY, PRODUCTS, STEP
from tables import table

__all__ = ["ROWS", "Row", "as_table"]


@dataclass(frozen=True)
class Row:
    """A figure. ``unit``: ``share`` and ``times`` are ratios, ``us`` microseconds; a goal is the least share and the
    most of anything else."""

    key: str
    title: str
    unit: str
    goal: float

    def text(self, value: float) -> str:
        if self.unit == "share":
            return f"{100 * value:.1f}%"
        return f"{value:.1f} us" if self.unit == "us" else f"{value:.2g}" if self.unit == "error" else f"{value:.3f} x"

    @property
    def wanted(self) -> str:
        sign = "at least" if self.unit == "share" else "at most"
        return f"{sign} {self.text(self.goal)}"

    def met(self, value: float) -> bool:
        return value >= self.goal if self.unit == "share" else value <= self.goal


ROWS = (
    Row("demo", "demo's step, 4 virtual devices on the GPU: difference from the CPU's result", "error", 1e-3),
    Row("nccl", "NCCL, one rank: sum, gather and send give back what went in (0: equal)", "error", 0),
    *(
        Row(f"share {name}", f"{name}: share of a copy's bandwidth", "share", goal)
        for name, goal in BOUND_BY_MEMORY.items()
    ),
    *(Row(f"xla {name}", f"{name}: time over XLA's", "times", 1.03) for name in (*BOUND_BY_MEMORY, *PRODUCTS)),
    Row(f"xla {STEP}", f"{STEP}: time over XLA's", "times", 1.1),
    Row("compile", f"{STEP}: cold compilation over XLA's", "times", 0.5),
    Row("host", "host's time for starting a step", "us", 20),
)


def as_table(results: Mapping[str, Any]) -> str:
    """``results``: ``{"machine": text, "measured": {key: value}, "missing": {key: why}}``; {} is a table of goals."""
    measured, missing = results.get("measured", {}), results.get("missing", {})
    lines = []
    for row in ROWS:
        value = measured.get(row.key)
        found = "" if value is None else row.text(value)
        verdict = missing.get(row.key, "not measured") if value is None else "yes" if row.met(value) else "no"
        lines.append((row.title, row.wanted, found, verdict))
    machine = results.get("machine", "No GPU was available: nothing was measured.")
    return f"{machine}\n\n" + table(("figure", "wanted", "measured", "reached"), lines)
