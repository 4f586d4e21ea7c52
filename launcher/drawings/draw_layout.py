"""A picture of a tensor over a mesh drawn: SVG text, or a table for the terminal. No dependencies."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import Shape
from shardc.launcher.drawings.layout_picture import Cut, DimensionPart, Panel, Picture, ShardCell, make_picture

__all__ = ["COLOURS", "picture_svg", "picture_table", "shard_colour", "sharding_svg", "svg_text"]

COLOURS = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#e15759",
    "#76b7b2",
    "#b6992d",
    "#b07aa1",
    "#d37295",
    "#9c755f",
    "#79706e",
)
#: How dark the colours of each further ten parts are.
_SHADES = (1.0, 0.76, 0.58, 0.44)
_MARGIN, _GUTTER, _HEADER, _GAP = 24, 104, 34, 26
_CELLS_WIDTH, _CELLS_HEIGHT, _VECTOR_HEIGHT = 400, 240, 60
_PANELS_PER_ROW = 2
_DARK, _GREY = "#222", "#777"


def shard_colour(shard: int) -> str:
    """The colour of a part: those of forty parts in a row differ."""
    shade = _SHADES[shard // len(COLOURS) % len(_SHADES)]
    colour = COLOURS[shard % len(COLOURS)]
    return "#" + "".join(f"{round(int(colour[k : k + 2], 16) * shade):02x}" for k in (1, 3, 5))


def sharding_svg(name: str, shape: Shape, sharding: Sharding) -> str:
    """One rectangle for the array, cut into its shards, each with the devices that hold it.

    Example: ``Path("w1.svg").write_text(sharding_svg("w1", array_shape("f32", 128, 512), sharding))``.
    """
    return picture_svg(make_picture(name, shape, sharding))


def picture_svg(picture: Picture) -> str:
    """The picture as SVG: a grid of cells per panel, padding hatched, parts left out as dots."""
    body: list[str] = []
    top = _MARGIN + 22
    for n, line in enumerate((picture.title, *picture.facts)):
        size, colour = (15, _DARK) if n == 0 else (12, _GREY)
        body.append(svg_text(_MARGIN, top - 6, line, size, colour))
        top += 20 if n == 0 else 17
    height = _CELLS_HEIGHT if picture.rows is not None else _VECTOR_HEIGHT
    step = (_GUTTER + _CELLS_WIDTH + _MARGIN, _HEADER + height + (40 if len(picture.panels) > 1 else 16))
    for n, panel in enumerate(picture.panels):
        x, y = _MARGIN + (n % _PANELS_PER_ROW) * step[0], top + (n // _PANELS_PER_ROW) * step[1]
        body += _panel(picture, panel, x, y, height)
    used = min(len(picture.panels), _PANELS_PER_ROW)
    down = -(-len(picture.panels) // _PANELS_PER_ROW)
    longest = max(len(line) for line in (picture.title, *picture.facts))
    width = max(2 * _MARGIN + used * step[0] - _MARGIN, 2 * _MARGIN + 8 * longest)
    total = top + down * step[1] + 20
    body.append(svg_text(_MARGIN, total - 10, "numbers in the cells: the devices that hold the part", 11, _GREY))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{total}" viewBox="0 0 {width} {total}" '
        'font-family="sans-serif">'
    )
    hatch = (
        '<defs><pattern id="padding" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="6" height="6" fill="#fff" fill-opacity="0.75"/>'
        '<line x1="0" y1="0" x2="0" y2="6" stroke="#999" stroke-width="2"/></pattern></defs>'
    )
    return "\n".join([head, hatch, f'<rect width="{width}" height="{total}" fill="white"/>', *body, "</svg>"]) + "\n"


def _panel(picture: Picture, panel: Panel | None, x: float, y: float, height: float) -> Iterator[str]:
    """One grid with its row and column labels."""
    if panel is None:
        yield svg_text(x + _GUTTER + _CELLS_WIDTH / 2, y + _HEADER + height / 2, "⋯", 28, _GREY, anchor="middle")
        return
    columns = _extents(picture.columns, _CELLS_WIDTH)
    rows = _extents(picture.rows, height)
    left, top = x + _GUTTER, y + _HEADER
    for part, (start, end) in zip(_parts(picture.columns), columns, strict=True):
        yield from _label(left + (start + end) / 2, top - 8, part, end - start, "middle")
    for part, (start, end) in zip(_parts(picture.rows), rows, strict=True):
        yield from _label(left - 8, top + (start + end) / 2 + 4, part, _GUTTER, "end")
    for r, (row, vertical) in enumerate(zip(panel.cells, rows, strict=True)):
        for c, (cell, horizontal) in enumerate(zip(row, columns, strict=True)):
            box = (left + horizontal[0], top + vertical[0], horizontal[1] - horizontal[0], vertical[1] - vertical[0])
            if cell is None:
                yield svg_text(box[0] + box[2] / 2, box[1] + box[3] / 2 + 5, "⋯", 16, _GREY, anchor="middle")
            else:
                yield from _cell(cell, box, (_parts(picture.rows)[r], _parts(picture.columns)[c]))
    if panel.label:
        yield svg_text(left, top + height + 18, panel.label, 12, _DARK)


def _parts(cut: Cut | None) -> Sequence[DimensionPart | None]:
    return cut.parts if cut is not None else (None,)


def _extents(cut: Cut | None, pixels: float) -> list[tuple[float, float]]:
    """Begin and end of every part along one side; a gap for those left out."""
    parts = _parts(cut)
    gaps = sum(p is None for p in parts) if cut is not None else 0
    each = (pixels - gaps * _GAP) / max(len(parts) - gaps, 1)
    out: list[tuple[float, float]] = []
    at = 0.0
    for p in parts:
        size = _GAP if p is None and cut is not None else each
        out.append((at, at + size))
        at += size
    return out


def _label(x: float, y: float, part: DimensionPart | None, room: float, anchor: str) -> Iterator[str]:
    """The elements of a part, and the positions along its axes."""
    if part is None:
        return
    if part.axes and 5.2 * len(part.axes) <= room:
        yield svg_text(x, y - 12 if anchor == "middle" else y - 6, part.axes, 10, _GREY, anchor=anchor)
        y = y if anchor == "middle" else y + 6
    size = min(11.0, 1.7 * room / max(len(part.span), 1))
    if size >= 6:
        yield svg_text(x, y, part.span, size, _DARK, anchor=anchor)


Box = tuple[float, float, float, float]


def _cell(cell: ShardCell, box: Box, parts: tuple[DimensionPart | None, DimensionPart | None]) -> Iterator[str]:
    x, y, width, height = box
    colour = shard_colour(cell.shard)
    hint = html.escape(f"part {cell.shard} on devices {', '.join(map(str, cell.devices))}")
    yield (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}" stroke="white" '
        f'stroke-width="2"><title>{hint}</title></rect>'
    )
    for part, vertical in zip(parts, (True, False), strict=True):
        if part is not None and part.padding:
            share = part.padding / (part.stop - part.start + part.padding)
            w, h = (width, height * share) if vertical else (width * share, height)
            yield f'<rect x="{x + width - w:.1f}" y="{y + height - h:.1f}" width="{w:.1f}" height="{h:.1f}" '
            yield 'fill="url(#padding)"/>'
    text = _fitting(cell, width)
    size = min(13.0, height * 0.7, 1.75 * width / max(len(text), 1))
    if size >= 5:
        ink = _DARK if any(p is not None and p.padding for p in parts) else _ink(colour)
        yield svg_text(x + width / 2, y + height / 2 + size / 3, text, size, ink, anchor="middle")


def _ink(colour: str) -> str:
    """White or black, whichever has more contrast with ``#rrggbb`` (luminance as WCAG 2.1 defines it)."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.18 else "black"


