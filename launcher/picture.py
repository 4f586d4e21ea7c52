"""A tensor over the mesh as a picture: which devices hold which part."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from shardc.hlo.sharding import Sharding
from shardc.launcher.layout import shard_positions

__all__ = ["draw_tensor"]

_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f")
_WIDTH, _HEIGHT, _LEFT, _TOP = 480, 300, 60, 70


def draw_tensor(name: str, dims: Sequence[int], sharding: Sharding) -> str:
    """An SVG of the last two dimensions: rows downwards, columns to the right, device numbers in each part.

    Parts that several devices hold name all of them. Dimensions before the last two are drawn as whole.
    """
    rows, columns = _cut(dims, sharding, -2), _cut(dims, sharding, -1)
    holders = _holders(dims, sharding)
    body = []
    for r, (top, bottom) in enumerate(rows):
        for c, (left, right) in enumerate(columns):
            x, y = _LEFT + left * _WIDTH, _TOP + top * _HEIGHT
            devices = holders.get((r, c), [])
            body.append(_part(x, y, (right - left) * _WIDTH, (bottom - top) * _HEIGHT, devices, r * len(columns) + c))
    shape = " x ".join(map(str, dims)) or "scalar"
    mesh = ", ".join(f"{a} = {n}" for a, n in sharding.mesh.axes)
    text = [
        f'<text x="{_LEFT}" y="28" font-size="17">{escape(name)}: {shape}</text>',
        f'<text x="{_LEFT}" y="50" font-size="13" fill="#555">{escape(str(sharding))} on mesh {escape(mesh)}; '
        "numbers are devices</text>",
    ]
    size = f'width="{_WIDTH + 2 * _LEFT}" height="{_HEIGHT + _TOP + 30}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    background = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, background, *text, *body, "</svg>"]) + "\n"


def _cut(dims: Sequence[int], sharding: Sharding, dimension: int) -> list[tuple[float, float]]:
    """The parts of a dimension as fractions of its length."""
    if len(dims) < -dimension or dims[dimension] == 0:
        return [(0.0, 1.0)]
    n, k = dims[dimension], sharding.num_shards()[dimension]
    c = -(-n // k)
    return [(min(i * c, n) / n, min((i + 1) * c, n) / n) for i in range(k)]


def _holders(dims: Sequence[int], sharding: Sharding) -> dict[tuple[int, int], list[int]]:
    out: dict[tuple[int, int], list[int]] = {}
    for device, position in enumerate(shard_positions(sharding, sharding.mesh.size, len(dims))):
        r, c = (0, 0, *position)[-2:]
        out.setdefault((r, c), []).append(device)
    return out


def _part(x: float, y: float, width: float, height: float, devices: Sequence[int], number: int) -> str:  # noqa: PLR0917
    colour = _COLOURS[number % len(_COLOURS)]
    shown = [str(d) for d in devices[:8]] + (["..."] if len(devices) > 8 else [])
    label = escape(" ".join(shown))
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    middle = f'x="{x + width / 2:.1f}" y="{y + height / 2 + 5:.1f}"'
    return (
        f'<rect {box} fill="{colour}" stroke="white" stroke-width="2"/>'
        f'<text {middle} font-size="15" fill="white" text-anchor="middle">{label}</text>'
    )
