"""Arrays side by side that nobody has put together yet: what is cut out of them is made of the parts that it takes.

A kernel reads a concatenation of slices of several arrays where they are. One that reads slices of a concatenation
needs the latter in memory first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.make import make

__all__ = ["Bounds", "Sheet", "SideBySide", "build", "cut", "each", "row", "sizes"]

#: Per dimension of a sheet the first element, and the one after the last.
Bounds = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Sheets side by side along a dimension."""

    dim: int
    parts: tuple[Sheet, ...]


Sheet = Instruction | SideBySide


def sizes(x: Sheet) -> tuple[int, ...]:
    if isinstance(x, Instruction):
        return x.shape.dims
    first, *_ = found = [sizes(p) for p in x.parts]
    return (*first[: x.dim], sum(s[x.dim] for s in found), *first[x.dim + 1 :])


def row(dim: int, parts: Sequence[Sheet]) -> Sheet:
    return parts[0] if len(parts) == 1 else SideBySide(dim, tuple(parts))


def each(x: Sheet, change: Callable[[Instruction], Instruction], place: Callable[[int], int]) -> Sheet:
    """The same sheet of changed arrays, whose dimension d is now ``place(d)``."""
    if isinstance(x, Instruction):
        return change(x)
    return SideBySide(place(x.dim), tuple(each(p, change, place) for p in x.parts))


def cut(x: Sheet, bounds: Bounds) -> Sheet:
    """A part of a sheet."""
    if isinstance(x, Instruction):
        dims = tuple(high - low for low, high in bounds)
        if dims == x.shape.dims:
            return x
        made = make("slice", x.shape.plain.with_dims(dims), (x,), x, slice=tuple((a, b, 1) for a, b in bounds))
        made.sharding = x.sharding
        return made
    parts, at = list[Sheet](), 0
    low, high = bounds[x.dim]
    for part in x.parts:
        n = sizes(part)[x.dim]
        first, end = max(low - at, 0), min(high - at, n)
        if first < end:
            parts.append(cut(part, [*bounds[: x.dim], (first, end), *bounds[x.dim + 1 :]]))
        at += n
    return row(x.dim, parts)


def build(x: Sheet) -> Instruction:
    """The sheet as one array."""
    if isinstance(x, Instruction):
        return x
    parts = [build(p) for p in x.parts]
    made = make("concatenate", parts[0].shape.plain.with_dims(sizes(x)), parts, parts[0], dimensions=(x.dim,))
    made.sharding = parts[0].sharding
    return made
