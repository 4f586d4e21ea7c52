"""How a matrix product is cut: into tiles for threads, and a tile into calls of BLAS whose operands fit the caches."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.compiler.elements.dot_sides import DotSides, Matrix
from shardc.compiler.tuning import Tuning
from shardc.hlo.ir.types import DType
from shardc.native.llvm.target import Target

__all__ = ["TileGrid", "grid"]

#: OpenBLAS multiplies without packing what has at most so many multiplications, on CPUs with AVX-512 and for these
#: types, if the right side is not transposed. That is faster than its blocked code for operands in the caches.
_UNPACKED, _UNPACKED_TYPES = 1_000_000, ("f32", "f64")

#: Fewest rows of a tile that pay for packing the panel, and the fewest rows of a product that do at all.
_FEWEST_ROWS, _REUSED = 128, 48
#: Tiles that a large product is cut into at least, for the sake of many cores.
_WANTED = 8

#: The library's own packing of one element costs as much as so many multiplications.
_PACKING = 10.0


@dataclass(frozen=True, slots=True)
class TileGrid:
    """Tiles of ``rows`` x ``columns`` (those at the ends may be smaller), computed by calls of ``block`` rows and
    ``depth`` products per sum. ``panels``: the right side is copied into a dense panel of ``depth`` x ``columns``."""

    rows: int
    columns: int
    depth: int
    block: int
    panels: bool = False

    def tiles(self, sides: DotSides) -> tuple[int, int]:
        """How many tiles there are along rows and columns."""
        return -(-sides.m // self.rows), -(-sides.n // self.columns)


def grid(
    sides: DotSides, kind: DType, target: Target, tuning: Tuning, left: Matrix | None, right: Matrix | None
) -> TileGrid:
    """The grid depends on shapes, the element type, the target and ``tuning`` only, so that results do not depend on
    threads. The right panel, and a tile with it, stay in L2. ``left`` and ``right``: how the sides lie."""
    unpacked = kind.name in _UNPACKED_TYPES and "+avx512f" in target.features.split(",")
    if not unpacked or sides.m < 2 or sides.n < 2:
        return _packed_by_library(sides)
    if sides.m * sides.n * sides.k <= _UNPACKED:
        return TileGrid(sides.m, sides.n, sides.k, sides.m)
    if sides.m < _REUSED and right is not None and not right.transposed:
        columns = _even(sides.n, max(sides.n // _WANTED, 1), 256 // kind.nbytes)
        return TileGrid(sides.m, columns, _even(sides.k, max(_UNPACKED // (sides.m * columns), 1), 1), sides.m)
    columns = _even(sides.n, tuning.panel_bytes // kind.nbytes, 64 // kind.nbytes)
    # Columns of a transposed left side lie far apart: fewer of them at a time, so that they stay in L1.
    depth = _even(sides.k, tuning.panel_depth // (2 if left is not None and left.transposed else 1), 8)
    tiles = -(-sides.m // tuning.tile_rows)
    across = sides.batches * -(-sides.n // columns)
    while tiles * across < _WANTED and sides.m // (2 * tiles) >= _FEWEST_ROWS:
        tiles *= 2
    rows = _even(sides.m, -(-sides.m // tiles), 6)
    block = max(6, _UNPACKED // (columns * depth) // 6 * 6)
    return TileGrid(rows, columns, depth, min(block, rows), panels=True)


def _even(size: int, most: int, multiple: int) -> int:
    """The part of ``size`` when it is cut into parts of about ``most``: about equal ones, multiples of a number."""
    parts = -(-size // most)
    part = -(-size // parts)
    return min(size, -(-part // multiple) * multiple)


def _packed_by_library(sides: DotSides) -> TileGrid:
    """The most tiles whose repeated packing costs little: 2 % for many, more where few cores would have work."""
    best = TileGrid(sides.m, sides.n, sides.k, sides.m)
    whole = 1 / max(sides.m, 1) + 1 / max(sides.n, 1)
    most = sides.work // 2_000_000
    for exponent in range(7):
        options = []
        for down in range(exponent + 1):
            rows = _even(sides.m, -(-sides.m // (1 << down)), 8)
            columns = _even(sides.n, -(-sides.n // (1 << (exponent - down))), 16)
            options.append(TileGrid(rows, columns, sides.k, rows))
        found = min(options, key=lambda g: 1 / g.rows + 1 / g.columns)
        down, across = found.tiles(sides)
        count = sides.batches * down * across
        loss = _PACKING * (1 / found.rows + 1 / found.columns - whole)
        if count <= most and loss <= 0.02 + 0.12 / count:
            best = found
    return best
