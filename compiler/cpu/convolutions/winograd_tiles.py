"""3x3 convolutions by tiles: 16 products instead of 36 per 2x2 outputs (Winograd's minimal filtering).

In one dimension, four neighbouring inputs d and three taps g give two outputs with four products instead of six
(Winograd, Arithmetic Complexity of Computations, 1980; Lavin and Gray, arXiv:1509.09308)::

    V = d0 - d2, d1 + d2, d2 - d1, d1 - d3
    U = g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2
    y0 = M0 + M1 + M2,  y1 = M1 - M2 - M3            with M = U V

Two dimensions nest. Summed over channels, each of the 16 products is a matrix product over tiles. A gradient of the
weights has two taps per tile (of the result's gradient) and three outputs; V is the same::

    U = g0, (g0 + g1) / 2, (g0 - g1) / 2, g1
    y0 = M0 + M1 + M2,  y1 = M1 - M2,  y2 = M1 + M2 - M3

The factors are powers of two, so whole numbers stay exact. Infinities and NaNs, and sums of large numbers that
overflow, may reach results of a tile that do not read them, and infinities become NaNs. Every result that they reach
is not finite, so whoever transforms back watches them (`finite.FiniteWatch`), and what is not finite is computed again
as it is written (`direct`). With ``operand_precision=highest`` all is, and the rounding is that of plain sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.cpu.finite import FiniteWatch
from shardc.compiler.elements.control_flow import for_range
from shardc.native.math.vector import I64, constant, with_lanes

__all__ = ["POINTS", "WinogradGrid", "inputs", "outputs", "taps"]

#: Products per tile along a dimension.
POINTS = 4

Line = Sequence[ir.Value]


def inputs(b: ir.IRBuilder, d: Line) -> list[ir.Value]:
    """V of four inputs."""
    return [b.fsub(d[0], d[2]), b.fadd(d[1], d[2]), b.fsub(d[2], d[1]), b.fsub(d[1], d[3])]


def taps(b: ir.IRBuilder, g: Line) -> list[ir.Value]:
    """U of three taps or of two."""
    half = constant(g[0].type, 0.5)
    even = b.fadd(g[0], g[2]) if len(g) == 3 else g[0]
    odd = g[1]
    return [g[0], b.fmul(b.fadd(even, odd), half), b.fmul(b.fsub(even, odd), half), g[-1]]


def outputs(b: ir.IRBuilder, m: Line, count: int) -> list[ir.Value]:
    """Two outputs (of three taps) or three (of two)."""
    total, difference = b.fadd(m[1], m[2]), b.fsub(m[1], m[2])
    if count == 2:
        return [b.fadd(m[0], total), b.fsub(difference, m[3])]
    return [b.fadd(m[0], total), difference, b.fsub(total, m[3])]


def twice(b: ir.IRBuilder, square: Sequence[Line], once: Callable[[ir.IRBuilder, Line], list[ir.Value]]) -> list[Line]:
    """A transform along both dimensions of ``square[row][column]``."""
    columns = [once(b, line) for line in zip(*square, strict=True)]
    return [once(b, line) for line in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True)
class WinogradGrid:
    """Tiles (images, rows, columns) of ``channels`` (a multiple of ``lanes``), two outputs apart along both dimensions.

    ``height`` and ``width`` are those of the array that tiles lie in, with channels behind.
    """

    tiles: tuple[int, int, int]
    height: int
    width: int
    channels: int
    lanes: int

    def each(self, b: ir.IRBuilder, body: Callable[[ir.Value, ir.Value], None]) -> None:
        """``body(offset of the tile's first element, offset in (tiles, channels))`` for all tiles and channels."""
        images, rows, columns = self.tiles
        with for_range(b, 0, images) as n, for_range(b, 0, rows) as y, for_range(b, 0, columns) as x:
            at = b.add(b.mul(n, constant(I64, self.height)), b.shl(y, constant(I64, 1)))
            at = b.add(b.mul(at, constant(I64, self.width)), b.shl(x, constant(I64, 1)))
            tile = b.add(b.mul(n, constant(I64, rows)), y)
            tile = b.add(b.mul(tile, constant(I64, columns)), x)
            first, second = (b.mul(v, constant(I64, self.channels)) for v in (at, tile))
            with for_range(b, 0, self.channels, self.lanes) as c:
                body(b.add(first, c), b.add(second, c))

    @property
    def count(self) -> int:
        return self.tiles[0] * self.tiles[1] * self.tiles[2]

    @property
    def plane(self) -> int:
        """Elements from one of the sixteen to the next: a vector more than needed, lest they share lines of a cache."""
        return self.count * self.channels + self.lanes

    def forward(self, b: ir.IRBuilder, t: ir.Type, source: ir.Value, target: ir.Value, taken: int) -> None:
        """V (of 4x4 inputs) or U (of 2x2 taps), ``taken`` a side, to sixteen planes of (tiles, channels)."""
        vector = with_lanes(t, self.lanes)
        once = inputs if taken == POINTS else taps

        def body(first: ir.Value, second: ir.Value) -> None:
            square = [[self._load(b, vector, source, first, i, j) for j in range(taken)] for i in range(taken)]
            for k, value in enumerate(v for line in twice(b, square, once) for v in line):
                at = b.add(second, constant(I64, k * self.plane))
                b.store(value, b.gep(target, [at], source_etype=t), align=4)

        self.each(b, body)

    def backward(self, b: ir.IRBuilder, t: ir.Type, source: ir.Value, target: ir.Value, watch: FiniteWatch) -> None:
        """2x2 outputs of each tile of sixteen planes, which ``watch`` sees."""
        vector = with_lanes(t, self.lanes)

        def body(first: ir.Value, second: ir.Value) -> None:
            found = []
            for k in range(POINTS * POINTS):
                at = b.add(second, constant(I64, k * self.plane))
                found.append(b.load(b.gep(source, [at], source_etype=t), typ=vector, align=4))
            square = [found[POINTS * i : POINTS * (i + 1)] for i in range(POINTS)]
            lines = twice(b, square, lambda b, m: outputs(b, m, 2))
            watch.see(b, [value for line in lines for value in line])
            for i, line in enumerate(lines):
                for j, value in enumerate(line):
                    b.store(value, self._place(b, t, target, first, i, j), align=4)

        self.each(b, body)

    def _place(self, b: ir.IRBuilder, t: ir.Type, base: ir.Value, first: ir.Value, i: int, j: int) -> ir.Value:
        offset = b.add(first, constant(I64, (i * self.width + j) * self.channels))
        return b.gep(base, [offset], source_etype=t)

    def _load(self, b: ir.IRBuilder, t: ir.Type, base: ir.Value, first: ir.Value, i: int, j: int) -> ir.Value:
        return b.load(
            self._place(b, t.element if isinstance(t, ir.VectorType) else t, base, first, i, j), typ=t, align=4
        )
