"""How the tensors of a program lie over the mesh: one row per tensor, one drawing per layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import Shape
from shardc.launcher.drawings.layout_picture import Cut, DimensionPart, Panel, PictureLimits, make_picture

__all__ = ["layout_data", "tensor_rows"]

#: Values in the middle of a program that are listed, the largest first.
_MOST = 4000
_LIMITS = PictureLimits(parts=8, panels=6, devices=6)
#: Instructions whose value is another's, or nobody's.
_NAMES = frozenset(("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call"))

Row = tuple[str, str, Shape, Sharding, str, str, str]


def tensor_rows(module: Module) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """Rows, the drawings that they point to, and how many small values were left out; of a propagated ``module``.

    Parameters and results come first; values inside follow by the bytes that a device holds of them.
    """
    rows: list[dict[str, Any]] = []
    seen: dict[tuple[tuple[int, ...], str], int] = {}
    drawings: list[dict[str, Any]] = []
    inner = [row for row in _values(module) if row[2].rank]
    inner.sort(key=lambda row: -_local_bytes(row[2], row[3]))
    shown = list({(r[1], str(r[2].plain), str(r[3]), r[4]): r for r in reversed(inner)}.values())[::-1]
    for kind, name, shape, sharding, source, opcode, instruction in (*_ends(module), *shown[:_MOST]):
        key = (shape.dims, str(sharding))
        if key not in seen:
            seen[key] = len(drawings)
            drawings.append(layout_data(shape, sharding))
        rows.append(
            {
                "kind": kind,
                "name": name,
                "instruction": instruction,
                "shape": str(shape.plain),
                "local": str(_local(shape, sharding).plain),
                "sharding": str(sharding),
                "bytes": shape.nbytes,
                "local_bytes": _local_bytes(shape, sharding),
                "source": source,
                "opcode": opcode,
                "drawing": seen[key],
            }
        )
    return rows, drawings, max(0, len(shown) - _MOST)


def _ends(module: Module) -> Iterator[Row]:
    """Parameters by their names for users, then results."""
    for name, p in zip(module.argument_names, module.parameters, strict=True):
        yield from _leaves("parameter", name, p)
    root = module.entry.root
    for n, row in enumerate(_leaves("result", "result", root)):
        given = module.result_names[n] if n < len(module.result_names) else ""
        yield row[0], given or row[1], *row[2:]


def _values(module: Module) -> Iterator[Row]:
    for i in module.instructions():
        if i.sharding is not None and i.opcode not in _NAMES:
            name = i.metadata.op_name if i.metadata is not None else ""
            yield from _leaves("value", name or i.name, i)


def _leaves(kind: str, name: str, i: Instruction) -> Iterator[Row]:
    """The arrays that an instruction's value consists of."""
    given = i.sharding if isinstance(i.sharding, tuple) else (i.sharding,)
    leaves = list(i.shape.leaves())
    for n, shape in enumerate(leaves):
        sharding = given[n] if n < len(given) else None
        if shape.is_array and isinstance(sharding, Sharding):
            called = name if len(leaves) == 1 else f"{name}[{n}]"
            yield kind, called, shape, sharding, i.source, i.opcode, f"%{i.name}"


def _local(shape: Shape, sharding: Sharding) -> Shape:
    return shape.with_dims(sharding.local_dims(shape.dims))


def _local_bytes(shape: Shape, sharding: Sharding) -> int:
    return _local(shape, sharding).nbytes


def layout_data(shape: Shape, sharding: Sharding) -> dict[str, Any]:
    """The drawing of `make_picture` as compact data for the page: cuts are [title, [[elements, axes, padding], ...]],
    cells [shard, text]; null stands for what is left out."""
    picture = make_picture("", shape, sharding, _LIMITS)
    return {
        "facts": list(picture.facts),
        "rows": _cut(picture.rows),
        "columns": _cut(picture.columns),
        "panels": [None if panel is None else _panel(panel) for panel in picture.panels],
    }


def _cut(cut: Cut | None) -> list[Any] | None:
    return None if cut is None else [f"dimension {cut.dim}", [None if p is None else _part(p) for p in cut.parts]]


def _part(part: DimensionPart) -> list[Any]:
    whole = part.stop - part.start + part.padding
    return [part.span, part.axes, round(part.padding / whole, 4) if whole else 0]


def _panel(panel: Panel) -> dict[str, Any]:
    cells = [[None if c is None else [c.shard, c.text] for c in row] for row in panel.cells]
    return {"label": panel.label, "cells": cells}
