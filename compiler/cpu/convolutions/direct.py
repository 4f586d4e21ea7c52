"""3x3 convolutions of a block that lies with its borders in memory, as they are written: a product per row and tap.

Neighbouring outputs of a row read neighbouring inputs, so the patches of one tap are a matrix that need not be copied.
That is slower than tiles (`winograd`), whose place it takes where their results are not finite.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from shardc.compiler.cpu.convolutions.winograd_tiles import WinogradGrid
from shardc.compiler.cpu.products.contraction import scale
from shardc.compiler.elements.arithmetic.registers import memory_type
from shardc.compiler.elements.control_flow import for_range
from shardc.hlo.ir.types import DType
from shardc.native.llvm import blas
from shardc.native.math.vector import I32, I64, constant

__all__ = ["Taps", "Tiled", "results", "weights"]


class Tiled(NamedTuple):
    """Memory that tiles lie in, as `WinogradGrid` says."""

    place: ir.Value
    grid: WinogradGrid

    def row(self, b: ir.IRBuilder, t: ir.Type, image: ir.Value, y: ir.Value, x: int | ir.Value = 0) -> ir.Value:
        """The channels of row ``y`` of an image, from column ``x`` on."""
        at = b.add(b.mul(image, constant(I64, self.grid.height)), y)
        at = b.add(b.mul(at, constant(I64, self.grid.width)), constant(I64, x) if isinstance(x, int) else x)
        return b.gep(self.place, [b.mul(at, constant(I64, self.grid.channels))], source_etype=t)


class Taps(NamedTuple):
    """(3, 3, channels, features) of memory; the first two turned round where ``back``."""

    place: ir.Value
    back: tuple[bool, ...] = (False, False)


def results(b: ir.IRBuilder, kind: DType, slab: Tiled, taps: Taps, out: Tiled) -> None:
    """All outputs of a block from its inputs, ``slab``, that have a border of one tile's overlap."""
    t = memory_type(kind)
    depth, features = slab.grid.channels, out.grid.channels
    images, rows, columns = out.grid.tiles
    with for_range(b, 0, images) as n, for_range(b, 0, 2 * rows) as y, for_range(b, 0, 9) as k:
        i, j = b.udiv(k, constant(I64, 3)), b.urem(k, constant(I64, 3))
        first, second = (b.sub(constant(I64, 2), v) if r else v for v, r in zip((i, j), taps.back, strict=True))
        number = b.add(b.mul(first, constant(I64, 3)), second)
        right = b.gep(taps.place, [b.mul(number, constant(I64, depth * features))], source_etype=t)
        left = slab.row(b, t, n, b.add(y, i), j)
        fresh = b.icmp_signed("==", k, constant(I64, 0))
        _multiply(b, kind, (2 * columns, features, depth), left, right, out.row(b, t, n, y), fresh)


def weights(
    b: ir.IRBuilder, kind: DType, slab: Tiled, taps: Tiled, extents: tuple[ir.Value, ir.Value, int], out: ir.Value,
    fresh: ir.Value,
) -> None:  # fmt: skip
    """The sums over a block at ``out``, (3, 3, channels, features); they overwrite what is there if ``fresh``.

    ``extents`` are the images, rows and columns of ``taps`` that exist: a zero in place of others would meet inputs.
    """
    t = memory_type(kind)
    channels, features = slab.grid.channels, taps.grid.channels
    images, rows, columns = extents
    with for_range(b, 0, images) as n, for_range(b, 0, rows) as y, for_range(b, 0, 9) as k:
        i, j = b.udiv(k, constant(I64, 3)), b.urem(k, constant(I64, 3))
        target = b.gep(out, [b.mul(k, constant(I64, channels * features))], source_etype=t)
        start = b.and_(fresh, b.icmp_signed("==", b.or_(n, y), constant(I64, 0)))
        left = slab.row(b, t, n, b.add(y, i), j)
        _multiply(b, kind, (channels, features, columns), left, taps.row(b, t, n, y), target, start, turned=True)


def _multiply(
    b: ir.IRBuilder, kind: DType, sizes: tuple[int, int, int], left: ir.Value, right: ir.Value, out: ir.Value,
    fresh: ir.Value, turned: bool = False,
) -> None:  # fmt: skip
    """(m, n) = (m, k) x (k, n), added to the result unless ``fresh``; ``turned``: the left side lies as (k, m)."""
    m, n, k = sizes
    beta = b.select(fresh, scale(b, kind, 0.0), scale(b, kind, 1.0))
    head = [blas.ROW_MAJOR, blas.TRANS if turned else blas.NO_TRANS, blas.NO_TRANS, *sizes]
    sides = [left, constant(I32, m if turned else k), right, constant(I32, n)]
    numbers = [constant(I32, x) for x in head]
    b.call(blas.declare_gemm(b.module, kind.name), [*numbers, scale(b, kind, 1.0), *sides, beta, out, constant(I32, n)])
