"""Small pieces of HTML for notebooks: programs, arrays, simulations, explanations. Escaped, styles inline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from shardc.analysis.drawings.draw_layout import COLOURS
from shardc.analysis.drawings.layout_picture import Panel, Part, Picture, make_picture
from shardc.analysis.drawings.units import bytes_text, flops_text, seconds_text
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.types import array_shape

if TYPE_CHECKING:
    from shardc.analysis.explain.explanation import Explanation
    from shardc.analysis.simulate.simulation import Simulation
    from shardc.launcher.arrays.array import Array
    from shardc.stages.stages import Partitioned, Program, Propagated

__all__ = [
    "array_html",
    "explanation_html",
    "partitioned_html",
    "program_html",
    "propagated_html",
    "simulation_html",
]

_ROWS, _COLLECTIVES = 20, 10
#: Letters that are never broken into lines.
_SHORT = 24
_LINE = "1px solid rgba(127,127,127,0.35)"
_CELL = f"text-align:left;vertical-align:top;padding:2px 10px 2px 0;border-bottom:{_LINE}"
_GREY = "opacity:0.7"


def program_html(program: Program) -> str:
    """Its size, mesh, and parameters with what is annotated."""
    module = program.module
    rows = [(name, str(p.shape.plain), _sharding(p)) for name, p in _parameters(module)]
    mesh = _mesh(module)
    facts = [f"mesh {mesh}" if mesh else "no mesh yet", _count(_instructions(module), "instruction")]
    return _block("Program", module.name, facts, _table(("parameter", "type", "annotation"), rows, _ROWS))


def propagated_html(propagated: Propagated) -> str:
    """Parameters and results with their shardings."""
    module = propagated.module
    rows = [(name, str(p.shape.plain), _sharding(p)) for name, p in _parameters(module)]
    leaves = list(module.entry.root.shape.leaves())
    given = module.entry.root.sharding
    shardings = given if isinstance(given, tuple) else (given,) * len(leaves)
    names = [*module.result_names, *[""] * len(leaves)]
    rows += [
        (names[n] or f"result {n}", str(leaf.plain), "" if s is None else str(s))
        for n, (leaf, s) in enumerate(zip(leaves, shardings, strict=False))
    ]
    facts = [f"mesh {_mesh(module)}", _count(_instructions(module), "instruction")]
    return _block("Propagated", module.name, facts, _table(("parameter or result", "type", "sharding"), rows, _ROWS))


def partitioned_html(partitioned: Partitioned) -> str:
    """Totals, and the collectives that send most."""
    report = partitioned.report()
    facts = [
        _count(report["devices"], "device") + (f" ({_axes(report['mesh'])})" if report["mesh"] else ""),
        f"{bytes_text(report['wire_bytes'])} sent by each",
        f"{flops_text(report['flops'])} on each",
        f"{bytes_text(report['peak_bytes'])} of memory" + (" (estimated)" if report["peak_bytes_estimated"] else ""),
    ]
    ranked = sorted(report["collectives"], key=lambda c: -c["wire_bytes"])
    rows = [
        (
            c["op"], "+".join(c["axes"]) or "all", str(c["group_size"]), f"{c['count']}", bytes_text(c["wire_bytes"]),
            _file(c["source"]) or c["name"], _cut(c["reason"], 120),
        )
        for c in ranked
    ]  # fmt: skip
    columns = ("collective", "axes", "group", "times", "sent", "source", "reason")
    table = _table(columns, rows, _COLLECTIVES) if rows else _line("no collectives: nothing is sent")
    return _block("Partitioned", report["name"], facts, table)


def array_html(array: Array) -> str:
    """Type, sharding, and which device holds what; the shards of this process are framed."""
    dims = ",".join(map(str, array.shape))
    title = f"{array.dtype.name}[{dims}]"
    facts = [f"{bytes_text(array.nbytes)} in all"]
    if array.is_deleted:
        return _block("Array", title, [*facts, "donated: its memory belongs to a result"], "")
    local = array.local_devices
    facts.append("every shard lies in this process" if array.is_fully_addressable else f"{len(local)} shards lie here")
    sharding = array.sharding
    if sharding is None:
        return _block("Array", title, facts, "")
    picture = make_picture(array.name, array_shape("u8", *array.shape), sharding)
    drawn = "".join(_panel(picture, panel, frozenset(local)) for panel in picture.panels)
    told = _line("; ".join((str(sharding), *picture.facts)))
    note = "" if array.is_fully_addressable else _line("framed: the shards of this process", _GREY)
    return _block("Array", title, facts, told + drawn + note)


def simulation_html(simulation: Simulation) -> str:
    """Step time and what it goes to."""
    s = simulation
    total = s.step_seconds or 1.0
    parts = (
        ("computing", s.compute_seconds - s.overlapped_seconds, "#7aa6d6"),
        ("computing while links are busy", s.overlapped_seconds, "#82bf78"),
        ("waiting for collectives", s.exposed_seconds, "#ec7a78"),
        ("idle", s.idle_seconds, "#b9b4ab"),
    )
    bars = "".join(
        f'<div title="{escape(name)}" style="width:{100 * seconds / total:.2f}%;background:{colour}"></div>'
        for name, seconds, colour in parts
        if seconds > 0
    )
    legend = "; ".join(f"{n} {seconds_text(x)} ({100 * x / total:.1f}%)" for n, x, _ in parts if x > 0)
    facts = [
        f"{_count(s.devices, 'device')} of {s.machine}" + (f" ({_axes(s.mesh)})" if s.mesh else ""),
        f"step {seconds_text(s.step_seconds)}",
        f"MFU {100 * s.mfu:.1f}%",
        f"memory {bytes_text(s.peak_bytes)} of {bytes_text(s.capacity_bytes)}" + ("" if s.fits else ": too little"),
    ]
    bar = f'<div style="display:flex;height:18px;max-width:720px;margin:6px 0">{bars}</div>'
    links = [(level, bytes_text(sent)) for level, sent in s.link_bytes.items()]
    table = _table(("one device sends over", "in a step"), links, _ROWS) if links else ""
    return _block("Simulation", s.program, facts, bar + _line(legend) + table)


def explanation_html(explanation: Explanation) -> str:
    """Warnings, and the most costly collectives with their reasons."""
    e = explanation
    timed = e.totals.seconds is not None
    rows = [
        (
            c.op, c.value, "+".join(c.axes) or "all", str(c.count * len(c.names)),
            seconds_text(c.seconds or 0.0) if timed else bytes_text(c.wire_bytes), _file(c.line), _cut(c.reason, 120),
            c.remedies[0].what if c.remedies else "",
        )
        for c in e.collectives
    ]  # fmt: skip
    cost = "time" if timed else "sent"
    columns = ("collective", "value", "axes", "times", cost, "source", "reason", "what would remove it")
    warned = "".join(_line(f"{w.text} ({w.way_out.text})" if w.way_out.text else w.text, _WARNED) for w in e.warnings)
    facts = [_count(e.devices, "device"), f"{bytes_text(e.totals.wire_bytes)} sent by each"]
    facts += [e.machine] if e.machine else []
    table = _table(columns, rows, _COLLECTIVES) if rows else _line("no collectives: nothing is sent")
    return _block("Explanation", e.program, facts, warned + table)


_WARNED = "border-left:4px solid #d98a00;padding:2px 8px;margin:4px 0"


def _block(kind: str, name: str, facts: Iterable[str], inside: str) -> str:
    head = f'<b>{escape(kind)}</b> {escape(name)} <span style="{_GREY}">{escape(", ".join(facts))}</span>'
    return f'<div style="overflow-x:auto;color:inherit"><div>{head}</div>{inside}</div>'


def _line(text: str, style: str = "") -> str:
    return f'<div style="{style}">{escape(text)}</div>'


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], most: int) -> str:
    """The first rows, and how many there are besides."""
    head = "".join(f'<th style="{_CELL};{_GREY}">{escape(c)}</th>' for c in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_cell_style(cell)}">{escape(cell)}</td>' for cell in row) + "</tr>"
        for row in rows[:most]
    )
    more = _line(f"and {len(rows) - most} more", _GREY) if len(rows) > most else ""
    table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<table style="border-collapse:collapse;margin:4px 0;text-align:left">{table}</table>{more}'


def _cell_style(text: str) -> str:
    """Short texts, such as sizes with units, stay on one line."""
    return _CELL + (";white-space:nowrap" if len(text) <= _SHORT else "")


def _panel(picture: Picture, panel: Panel | None, local: frozenset[int]) -> str:
    if panel is None:
        return _line("⋯")
    columns = picture.columns.parts if picture.columns is not None else (None,)
    rows = picture.rows.parts if picture.rows is not None else (None,)
    head = "".join(f'<th style="{_PART}">{_span(part)}</th>' for part in columns)
    lines = []
    for part, cells in zip(rows, panel.cells, strict=True):
        drawn = ""
        for cell in cells:
            colour = "none" if cell is None else COLOURS[cell.shard % len(COLOURS)]
            here = cell is not None and not local.isdisjoint(cell.devices)
            frame = "outline:2px solid currentColor;outline-offset:-2px;" if here else "opacity:0.65;"
            text = "⋯" if cell is None else f'<span style="color:#fff">{escape(cell.text)}</span>'
            drawn += f'<td style="{_PART};background:{colour};{frame if cell is not None else ""}">{text}</td>'
        lines.append(f'<tr><th style="{_PART}">{_span(part)}</th>{drawn}</tr>')
    table = f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    title = _line(panel.label, _GREY) if panel.label else ""
    return f'<table style="border-collapse:separate;border-spacing:2px;margin:4px 0">{table}</table>{title}'


_PART = "padding:3px 9px;text-align:center;font-weight:normal"


def _span(part: Part | None) -> str:
    return "" if part is None else escape(part.span)


def _parameters(module: Module) -> list[tuple[str, Instruction]]:
    return list(zip(module.argument_names, module.parameters, strict=True))


def _sharding(i: Instruction) -> str:
    return "" if i.sharding is None else str(i.sharding)


def _instructions(module: Module) -> int:
    return sum(1 for _ in module.instructions())


def _mesh(module: Module) -> str:
    return _axes(dict(module.mesh.axes)) if module.mesh is not None else ""


def _axes(mesh: Any) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in mesh.items())


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def _file(source: str) -> str:
    return source.rpartition("/")[2]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
