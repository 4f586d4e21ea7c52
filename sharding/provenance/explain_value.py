"""The history of a value as text, for ``explain``."""

from __future__ import annotations

from shardc.hlo.units import count_text
from shardc.sharding.provenance.history import Provenance, Reason
from shardc.sharding.provenance.missed import missed_axes

__all__ = ["explain_value"]


def explain_value(history: Provenance, value_name: str) -> list[str]:
    """A few lines on a value: its sharding, where each axis came from, step by step, and which axes it missed.

    ``value_name`` is an instruction's name, with or without %, an argument's name or an op name. Raises
    `AnnotationError` with near names when there is none.
    """
    lines: list[str] = []
    for value in history.find(value_name):
        lines.append(f"{history.name(value)}: {history.shardings[value].as_layout}")
        for dim in range(history.shardings[value].rank):
            lines += _dimension_lines(history, value, dim)
        lines += [f"  {missed}" for missed in missed_axes(history, value)]
    return lines


def _dimension_lines(history: Provenance, value: int, dim: int) -> list[str]:
    """How a dimension's axes came onto it; axes that came together share their lines."""
    axes = history.shardings[value].dims[dim].axes
    if not axes:
        annotation = history.annotation(value, dim)
        return [f"  {_line(annotation)}"] if annotation is not None and not annotation.axes else []
    lines: list[str] = []
    stories: set[tuple[Reason, ...]] = set()
    for axis in axes:
        story = history.story(value, dim, axis)
        if tuple(story) not in stories:
            stories.add(tuple(story))
            lines += _shorten([f"  {_line(r)}" for r in story])
    return lines


def _line(r: Reason) -> str:
    axes = ", ".join(r.axes) or "kept whole"
    where = f" ({r.source_line})" if r.source_line else ""
    if r.step == 0:
        return f"{r.value} dimension {r.dimension}: {axes} by annotation{where}"
    equation = r.rule.partition(" {")[0]
    how = f"from {r.source} dimension {r.source_dimension} through {r.via}, factor {r.factor} of {equation}"
    return f"{r.value} dimension {r.dimension}: {axes} {how}, change {r.step}{where}"


def _shorten(lines: list[str], keep: int = 8) -> list[str]:
    """The first and the last lines of a long way."""
    if len(lines) <= keep + 2:
        return lines
    return [*lines[: keep // 2], f"  ... {count_text(len(lines) - keep, 'more step')} ...", *lines[-keep // 2 :]]
