"""The stages of a program as small pieces of HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.units import bytes_text, count_text, flops_text
from shardc.launcher.drawings.fragments import (
    COLLECTIVES,
    ROWS,
    axes_text,
    block,
    file_name,
    line,
    shortened,
    table,
)

__all__ = ["partitioned_html", "program_html", "propagated_html"]


def program_html(module: Module) -> str:
    """Its size, mesh, and parameters with what is annotated."""
    rows = [(name, str(p.shape.plain), _sharding(p)) for name, p in _parameters(module)]
    mesh = _mesh(module)
    facts = [f"mesh {mesh}" if mesh else "no mesh yet", count_text(_instructions(module), "instruction")]
    return block("Program", module.name, facts, table(("parameter", "type", "annotation"), rows, ROWS))


def propagated_html(module: Module) -> str:
    """Parameters and results with their shardings."""
    rows = [(name, str(p.shape.plain), _sharding(p)) for name, p in _parameters(module)]
    leaves = list(module.entry.root.shape.leaves())
    given = module.entry.root.sharding
    shardings = given if isinstance(given, tuple) else (given,) * len(leaves)
    names = [*module.result_names, *[""] * len(leaves)]
    rows += [
        (names[n] or f"result {n}", str(leaf.plain), "" if s is None else str(s))
        for n, (leaf, s) in enumerate(zip(leaves, shardings, strict=False))
    ]
    facts = [f"mesh {_mesh(module)}", count_text(_instructions(module), "instruction")]
    return block("Propagated", module.name, facts, table(("parameter or result", "type", "sharding"), rows, ROWS))


def partitioned_html(report: Mapping[str, Any]) -> str:
    """Totals of a program's ``report``, and the collectives that send most."""
    facts = [
        count_text(report["devices"], "device") + (f" ({axes_text(report['mesh'])})" if report["mesh"] else ""),
        f"{bytes_text(report['wire_bytes'])} sent by each",
        f"{flops_text(report['flops'])} on each",
        f"{bytes_text(report['peak_bytes'])} of memory" + (" (estimated)" if report["peak_bytes_estimated"] else ""),
    ]
    ranked = sorted(report["collectives"], key=lambda c: -c["wire_bytes"])
    rows = [
        (
            c["op"], "+".join(c["axes"]) or "groups", str(c["group_size"]), str(c["count"]),
            bytes_text(c["wire_bytes"]), file_name(c["source"]), shortened(c["reason"], 120),
        )
        for c in ranked
    ]  # fmt: skip
    columns = ("collective", "axes", "group", "times", "sent", "source", "reason")
    rows_html = table(columns, rows, COLLECTIVES) if rows else line("no collectives: nothing is sent")
    return block("Partitioned", report["name"], facts, rows_html)


def _parameters(module: Module) -> list[tuple[str, Instruction]]:
    return list(zip(module.argument_names, module.parameters, strict=True))


def _sharding(i: Instruction) -> str:
    return "" if i.sharding is None else str(i.sharding)


def _instructions(module: Module) -> int:
    return sum(1 for _ in module.instructions())


def _mesh(module: Module) -> str:
    return axes_text(dict(module.mesh.axes)) if module.mesh is not None else ""
