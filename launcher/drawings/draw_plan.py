"""A plan of layouts drawn: decided values as propagated and as planned, what else would cost, memory over the program.

A value is a rectangle cut into its parts. The first device's part is filled, or hatched where it is a partial value.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardc.hlo.errors import InputError
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.units import bytes_text
from shardc.launcher.drawings.draw_layout import svg_text
from shardc.launcher.drawings.fragments import file_name, shortened
from shardc.launcher.drawings.layout_picture import shown_dimensions
from shardc.launcher.run.output_files import check_writable, write_text
from shardc.partitioner.plan.plan_reasons import LayoutDecision, PlanReasons, layout_words

__all__ = ["plan_svg", "write_plan_svg"]

_LEGEND = (
    "each rectangle is a whole value, cut into the parts that devices hold; filled: the part of the first device; "
    "hatched: its partial value, still to be added up",
    "bars on the right: what another layout of this value would add; red: the layout as propagated; "
    "black: the next best one",
)
_DARK, _GREY, _LINE, _MARK = "#222", "#666", "#bbb", "#c0392b"
_PLANNED, _PROPAGATED, _PALE = "#3f6fa3", "#8a8f96", "#eef1f5"
_MARGIN, _WIDTH, _ROW, _HEAD = 24, 1160, 78, 128
_WANTED_AT, _CHOSEN_AT, _BYTES_AT, _OTHER_AT = 300, 520, 740, 900
_GLYPH_WIDTH, _GLYPH_HEIGHT = 76, 38
_CURVE, _CURVE_LEFT = 150, 84
#: A dimension in more parts than this is drawn without lines between them.
_LINES = 16
_ROWS = 24
#: Points of the memory curve: a screen shows no more.
_POINTS = 1000


def plan_svg(program: str, plan: PlanReasons, rows: int = _ROWS) -> str:
    """One page: the result of the plan, the ``rows`` most informative decisions in program order, and memory.

    Example: ``Path("plan.svg").write_text(plan_svg("step", partitioned.plan))``.
    """
    shown = plan.most_telling(rows)
    left = len(plan.decisions) - len(shown)
    longest = max((more for d in shown for _, more, _ in _other_layouts(d) if more), default=0.0)
    body = [*_title(program, plan), *_columns(plan)]
    for number, decision in enumerate(shown):
        body += _decision(plan, decision, _HEAD + 30 + number * _ROW, longest)
    top = _HEAD + 30 + len(shown) * _ROW + 12
    if left:
        more = f"and {left:,} more decision{'s' * (left > 1)} that make less of a difference"
        body.append(svg_text(_MARGIN, top + 6, more, 12, _GREY))
        top += 24
    if plan.usage:
        body += _memory(plan, top + 40)
        top += 40 + _CURVE + 40 + 18 * len(plan.rows)
    height, width = top + _MARGIN, _WIDTH + 2 * _MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif">'
    )
    hatch = (
        '<defs><pattern id="partial" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="6" height="6" fill="{_PALE}"/>'
        f'<line x1="0" y1="0" x2="0" y2="6" stroke="{_PLANNED}" stroke-width="5"/></pattern></defs>'
    )
    return "\n".join([head, hatch, f'<rect width="{width}" height="{height}" fill="white"/>', *body, "</svg>"]) + "\n"


def write_plan_svg(program: str, plan: PlanReasons | None, path: str | Path) -> None:
    """Write `plan_svg` into a file. Raises `InputError` without a plan, and for files that cannot be written."""
    target = Path(path)
    check_writable(target, ".svg")
    if plan is None:
        raise InputError(
            "there is no plan to draw: the program has the propagated layouts", fix='partition with plan="global"'
        )
    write_text(target, plan_svg(program, plan))


# -- words ---------------------------------------------------------------------------------------------------


def _title(program: str, plan: PlanReasons) -> Iterator[str]:
    text, machine = plan.cost_text, f" of {plan.machine}" if plan.machine else ""
    yield svg_text(_MARGIN, 30, f"{program}: a plan of layouts over {plan.mesh}{machine}", 16, _DARK)
    after, before = (j.cost[0] if j.cost else 0.0 for j in (plan.judged, plan.judged_wanted))
    what = "a step takes" if plan.unit == "s" else "a device sends"
    told = f"{what} {text(after)}, as propagated {text(before)}; "
    told += f"memory of a device {bytes_text(plan.judged.peak)}, as propagated {bytes_text(plan.judged_wanted.peak)}"
    told += f", at most {bytes_text(plan.limit)}" if plan.limit is not None else ""
    yield svg_text(_MARGIN, 52, told if plan.taken else f"the propagated layouts stay: {plan.why}", 12, _GREY)
    proven = f"by the plan's own model {text(plan.cost)} instead of {text(plan.wanted_cost)}"
    proven += f"; {plan.proof}"
    yield svg_text(_MARGIN, 70, proven, 12, _GREY)
    for number, line in enumerate(_LEGEND):
        yield svg_text(_MARGIN, 88 + 16 * number, line, 11, _GREY)


def _columns(plan: PlanReasons) -> Iterator[str]:
    y = _HEAD + 8
    yield svg_text(_MARGIN, y, "value", 12, _DARK)
    yield svg_text(_WANTED_AT, y, "as propagated", 12, _DARK)
    yield svg_text(_CHOSEN_AT, y, "as planned", 12, _DARK)
    yield svg_text(_BYTES_AT, y, "on a device", 12, _DARK)
    yield svg_text(_OTHER_AT, y, f"otherwise the {'step' if plan.unit == 's' else 'program'} costs", 12, _DARK)
    yield f'<line x1="{_MARGIN}" y1="{y + 8}" x2="{_MARGIN + _WIDTH}" y2="{y + 8}" stroke="{_LINE}"/>'


def _decision(plan: PlanReasons, d: LayoutDecision, top: float, longest: float) -> Iterator[str]:
    many = f" (+{len(d.names) - 1} like it)" if len(d.names) > 1 else ""
    leaf = f", array {d.leaf}" if d.role == "loop" else ""
    yield svg_text(_MARGIN, top + 12, shortened(d.names[0], 34 - len(many)) + many, 13, _DARK)
    where = f"{d.role} {d.shape}{leaf}" if d.role != "value" else f"{d.opcode} {d.shape}"
    yield svg_text(_MARGIN, top + 29, shortened(where, 44), 11, _GREY)
    told = [file_name(d.source), d.op_name.rpartition("/")[2], f"{d.times:,.0f} times" if d.times > 1 else ""]
    yield svg_text(_MARGIN, top + 45, shortened(", ".join(filter(None, told)), 44), 11, _GREY)
    if d.moved:
        yield from _glyph(d, d.wanted, _WANTED_AT, top, _PROPAGATED)
        x, y = _CHOSEN_AT - 34, top + _GLYPH_HEIGHT / 2
        yield (f'<path d="M{x - 14} {y}h22m-6 -5l6 5l-6 5" fill="none" stroke="{_DARK}" stroke-width="1.5"/>')
    else:
        yield svg_text(_WANTED_AT, top + 24, "the same", 11, _GREY)
    yield from _glyph(d, d.chosen, _CHOSEN_AT, top, _PLANNED)
    yield from _bytes(d, top)
    yield from _others(plan, d, top, longest)
    if d.binds:
        yield svg_text(_BYTES_AT, top + 54, "where memory limits it", 11, _MARK)
    y = top + _ROW - 12
    yield f'<line x1="{_MARGIN}" y1="{y}" x2="{_MARGIN + _WIDTH}" y2="{y}" stroke="#eee"/>'


def _bytes(d: LayoutDecision, top: float) -> Iterator[str]:
    """What a device holds, and how that compares."""
    before, after = d.bytes_in(d.wanted), d.local_bytes
    yield svg_text(_BYTES_AT, top + 16, bytes_text(after), 12, _DARK)
    if before != after:
        yield svg_text(_BYTES_AT, top + 34, f"as propagated {bytes_text(before)}", 11, _GREY)


def _other_layouts(d: LayoutDecision) -> Iterator[tuple[str, float | None, bool]]:
    """Each other layout of the value: in words, what it adds (None: not known), whether it is the propagated one."""
    if d.moved:
        yield "as propagated", d.wanted_more, True
    if d.next_best is not None and (d.next_best != d.wanted or not d.moved):
        yield layout_words(d.next_best), d.next_more, False


def _others(plan: PlanReasons, d: LayoutDecision, top: float, longest: float) -> Iterator[str]:
    """What the plan costs with another layout here; the longest bar of the page stands for ``longest``."""
    for number, (what, more, propagated) in enumerate(_other_layouts(d)):
        y = top + 14 + 26 * number
        cost = "not known" if more is None else f"+{plan.cost_text(more)}"
        colour = _MARK if propagated and more else _DARK
        yield svg_text(_OTHER_AT, y, cost, 12, colour if more is not None else _GREY)
        yield svg_text(_OTHER_AT + 78, y, shortened(what, 32), 11, _GREY)
        if more:
            yield _rect(_OTHER_AT, y + 4, max(1.0, 240 * more / longest), 4, colour)


# -- glyphs --------------------------------------------------------------------------------------------------


def _glyph(d: LayoutDecision, sharding: Sharding, x: float, top: float, colour: str) -> Iterator[str]:
    """The whole value as a rectangle, cut; the first device's part filled; the layout in words below."""
    counts = sharding.num_shards()
    row, column = shown_dimensions(d.shape.dims, counts)
    down, across = (1 if n is None else counts[n] for n in (row, column))
    others = math.prod(counts) // max(1, down * across)
    left, width = x, float(_GLYPH_WIDTH)
    height = float(_GLYPH_HEIGHT) if row is not None else _GLYPH_HEIGHT / 2
    y = top + (_GLYPH_HEIGHT - height) / 2
    yield _rect(left, y, width, height, _PALE, _LINE)
    fill = "url(#partial)" if sharding.unreduced else colour
    yield _rect(left, y, max(2.0, width / across), max(2.0, height / down), fill)
    for n in range(1, across if across <= _LINES else 1):
        yield _line(left + width * n / across, y, left + width * n / across, y + height)
    for n in range(1, down if down <= _LINES else 1):
        yield _line(left, y + height * n / down, left + width, y + height * n / down)
    notes = [f"{down * across} parts" if down * across > 1 else ""]
    notes.append(f"x {others}" if others > 1 else "")
    yield svg_text(left + width + 6, y + height / 2 + 4, " ".join(filter(None, notes)), 10, _GREY)
    yield svg_text(left, top + _GLYPH_HEIGHT + 15, shortened(layout_words(sharding), 34), 11, _DARK)


