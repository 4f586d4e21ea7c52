"""Arrays over a grid as one block per shard, with margins that neighbours have as well.

An array of n elements along a dimension that k devices share is k blocks of n/k, and with *margins* (low, high) each
block has so many elements of the blocks around it. Behind the last block the first one follows: who has an end there
hides it with a mask. The blocks' own dimension is split, the one inside a block is whole, so that whatever is computed
of blocks needs no other device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import make
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import array_shape

__all__ = ["Grid", "GridBlocks", "Margins", "number_of", "positions"]

#: Per dimension of a grid how many elements before and behind a block.
Margins = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """Dimensions, how each is split, and over how many devices."""

    mesh: Mesh
    dims: tuple[int, ...]
    splits: tuple[DimSharding, ...]

    @staticmethod
    def of(x: Instruction) -> Grid | None:
        """Where ``x`` lies; None where it is whole, or not cut into equal blocks."""
        given = x.sharding
        if not isinstance(given, Sharding) or given.unreduced or given.manual or not x.shape.is_array:
            return None
        grid = Grid(given.mesh, x.shape.dims, given.dims)
        even = all(n % k == 0 for n, k in zip(grid.dims, map(grid.count, range(x.shape.rank)), strict=True))
        return grid if even and grid.split and x.shape.size else None

    def count(self, dim: int) -> int:
        return math.prod(a.extent(self.mesh) for a in self.splits[dim].axes)

    def block(self, dim: int) -> int:
        return self.dims[dim] // self.count(dim)

    @property
    def split(self) -> tuple[int, ...]:
        return tuple(d for d in range(len(self.dims)) if self.count(d) > 1)

    @property
    def devices(self) -> int:
        """How many share an array."""
        return math.prod(map(self.count, self.split))

    @property
    def no_margins(self) -> Margins:
        return ((0, 0),) * len(self.dims)

    def volume(self, margins: Margins) -> float:
        """Elements of a block with margins, over those without."""
        return math.prod((self.block(d) + sum(margins[d])) / self.block(d) for d in self.split)


@dataclass(frozen=True, slots=True)
class GridBlocks:
    """An array in blocks: dimension i of the array is dimension ``at[i]`` of the grid, if it is split there."""

    grid: Grid
    array: Instruction
    at: tuple[int, ...]
    margins: Margins

    @staticmethod
    def sizes(grid: Grid, dims: Sequence[int], at: Sequence[int], margins: Margins) -> tuple[int, ...]:
        """Dimensions of the blocks of an array of ``dims``."""
        out: list[int] = []
        for n, d in zip(dims, at, strict=True):
            out += [grid.count(d), grid.block(d) + sum(margins[d])] if d in grid.split else [n]
        return tuple(out)

    @staticmethod
    def sharding(grid: Grid, at: Sequence[int]) -> Sharding:
        out: list[DimSharding] = []
        for d in at:
            out += [grid.splits[d], DimSharding(())] if d in grid.split else [DimSharding(())]
        return Sharding(grid.mesh, tuple(out))

    @staticmethod
    def cut_up(grid: Grid, x: Instruction) -> GridBlocks:
        """A whole array of the grid."""
        at = tuple(range(x.shape.rank))
        dims = GridBlocks.sizes(grid, x.shape.dims, at, grid.no_margins)
        made = make("reshape", x.shape.plain.with_dims(dims), (x,), x)
        made.sharding = GridBlocks.sharding(grid, at)
        return GridBlocks(grid, made, at, grid.no_margins)

    def whole(self, like: Instruction) -> Instruction:
        """The array again, as ``like`` lies."""
        made = make("reshape", like.shape.plain, (self.cut(self.grid.no_margins).array,), like)
        made.sharding = like.sharding
        return made

    def place(self, i: int) -> int:
        """Which dimension of the blocks is the array's ``i``, inside of a block."""
        return i + sum(d in self.grid.split for d in self.at[: i + 1])

    def of(self, array: Instruction, margins: Margins | None = None) -> GridBlocks:
        """Another array in the same blocks, which gets its sharding."""
        array.sharding = self.sharding(self.grid, self.at)
        return GridBlocks(self.grid, array, self.at, self.margins if margins is None else margins)

    def window(self, margins: Margins, shift: Sequence[int]) -> GridBlocks:
        """What stands ``shift`` further back along each dimension of the grid, with ``margins``."""
        bounds = [(0, n, 1) for n in self.array.shape.dims]
        for i, d in enumerate(self.at):
            if d in self.grid.split:
                start = self.margins[d][0] - margins[d][0] - shift[d]
                bounds[self.place(i)] = (start, start + self.grid.block(d) + sum(margins[d]), 1)
        kept = all(b == (0, n, 1) for b, n in zip(bounds, self.array.shape.dims, strict=True))
        if kept:
            return GridBlocks(self.grid, self.array, self.at, margins)
        return self.of(_slice(self.array, bounds), margins)

    def cut(self, margins: Margins) -> GridBlocks:
        """With smaller margins."""
        return self.window(margins, (0,) * len(self.grid.dims))

    def widened(self, margins: Margins) -> GridBlocks:
        """With margins, which neighbouring blocks send: corners along the later dimensions."""
        blocks = self
        for i, d in enumerate(self.at):
            low, high = margins[d]
            if d in self.grid.split and (low or high):
                blocks = blocks._widened_along(i, low, high)
        return blocks

    def _widened_along(self, i: int, low: int, high: int) -> GridBlocks:
        d, place, x = self.at[i], self.place(i), self.array
        n, k = x.shape.dims[place], self.grid.count(d)
        parts = [x]
        for first, end, from_last in ((n - low, n, True), (0, high, False)):
            if first < end:
                bounds = [(0, m, 1) for m in x.shape.dims]
                bounds[place] = (first, end, 1)
                edge = self.of(_slice(x, bounds)).array
                cut = k - 1 if from_last else 1
                halves = [
                    self.of(
                        _slice(edge, [(*b, 1) if q == place - 1 else (0, m, 1) for q, m in enumerate(edge.shape.dims)])
                    )
                    for b in ((cut, k), (0, cut))
                ]
                moved = self.of(_join([h.array for h in halves], place - 1)).array
                parts = [moved, *parts] if from_last else [*parts, moved]
        margins = tuple((low, high) if q == d else m for q, m in enumerate(self.margins))
        return self.of(_join(parts, place), margins)


