"""The layout of a tensor over a mesh, as data for a picture: dimensions, parts, and the devices that hold them.

Two dimensions are laid out as rows and columns, those with the most shards first; other dimensions that are split
become panels, one per part. Long rows of parts are cut short in the middle, so that a picture of thousands of devices
stays one page.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.groups import groups_grid
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, Sharding
from shardc.hlo.ir.types import Shape
from shardc.sharding.notations.annotate import named_results
from shardc.sharding.notations.names import is_glob, match_names, near_names

__all__ = [
    "Cut",
    "DimensionPart",
    "Panel",
    "Picture",
    "PictureLimits",
    "ShardCell",
    "layouts",
    "make_picture",
    "shown_dimensions",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PictureLimits:
    """At most so many parts along a dimension, panels, and devices listed in a cell."""

    parts: int = 8
    panels: int = 6
    devices: int = 6


_LIMITS = PictureLimits()


@dataclass(frozen=True, slots=True)
class DimensionPart:
    """Part ``index`` of a dimension: elements ``start`` to ``stop``, then ``padding``; ``axes`` as ``model=2``."""

    index: int
    start: int
    stop: int
    padding: int
    axes: str

    @property
    def span(self) -> str:
        """``0:4``, ``4:6 +2`` with two elements of padding, ``empty``."""
        if self.start == self.stop and self.padding:
            return "empty"
        return f"{self.start}:{self.stop}" + (f" +{self.padding}" if self.padding else "")


@dataclass(frozen=True, slots=True)
class Cut:
    """A dimension in parts; None stands for omitted parts."""

    dim: int
    size: int
    count: int
    axes: str
    parts: tuple[DimensionPart | None, ...]

    def __str__(self) -> str:
        text = f"dimension {self.dim}: {self.size}, "
        if not self.axes:
            return text + "whole"
        each = -(-self.size // self.count)
        text += f"{self.count} parts of {each} over {self.axes}"
        if self.size % self.count == 0:
            return text
        full, rest = divmod(self.size, each)
        empty = self.count - full - bool(rest)
        return text + f" ({full} full" + (f", one of {rest}" if rest else "") + (f", {empty} empty)" if empty else ")")


@dataclass(frozen=True, slots=True)
class ShardCell:
    """One shard: its number among all shards, and the devices that hold it."""

    shard: int
    devices: tuple[int, ...]
    shown: int

    @property
    def text(self) -> str:
        """``0, 4`` or ``0, 1, 2 and 61 more``."""
        listed = ", ".join(map(str, self.devices[: self.shown]))
        more = len(self.devices) - self.shown
        return listed + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class Panel:
    """Cells by row and column (None where parts are left out); ``label`` says which part of other dimensions."""

    label: str
    cells: tuple[tuple[ShardCell | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """``title`` and ``facts`` in words; ``rows`` and ``columns`` are None for a value of too few dimensions. A panel
    None stands for panels left out."""

    title: str
    facts: tuple[str, ...]
    rows: Cut | None
    columns: Cut | None
    panels: tuple[Panel | None, ...]


def layouts(module: Module, value: str) -> list[tuple[str, Shape, Sharding]]:
    """Name, shape and sharding of every array that a value of a propagated module holds; a tuple has several.

    ``value`` is an argument's, an instruction's (with or without %) or an op's name; with ``*`` or ``?`` it is a glob
    of the first two. Raises `AnnotationError` with near names when there is no such value.
    """
    known: dict[str, Instruction] = dict(zip(module.arg_names, module.parameters, strict=False))
    inside = [i for i in module.instructions() if i.sharding is not None]
    for i in inside:
        known.setdefault(i.name, i)
    if is_glob(value) and value not in known:
        own: dict[Instruction, str] = {}  # one name per value: an argument's own
        for name, i in known.items():
            own.setdefault(i, name)
        matching = match_names(value.lstrip("%"), own.values())
        if matching:
            return [leaf for name in matching for leaf in layouts(module, name)]
    for name, i in named_results(module):
        known.setdefault(name, i)
    for i in inside:
        if i.metadata is not None and i.metadata.op_name:
            known.setdefault(i.metadata.op_name, i)
    found = known.get(value) or known.get(value.removeprefix("%"))
    if found is None:
        raise AnnotationError(f"no value is named {value!r}", fix=near_names(value, known))
    leaves = list(found.shape.leaves())
    names = [value] if len(leaves) == 1 else [f"{value}#{n}" for n in range(len(leaves))]
    triples = zip(names, leaves, found.leaf_shardings(), strict=True)
    return [leaf for leaf in triples if leaf[1].is_array]


def make_picture(name: str, shape: Shape, sharding: Sharding, limits: PictureLimits = _LIMITS) -> Picture:
    """The picture of an array-shaped value.

    Example: ``make_picture("w1", array_shape("f32", 128, 512), Sharding.of(mesh, None, "model"))``.
    """
    counts = sharding.num_shards()
    shown = shown_dimensions(shape.dims, counts)
    cuts = [_cut(d, shape.dims[d], sharding, limits.parts) for d in range(shape.rank)]
    rows, columns = (cuts[d] if d is not None else None for d in shown)
    stacked = [d for d in range(shape.rank) if counts[d] > 1 and d not in shown]
    holders = _holders(sharding)
    panels = []
    for chosen in _elided([*itertools.product(*(range(counts[d]) for d in stacked))], limits.panels):
        fixed = None if chosen is None else dict(zip(stacked, chosen, strict=True))
        panels.append(None if fixed is None else _panel(fixed, (rows, columns), sharding, shape.dims, holders, limits))
    facts = (*(str(c) + ("" if c.dim in shown else _describe_cut(c)) for c in cuts), *_facts(sharding))
    over = "one device" if sharding.mesh.is_maximal or not sharding.mesh.axes else str(sharding.mesh)
    return Picture(f"{name}: {shape} over {over}", facts, rows, columns, tuple(panels))


def shown_dimensions(dims: Sequence[int], counts: Sequence[int]) -> tuple[int | None, int | None]:
    """The dimensions that are rows and columns; vectors are one row."""
    ranked = sorted(range(len(dims)), key=lambda d: (-counts[d], -dims[d], d))
    chosen = sorted(ranked[:2])
    if len(chosen) == 2:
        return chosen[0], chosen[1]
    return None, (chosen[0] if chosen else None)


def _cut(dim: int, size: int, sharding: Sharding, most: int) -> Cut:
    axes = sharding.dims[dim].axes
    count = sharding.dims[dim].extent(sharding.mesh)
    chunk = -(-size // count)
    parts: list[DimensionPart | None] = []
    for index in _elided(range(count), most):
        if index is None:
            parts.append(None)
            continue
        start, stop = min(index * chunk, size), min((index + 1) * chunk, size)
        parts.append(
            DimensionPart(index, start, stop, chunk - (stop - start), _coordinates(index, axes, sharding.mesh))
        )
    return Cut(dim, size, count, ", ".join(map(str, axes)), tuple(parts))


def _coordinates(index: int, axes: Sequence[AxisRef], mesh: Mesh) -> str:
    """``data=1 model=2``: the position along each axis."""
    digits: list[str] = []
    for a in reversed(axes):
        index, digit = divmod(index, a.extent(mesh))
        digits.append(f"{a}={digit}")
    return " ".join(reversed(digits))


def _elided(items: Sequence[T], most: int) -> list[T | None]:
    """All items, or the first ones, None, and the last one."""
    if len(items) <= most:
        return list(items)
    return [*items[: most - 2], None, items[-1]]


def _holders(sharding: Sharding) -> NDArray[np.int64]:
    """Devices by (copy, shard)."""
    if sharding.mesh.is_maximal or not sharding.mesh.axes:
        return np.asarray([[d] for d in sharding.mesh.device_ids or (0,)], np.int64)
    return np.sort(groups_grid(sharding.mesh, [a for d in sharding.dims for a in d.axes]), axis=0)


def _panel(
    fixed: dict[int, int],
    shown: tuple[Cut | None, Cut | None],
    sharding: Sharding,
    dims: Sequence[int],
    holders: NDArray[np.int64],
    limits: PictureLimits,
) -> Panel:
    counts = sharding.num_shards()
    rows, columns = shown

    def cell(row: DimensionPart | None, column: DimensionPart | None) -> ShardCell | None:
        if (rows is not None and row is None) or (columns is not None and column is None):
            return None
        place = dict(fixed)
        for cut, part in ((rows, row), (columns, column)):
            if cut is not None and part is not None:
                place[cut.dim] = part.index
        shard = 0
        for d in range(len(dims)):
            shard = shard * counts[d] + place.get(d, 0)
        return ShardCell(shard, tuple(int(d) for d in holders[:, shard]), limits.devices)

    row_parts = rows.parts if rows is not None else (None,)
    column_parts = columns.parts if columns is not None else (None,)
    labels = []
    for d, index in fixed.items():
        chunk = -(-dims[d] // counts[d])
        span = f"{min(index * chunk, dims[d])}:{min((index + 1) * chunk, dims[d])}"
        labels.append(f"dimension {d}: {span} ({_coordinates(index, sharding.dims[d].axes, sharding.mesh)})")
    return Panel(", ".join(labels), tuple(tuple(cell(r, c) for c in column_parts) for r in row_parts))


def _describe_cut(cut: Cut) -> str:
    """Of a dimension that is neither rows nor columns."""
    return ", one panel per part" if cut.axes else ", not drawn"


def _facts(sharding: Sharding) -> list[str]:
    """Copies, partial values, manual axes."""
    mesh = sharding.mesh
    if mesh.is_maximal:
        return [f"on device {(mesh.device_ids or (0,))[0]} only"]
    out = []
    used = math.prod(a.extent(mesh) for a in sharding.used_axes())
    copies = mesh.size // max(used, 1)
    if copies > 1:
        out.append(f"every part is on {copies} devices" + (" (replicated)" if used == 1 else ""))
    if sharding.unreduced:
        axes = ", ".join(map(str, sharding.unreduced))
        out.append(f"every device holds a partial value; their {sharding.reduction} over {axes} is the value")
    if sharding.manual:
        out.append(f"manual axes: {', '.join(sharding.manual)}")
    return out