# -- memory --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scale:
    """Pixels of the curve."""

    top: float
    places: int
    most: float

    def x(self, place: float) -> float:
        return _CURVE_LEFT + (_WIDTH + _MARGIN - _CURVE_LEFT) * place / max(1, self.places)

    def y(self, nbytes: float) -> float:
        return self.top + _CURVE * (1 - nbytes / self.most)


def _memory(plan: PlanReasons, top: float) -> Iterator[str]:
    """Bytes over the program: as planned as an area, as propagated as a line, the limit, and the full places."""
    most = max(*plan.usage, *plan.wanted_usage, plan.limit or 0.0, 1.0) * 1.05
    scale = _Scale(top, len(plan.usage), most)
    title = "memory of a device over the program, by the plan's own model: kernels are not fused, so it can be above"
    yield svg_text(_MARGIN, top - 14, f"{title} the peak of the first line", 12, _DARK)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in _steps(scale, plan.usage))
    base = scale.top + _CURVE
    area = f"{scale.x(0):.1f},{base} {points} {scale.x(len(plan.usage)):.1f},{base}"
    yield f'<polygon points="{area}" fill="{_PLANNED}" fill-opacity="0.35" stroke="{_PLANNED}"/>'
    if plan.wanted_usage:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in _steps(scale, plan.wanted_usage))
        yield f'<polyline points="{points}" fill="none" stroke="{_PROPAGATED}" stroke-width="1.5"/>'
    # A power of two of bytes, so that every figure at the axis is round in binary units.
    step = 2 ** max(0, math.ceil(math.log2(most / 6)))
    for part in range(int(most / step) + 1):
        y = scale.y(part * step)
        yield svg_text(_CURVE_LEFT - 8, y + 4, bytes_text(part * step), 10, _GREY, anchor="end")
        yield _line(_CURVE_LEFT - 4, y, _CURVE_LEFT, y)
    if plan.limit is not None:
        y = scale.y(plan.limit)
        yield f'<path d="M{_CURVE_LEFT} {y:.1f}H{_WIDTH + _MARGIN}" stroke="{_MARK}" stroke-dasharray="5 4"/>'
        label = f"limit {bytes_text(plan.limit)}"
        yield svg_text(_WIDTH + _MARGIN - 4, y - 5, label, 11, _MARK, anchor="end")
    yield svg_text(_CURVE_LEFT, base + 16, "filled: as planned; line: as propagated", 11, _GREY)
    for number, row in enumerate(plan.rows):
        heavy = ", ".join(f"{name} {bytes_text(n)}" for name, n in row.heaviest[:3])
        where = f" ({file_name(row.source)})" if row.source else ""
        text = f"memory limits the plan at {row.at}{where}: {bytes_text(row.usage)}"
        unit, saved = row.more
        text += f" of {bytes_text(row.limit)}; one more {unit} would save {plan.cost_text(saved)}; {heavy}"
        yield svg_text(_MARGIN, base + 36 + 18 * number, shortened(text, 170), 11, _MARK)


def _steps(scale: _Scale, usage: Sequence[float]) -> Iterator[tuple[float, float]]:
    """A stepped curve; of a long program the most bytes of each stretch."""
    stretch = max(1, len(usage) // _POINTS)
    for start in range(0, len(usage), stretch):
        part = usage[start : start + stretch]
        y = scale.y(max(part))
        yield scale.x(start), y
        yield scale.x(start + len(part)), y


def _rect(x: float, y: float, width: float, height: float, fill: str, stroke: str = "none") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{html.escape(fill)}" stroke="{stroke}"/>'


def _line(x: float, y: float, x2: float, y2: float) -> str:
    return f'<path d="M{x:.1f} {y:.1f}L{x2:.1f} {y2:.1f}" stroke="{_LINE}"/>'
