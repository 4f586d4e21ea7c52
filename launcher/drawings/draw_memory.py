"""Memory over time drawn: the bytes in use by step, and below them every value as a rectangle over steps and place."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from shardc.compiler.lower.buffers.memory_timeline import MemoryBlock, MemoryTimeline
from shardc.hlo.units import bytes_text, count_text
from shardc.launcher.drawings.draw_layout import COLOURS, svg_text
from shardc.launcher.drawings.fragments import shortened

__all__ = ["memory_svg"]

_LEFT, _RIGHT, _WIDTH = 84, 24, 900
_TOP, _CURVE, _GAP, _PLACES = 64, 130, 34, 420
_LISTED = 8
_DARK, _GREY, _MARK = "#222", "#777", "#c0392b"
#: What a value is for, by colour; temporaries take turns.
_KINDS: Mapping[str, str] = MappingProxyType({"argument": "#c9c9c9", "result": "#8f9aa6", "communication": "#e15759"})
_TEMPORARY = tuple(c for c in COLOURS if c not in _KINDS.values())
#: Rectangles smaller than this many pixels on both sides are left out: nobody sees them.
_VISIBLE = 0.4
#: Pixels that a letter of a label takes, and the fewest letters that are worth a label.
_LETTER, _LEAST_LETTERS = 6.2, 6


def memory_svg(timeline: MemoryTimeline) -> str:
    """One page: title, curve, places with the peak marked, and the largest values at the peak by name.

    Example: ``Path("memory.svg").write_text(memory_svg(partitioned.memory_timeline()))``.
    """
    peak = timeline.peak
    most = timeline.in_use[peak] if timeline.in_use else 0
    needed = timeline.fixed_bytes + timeline.written_bytes
    listed = timeline.at(peak)[:_LISTED]
    height = _TOP + _CURVE + _GAP + _PLACES + 54 + 17 * (len(listed) + 1)
    width = _LEFT + _WIDTH + _RIGHT
    facts = f"{bytes_text(needed)} needed, {bytes_text(most)} in use at the peak"
    if timeline.fixed_bytes:
        facts += f"; {bytes_text(timeline.fixed_bytes)} of it arguments that are not donated"
    title = f"{timeline.program}: memory of a device over {count_text(len(timeline.steps), 'instruction')}"
    body = [
        svg_text(_LEFT, 24, title, 15, _DARK),
        svg_text(_LEFT, 44, facts, 12, _GREY),
        *_curve(timeline, most),
        *_places(timeline),
        *_peak(timeline),
        *_legend(timeline, listed),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif">'
    )
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *body, "</svg>"]) + "\n"


def _x(timeline: MemoryTimeline, position: float) -> float:
    return _LEFT + _WIDTH * position / max(len(timeline.steps), 1)


def _curve(timeline: MemoryTimeline, most: int) -> Iterator[str]:
    """Bytes in use as a stepped area; the part of fixed arguments grey."""
    bottom = _TOP + _CURVE
    scale = _CURVE / max(most, 1)
    points = [(float(_LEFT), float(bottom))]
    for position, nbytes in enumerate(timeline.in_use):
        y = bottom - nbytes * scale
        points += [(_x(timeline, position), y), (_x(timeline, position + 1), y)]
    points.append((float(_LEFT + _WIDTH), float(bottom)))
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polygon points="{text}" fill="{COLOURS[0]}" fill-opacity="0.35" stroke="{COLOURS[0]}"/>'
    fixed = timeline.fixed_bytes * scale
    yield _rect(_LEFT, bottom - fixed, _WIDTH, fixed, _KINDS["argument"], "arguments that are not donated")
    yield from _axis(_TOP, _CURVE, most)
    yield svg_text(_LEFT, _TOP - 6, "bytes in use", 11, _GREY)


def _places(timeline: MemoryTimeline) -> Iterator[str]:
    top = _TOP + _CURVE + _GAP
    scale = _PLACES / max(timeline.written_bytes, 1)
    yield svg_text(
        _LEFT, top - 6, "where values are stored: results (and donated arguments) below, other values above", 11, _GREY
    )
    yield _rect(_LEFT, top, _WIDTH, _PLACES, "#f7f7f7", "")
    labels = list[str]()
    for number, block in enumerate(timeline.blocks):
        x, end = _x(timeline, block.first), _x(timeline, block.last + 1)
        tall = block.nbytes * scale
        if end - x < _VISIBLE and tall < _VISIBLE:
            continue
        colour = _KINDS.get(block.kind) or _TEMPORARY[number % len(_TEMPORARY)]
        y = top + _PLACES - block.offset * scale - tall
        yield _rect(x, y, end - x, tall, colour, _hint(timeline, block), edge=True)
        room = int((_x(timeline, _covered_from(timeline, number)) - x - 6) / _LETTER)
        if tall >= 11 and room >= _LEAST_LETTERS:
            labels.append(svg_text(x + 4, y + min(tall / 2 + 4, 14), shortened(_label(block), room), 10, _DARK))
    yield from labels
    yield from _axis(top, _PLACES, timeline.written_bytes)
    yield svg_text(_LEFT, top + _PLACES + 16, "0", 10, _GREY, anchor="middle")
    yield svg_text(_LEFT + _WIDTH, top + _PLACES + 16, str(len(timeline.steps)), 10, _GREY, anchor="end")
    yield svg_text(
        _LEFT + _WIDTH / 2, top + _PLACES + 16, "instructions, in the order of the schedule", 11, _GREY, anchor="middle"
    )


def _peak(timeline: MemoryTimeline) -> Iterator[str]:
    """A line through both parts where most is in use."""
    x = _x(timeline, timeline.peak + 0.5)
    bottom = _TOP + _CURVE + _GAP + _PLACES
    yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{_MARK}" stroke-dasharray="4 3"/>'
    name = timeline.steps[timeline.peak] if timeline.steps else ""
    anchor, shift = ("start", 5) if x < _LEFT + _WIDTH / 2 else ("end", -5)
    yield svg_text(x + shift, _TOP - 6, f"peak: instruction {timeline.peak}, {name}", 11, _MARK, anchor=anchor)


def _legend(timeline: MemoryTimeline, listed: list[MemoryBlock]) -> Iterator[str]:
    top = _TOP + _CURVE + _GAP + _PLACES + 46
    title = f"largest at the peak (instruction {timeline.peak}), without arguments that are not donated:"
    yield svg_text(_LEFT, top, title, 12, _MARK)
    for number, block in enumerate(listed):
        y = top + 17 * (number + 1)
        source = block.source.rpartition("/")[2]
        where = "" if block.kind == "argument" else block.op_name
        where += f" ({source})" if where and source else source
        text = f"{bytes_text(block.nbytes)}  {_label(block)}  instructions {block.first} to {block.last}  {where}"
        yield svg_text(_LEFT + 10, y, text, 11, _DARK)


def _axis(top: float, height: float, most: int) -> Iterator[str]:
    for part in range(5):
        y = top + height - height * part / 4
        yield f'<line x1="{_LEFT - 4}" y1="{y:.1f}" x2="{_LEFT}" y2="{y:.1f}" stroke="{_GREY}"/>'
        yield svg_text(_LEFT - 8, y + 4, bytes_text(most * part / 4), 10, _GREY, anchor="end")
    yield f'<line x1="{_LEFT}" y1="{top}" x2="{_LEFT}" y2="{top + height}" stroke="{_GREY}"/>'


def _rect(x: float, y: float, width: float, height: float, colour: str, hint: str, *, edge: bool = False) -> str:
    stroke = ' stroke="white" stroke-width="0.6"' if edge else ""
    title = f"<title>{html.escape(hint)}</title>" if hint else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{colour}"{stroke}>{title}</rect>'


def _label(block: MemoryBlock) -> str:
    name = block.op_name if block.kind == "argument" and block.op_name else block.name
    return f"{name} {block.shape}"


def _covered_from(timeline: MemoryTimeline, number: int) -> int:
    """The position from which a block drawn later, of the same places, covers a block."""
    block = timeline.blocks[number]
    end = block.offset + block.nbytes
    later = (b for b in timeline.blocks[number + 1 :] if b.offset < end and block.offset < b.offset + b.nbytes)
    return min((b.first for b in later if block.first < b.first <= block.last), default=block.last + 1)


def _hint(timeline: MemoryTimeline, block: MemoryBlock) -> str:
    lines = [f"{block.name} {block.shape}, {bytes_text(block.nbytes)} at {block.offset}, {block.kind}"]
    lines += [text for text in (block.op_name, block.source) if text]
    lines.append(
        f"instructions {block.first} ({timeline.steps[block.first]}) to {block.last} ({timeline.steps[block.last]})"
    )
    return "\n".join(lines)