def positions(grid: Grid, dim: int, margins: Margins, like: Instruction) -> GridBlocks:
    """s32 positions along one dimension of the grid, in blocks."""
    sizes = GridBlocks.sizes(grid, (grid.dims[dim],), (dim,), margins)
    sharding = GridBlocks.sharding(grid, (dim,))

    def add(opcode: str, *operands: Instruction, **attrs: object) -> Instruction:
        made = make(opcode, array_shape("pred" if opcode == "compare" else "s32", *sizes), operands, like, **attrs)
        made.sharding = sharding
        return made

    def number(value: int) -> Instruction:
        return add("broadcast", number_of(grid, value, like), dimensions=())

    place = add("iota", iota_dimension=len(sizes) - 1)
    if dim in grid.split:
        n, (low, high) = grid.dims[dim], margins[dim]
        place = add("add", place, add("multiply", add("iota", iota_dimension=0), number(grid.block(dim))))
        if low:
            place = add("subtract", place, number(low))
            place = add("select", add("compare", place, number(0), direction="LT"), add("add", place, number(n)), place)
        if high:
            behind = add("compare", place, number(n), direction="GE")
            place = add("select", behind, add("subtract", place, number(n)), place)
    return GridBlocks(grid, place, (dim,), margins)


def number_of(grid: Grid, value: int, like: Instruction) -> Instruction:
    made = make("constant", array_shape("s32"), (), like, literal=Literal(np.asarray(value, np.int32)))
    made.sharding = Sharding(grid.mesh, ())
    return made


def _slice(x: Instruction, bounds: Sequence[tuple[int, int, int]]) -> Instruction:
    dims = tuple(limit - start for start, limit, _ in bounds)
    return make("slice", x.shape.plain.with_dims(dims), (x,), x, slice=tuple(bounds))


def _join(parts: Sequence[Instruction], dim: int) -> Instruction:
    if len(parts) == 1:
        return parts[0]
    dims = parts[0].shape.dims
    total = sum(p.shape.dims[dim] for p in parts)
    shape = parts[0].shape.plain.with_dims((*dims[:dim], total, *dims[dim + 1 :]))
    return make("concatenate", shape, parts, parts[0], dimensions=(dim,))
