"""Small pieces of HTML for notebooks, escaped, styles inline: a titled block, a line, a table, a layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.launcher.drawings.draw_layout import shard_colour
from shardc.launcher.drawings.layout_picture import DimensionPart, Panel, Picture, make_picture

__all__ = [
    "COLLECTIVES",
    "GREY",
    "ROWS",
    "axes_text",
    "block",
    "file_name",
    "layout_html",
    "line",
    "shortened",
    "table",
]

#: The most rows of a table, and of a table of collectives.
ROWS, COLLECTIVES = 20, 10
#: Letters that are never broken into lines.
_SHORT = 24
_LINE = "1px solid rgba(127,127,127,0.35)"
_CELL = f"text-align:left;vertical-align:top;padding:2px 10px 2px 0;border-bottom:{_LINE}"
GREY = "opacity:0.7"


def block(kind: str, name: str, facts: Iterable[str], inside: str) -> str:
    head = f'<b>{escape(kind)}</b> {escape(name)} <span style="{GREY}">{escape(", ".join(facts))}</span>'
    return f'<div style="overflow-x:auto;color:inherit"><div>{head}</div>{inside}</div>'


def line(text: str, style: str = "") -> str:
    return f'<div style="{style}">{escape(text)}</div>'


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], most: int) -> str:
    """The first rows, and how many there are besides."""
    head = "".join(f'<th style="{_CELL};{GREY}">{escape(c)}</th>' for c in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_cell_style(cell)}">{escape(cell)}</td>' for cell in row) + "</tr>"
        for row in rows[:most]
    )
    more = line(f"and {len(rows) - most} more", GREY) if len(rows) > most else ""
    table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<table style="border-collapse:collapse;margin:4px 0;text-align:left">{table}</table>{more}'


def _cell_style(text: str) -> str:
    """Short texts, such as sizes with units, stay on one line."""
    return _CELL + (";white-space:nowrap" if len(text) <= _SHORT else "")


def layout_html(name: str, dims: Sequence[int], sharding: Sharding, local: frozenset[int]) -> str:
    """Which device holds what of an array; the shards of the ``local`` devices are framed."""
    picture = make_picture(name, array_shape("u8", *dims), sharding)
    drawn = "".join(_panel(picture, panel, local) for panel in picture.panels)
    return line("; ".join((str(sharding), *picture.facts))) + drawn


def _panel(picture: Picture, panel: Panel | None, local: frozenset[int]) -> str:
    if panel is None:
        return line("⋯")
    columns = picture.columns.parts if picture.columns is not None else (None,)
    rows = picture.rows.parts if picture.rows is not None else (None,)
    head = "".join(f'<th style="{_PART}">{_span(part)}</th>' for part in columns)
    lines = []
    for part, cells in zip(rows, panel.cells, strict=True):
        drawn = ""
        for cell in cells:
            colour = "none" if cell is None else shard_colour(cell.shard)
            here = cell is not None and not local.isdisjoint(cell.devices)
            frame = "outline:2px solid currentColor;outline-offset:-2px;" if here else "opacity:0.65;"
            text = "⋯" if cell is None else f'<span style="color:#fff">{escape(cell.text)}</span>'
            drawn += f'<td style="{_PART};background:{colour};{frame if cell is not None else ""}">{text}</td>'
        lines.append(f'<tr><th style="{_PART}">{_span(part)}</th>{drawn}</tr>')
    table = f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    title = line(panel.label, GREY) if panel.label else ""
    return f'<table style="border-collapse:separate;border-spacing:2px;margin:4px 0">{table}</table>{title}'


_PART = "padding:3px 9px;text-align:center;font-weight:normal"


def _span(part: DimensionPart | None) -> str:
    return "" if part is None else escape(part.span)


def axes_text(mesh: Mapping[str, int]) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in mesh.items())


def file_name(source: str) -> str:
    return source.rpartition("/")[2]


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