def _fitting(cell: ShardCell, width: float) -> str:
    """The devices, or the first one and how many more where there is no room."""
    if 5.5 * len(cell.text) <= width or len(cell.devices) <= 1:
        return cell.text
    return f"{cell.devices[0]} +{len(cell.devices) - 1}"


def svg_text(x: float, y: float, text: str, size: float, colour: str, *, anchor: str = "start") -> str:
    """A text element; ``anchor`` is ``start``, ``middle`` or ``end``."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:.1f}" fill="{colour}" text-anchor="{anchor}">'
        f"{html.escape(text)}</text>"
    )


def picture_table(picture: Picture, panel: Panel) -> tuple[list[str], list[list[tuple[str, int]]]]:
    """One panel as a table: column titles, then rows of (text, number of the shard or -1)."""
    columns = picture.columns.parts if picture.columns is not None else (None,)
    rows = picture.rows.parts if picture.rows is not None else (None,)
    corner = " x ".join(f"dim {c.dim}" for c in (picture.rows, picture.columns) if c is not None)
    titles = [corner, *(_title(p) if picture.columns is not None else "" for p in columns)]
    table: list[list[tuple[str, int]]] = []
    for part, cells in zip(rows, panel.cells, strict=True):
        head = _title(part) if picture.rows is not None else ""
        table.append([(head, -1), *((c.text, c.shard) if c is not None else ("...", -1) for c in cells)])
    return titles, table


def _title(part: DimensionPart | None) -> str:
    if part is None:
        return "..."
    return part.span + (f" ({part.axes})" if part.axes else "")
