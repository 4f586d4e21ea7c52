"""A simulated step as text: the figures that people look at first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from shardc.hlo.units import bytes_text, count_text, flops_text, seconds_text

if TYPE_CHECKING:
    from shardc.analysis.simulate.simulated_step import PathStep, SimulatedStep, SimulatedWork

__all__ = ["COSTLY_COLUMNS", "PATH_COLUMNS", "costly_rows", "facts", "path_rows", "table"]

#: Titles of `costly_rows` and `path_rows`.
COSTLY_COLUMNS = ("work", "times", "each", "in all", "% of step", "waited", "limit", "what")
PATH_COLUMNS = ("critical path", "times", "in all", "% of step", "what")

#: Kinds of work that links do.
_TRANSFERS = ("collective", "move")
_WIDEST = 84
_NUMBER = re.compile(r"(?<=[\[.])\d+")


def table(simulation: SimulatedStep) -> str:
    """Everything below in one text."""
    lines = facts(simulation)
    for columns, rows in (
        (COSTLY_COLUMNS, costly_rows(simulation)),
        (PATH_COLUMNS, path_rows(simulation)),
    ):
        lines += ["", *_aligned(columns, rows)]
    return "\n".join(lines)


def facts(simulation: SimulatedStep) -> list[str]:
    """A line per figure of the whole step."""
    s = simulation
    mesh = ", ".join(f"{axis}={size}" + _place(s.mapping.get(axis, "")) for axis, size in s.mesh.items())
    rows = [
        ("machine", f"{s.machine}, {count_text(s.devices, 'device')}" + (f": {mesh}" if mesh else "")),
        ("step", seconds_text(s.step_seconds)),
        ("  compute", _part(s.compute_seconds, s.step_seconds)),
        ("  exposed communication", _part(s.exposed_seconds, s.step_seconds)),
        ("  idle", _part(s.idle_seconds, s.step_seconds)),
        ("overlapped communication", _part(s.overlapped_seconds, s.step_seconds)),
        ("utilisation", _utilisation(s)),
        ("peak memory", _memory(s)),
        *((("host memory", bytes_text(s.host_bytes)),) if s.host_bytes else ()),
        *((f"bytes over {level}", bytes_text(n)) for level, n in s.link_bytes.items()),
    ]
    width = max(len(name) for name, _ in rows)
    notes = [f"note: {note}" for note in s.notes]
    return [f"{name.ljust(width)}  {text}" for name, text in rows] + notes


def costly_rows(simulation: SimulatedStep, most: int = 10) -> list[tuple[str, ...]]:
    """The works that take most of the step, all executions and equal ones (of many layers) together; transfers by what
    was waited for them."""
    groups: dict[tuple[object, ...], list[SimulatedWork]] = {}
    for w in simulation.work:
        if w.count and w.seconds:
            groups.setdefault((w.kind, round(w.seconds, 9), _kind_key(w)), []).append(w)
    ranked = sorted(
        groups.values(), key=lambda group: (-sum(map(_spent, group)), -sum(w.count * w.seconds for w in group))
    )
    return [_costly(group, simulation.step_seconds) for group in ranked[:most]]


def path_rows(simulation: SimulatedStep, most: int = 8) -> list[tuple[str, ...]]:
    """What the end of the step waited for, largest first, equal ones together, and the rest as one line."""
    s = simulation
    groups: dict[tuple[str, str], list[PathStep]] = {}
    for p in s.critical_path:
        groups.setdefault((p.kind, _kind_key(s.work[p.work])), []).append(p)
    ranked = sorted(groups.values(), key=lambda group: -sum(p.seconds for p in group))
    rows = [_on_path(group, s) for group in ranked[:most]]
    rest = [p for group in ranked[most:] for p in group]
    if rest:
        seconds = sum(p.seconds for p in rest)
        rows.append((count_text(len(rest), "other"), "", seconds_text(seconds), _percent(seconds, s.step_seconds), ""))
    return rows


def _place(text: str) -> str:
    return f" ({text})" if text and text != "-" else ""


def _part(seconds: float, step: float) -> str:
    return f"{seconds_text(seconds)}  {_percent(seconds, step)}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


def _utilisation(s: SimulatedStep) -> str:
    if not s.product_flops:
        return f"no products; {flops_text(s.flops)} per device"
    again = s.product_flops - s.model_flops
    text = f"MFU {100 * s.mfu:.1f}% of {s.peak_flops / 1e12:.4g} Tflop/s ({s.dtype})"
    text += f", HFU {100 * s.hfu:.1f}%" if again > 0 else ""
    return text + f"; {flops_text(s.model_flops)} of the model per device"


def _memory(s: SimulatedStep) -> str:
    text = f"{bytes_text(s.peak_bytes)} of {bytes_text(s.capacity_bytes)}  {_percent(s.peak_bytes, s.capacity_bytes)}"
    return text if s.fits else text + "  LARGER THAN MEMORY"


def _spent(w: SimulatedWork) -> float:
    return w.exposed_seconds if w.kind in _TRANSFERS else w.count * w.seconds


def _costly(group: Sequence[SimulatedWork], step: float) -> tuple[str, ...]:
    w = group[0]
    waited, limit = "", f"{w.limit} {100 * w.efficiency:.0f}%" if w.limit else ""
    if w.kind in _TRANSFERS:
        waited, limit = seconds_text(sum(x.exposed_seconds for x in group)), w.algorithm
    return (
        _names(w.name, len(group)),
        str(sum(x.count for x in group)),
        seconds_text(w.seconds),
        seconds_text(sum(x.count * x.seconds for x in group)),
        _percent(sum(map(_spent, group)), step),
        waited,
        limit,
        _what(group),
    )


def _names(first: str, count: int) -> str:
    return first if count == 1 else f"{first} +{count - 1}"


def _kind_key(w: SimulatedWork) -> str:
    """The same for works that differ in their number only, such as those of equal layers."""
    return _described(w, _NUMBER.sub("*", w.value))


def _what(group: Sequence[SimulatedWork]) -> str:
    """What one work does, or several of one kind."""
    w = group[0]
    same = all(x.value == w.value for x in group)
    return _described(w, w.value if same else _NUMBER.sub("*", w.value))


def _described(w: SimulatedWork, value: str) -> str:
    if w.kind == "collective":
        text = f"{w.opcode} {bytes_text(w.payload_bytes)} over {'+'.join(w.axes) or f'{w.group_size} devices'}"
        text += f" for {value}" if value else ""
    elif w.kind == "move":
        text = f"{w.opcode} {bytes_text(w.payload_bytes)} over {w.algorithm}"
    else:
        text = w.holds or w.opcode
    where = f", {PurePath(w.source).name}" if w.source else ""
    widest = _WIDEST - len(where)
    return (text if len(text) <= widest else text[: widest - 3] + "...") + where


def _on_path(group: Sequence[PathStep], s: SimulatedStep) -> tuple[str, ...]:
    w, seconds = s.work[group[0].work], sum(p.seconds for p in group)
    name = _names(w.name, len({p.work for p in group}))
    name = name if group[0].kind != "overhead" else f"starting {name}"
    count = str(sum(p.count for p in group))
    what = _what([s.work[p.work] for p in group])
    return (name, count, seconds_text(seconds), _percent(seconds, s.step_seconds), what)


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(r[n]) for r in (columns, *rows)) for n in range(len(columns))]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in (columns, *rows)]
