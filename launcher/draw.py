"""A tensor over a mesh as a picture: SVG text, no dependencies."""

from __future__ import annotations

import html
from collections.abc import Sequence

from shardc.hlo.errors import InputError
from shardc.hlo.sharding import Sharding
from shardc.partitioner.equivalence import shard_places

__all__ = ["sharding_svg"]

_COLOURS = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#e15759",
    "#76b7b2",
    "#edc948",
    "#b07aa1",
    "#ff9da7",
    "#9c755f",
    "#bab0ac",
)
_WIDTH, _HEIGHT, _MARGIN = 360, 240, 56
_MOST_TILES = 4096


def sharding_svg(name: str, dims: Sequence[int], sharding: Sharding) -> str:
    """One rectangle for the array, cut into its shards, each with the devices that hold it.

    Two dimensions are drawn: the sharded ones first, then the largest; shards that differ only along the others
    share a tile. Example: ``Path("w1.svg").write_text(sharding_svg("w1", (128, 512), sharding))``. Raises
    InputError for more than 4096 tiles.
    """
    shape = tuple(dims)
    counts = sharding.num_shards()
    ranked = sorted(range(len(shape)), key=lambda d: (counts[d] == 1, -shape[d], d))
    shown = sorted(ranked[:2])
    tiles: dict[Key, list[int]] = {}
    for device, part in shard_places(sharding, shape):
        tiles.setdefault(tuple((part[d].start, part[d].stop) for d in shown), []).append(device)
    if len(tiles) > _MOST_TILES:
        raise InputError(f"a picture of {len(tiles)} shards", fix=f"draw at most {_MOST_TILES}: use a smaller mesh")
    body = [
        _tile(_rows(key, shown, shape), _columns(key, shown, shape), devices, i)
        for i, (key, devices) in enumerate(sorted(tiles.items()))
    ]
    title = (name, f"{list(shape)} over {sharding.mesh}")
    labels = [_label(d, shape, sharding) for d in shown]
    return _document(title, labels, body)


Span = tuple[float, float]
Key = tuple[tuple[int, int], ...]


def _rows(key: Key, shown: Sequence[int], shape: tuple[int, ...]) -> Span:
    """Vertical extent of a tile in pixels; a vector is drawn as a band."""
    return _scaled(key[0], shape[shown[0]], _HEIGHT) if len(shown) == 2 else (0.0, _HEIGHT / 3)


def _columns(key: Key, shown: Sequence[int], shape: tuple[int, ...]) -> Span:
    return _scaled(key[-1], shape[shown[-1]], _WIDTH) if shown else (0.0, _WIDTH / 3)


def _scaled(span: tuple[int, int], size: int, pixels: int) -> Span:
    return (pixels * span[0] / max(size, 1), pixels * span[1] / max(size, 1))


def _tile(rows: Span, columns: Span, devices: Sequence[int], index: int) -> str:
    x, y = _MARGIN + columns[0], _MARGIN + rows[0]
    width, height = columns[1] - columns[0], rows[1] - rows[0]
    if width <= 0 or height <= 0:
        return ""
    listed = ", ".join(map(str, devices[:6])) + (f" and {len(devices) - 6} more" if len(devices) > 6 else "")
    hint = f"<title>devices {', '.join(map(str, devices))}</title>"
    box = (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{_COLOURS[index % len(_COLOURS)]}" stroke="white" stroke-width="2">{hint}</rect>'
    )
    size = min(14.0, height * 0.6, 1.8 * width / max(len(listed), 1))
    if size < 5:
        return box
    text = f'<text x="{x + width / 2:.1f}" y="{y + height / 2 + size / 3:.1f}" font-size="{size:.1f}"'
    return f'{box}{text} text-anchor="middle" fill="white">{listed}</text>'


def _label(dim: int, shape: tuple[int, ...], sharding: Sharding) -> str:
    axes = ", ".join(map(str, sharding.dims[dim].axes))
    return f"dimension {dim}: {shape[dim]}" + (f", split over {axes}" if axes else ", whole")


def _document(title: tuple[str, str], labels: Sequence[str], body: Sequence[str]) -> str:
    width, height = _WIDTH + 2 * _MARGIN, _HEIGHT + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_MARGIN}" y="{_MARGIN - 32}" font-size="14" fill="#222">{html.escape(title[0])}</text>',
        f'<text x="{_MARGIN}" y="{_MARGIN - 14}" font-size="12" fill="#222">{html.escape(title[1])}</text>',
        *body,
    ]
    if labels:
        below = _MARGIN + _HEIGHT + 24
        parts.append(f'<text x="{_MARGIN}" y="{below}" font-size="12" fill="#222">{html.escape(labels[-1])}</text>')
    if len(labels) == 2:
        x, y = _MARGIN - 14, _MARGIN + _HEIGHT
        turn = f'transform="translate({x} {y}) rotate(-90)"'
        parts.append(f'<text {turn} font-size="12" fill="#222">{html.escape(labels[0])}</text>')
    parts.append(
        f'<text x="{_MARGIN}" y="{_MARGIN + _HEIGHT + 42}" font-size="11" fill="#666">'
        "numbers: the devices that hold each part</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"
