"""Transposing in registers: squares of vectors that are read along one loop and used along another.

A map whose reads are contiguous along another loop than its writes works in tiles: vectors are loaded along the
direction of the reads (`across`), transposed by shuffles, and handed out as vectors along the lanes, one for each step
across. Whatever else an element needs is computed as in any other map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llvmlite import ir

from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.elements.affine import Expr, LoopVar
from shardc.compiler.elements.arithmetic.registers import decode, memory_type
from shardc.compiler.elements.elements import Access
from shardc.compiler.elements.frames import Frame, Val
from shardc.compiler.elements.loop_space import reads_across
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DType, Shape
from shardc.native.math.vector import I1, I8, I32, I64, constant, intrinsic, shuffle, vector_constant, with_lanes, zero

__all__ = ["TransposedTile", "side", "transpose_square"]

#: Most rows of a square: so many vectors are live at once.
_MOST = 16
#: Bytes further along a row that are asked for early, for arrays from so many bytes on.
_AHEAD, _OUT_OF_CACHE = 256, 1 << 20


def side(vector_bits: int, nbytes: int) -> int:
    """Elements along one side of a square of elements of ``nbytes`` bytes."""
    return max(1, min(_MOST, vector_bits // 8 // nbytes))


def _element(dtype: DType) -> tuple[ir.Type, int]:
    """An element as it is shuffled: an integer type, and how many of them it takes."""
    return ir.IntType(8 * min(dtype.nbytes, 8)), max(1, dtype.nbytes // 8)


def transpose_square(b: ir.IRBuilder, rows: Sequence[ir.Value], nbytes: int) -> list[ir.Value]:
    """Columns of the square whose ``n`` rows are vectors of ``n`` elements of ``nbytes`` bytes; n is a power of two.

    First rows are interleaved within pieces of 128 bits, as every CPU can, then pieces change places.
    """
    count = len(rows)
    units = max(1, nbytes // 8)
    inside = min(count, max(1, 16 // nbytes))
    width = count * units
    groups: list[list[ir.Value]] = [[r] for r in rows]
    run = 1  # elements of one column that lie side by side
    while run < inside:
        merged = []
        for x, y in zip(groups[::2], groups[1::2], strict=True):
            merged.append(
                [shuffle(b, p, q, _half(count, inside, run, h)) for p, q in zip(x, y, strict=True) for h in (0, 1)]
            )
        groups, run = merged, 2 * run
    columns = [_pieces(b, [g[c] for g in groups], inside * units, width) for c in range(inside)]
    return [columns[k % inside][k // inside] for k in range(count)]


def _half(count: int, inside: int, run: int, half: int) -> list[int]:
    """Lanes that interleave runs of two vectors, within each piece of ``inside`` elements: its lower or upper half."""
    order: list[int] = []
    for piece in range(0, count, inside):
        for k in range(half * inside // 2, (half + 1) * inside // 2, run):
            for vector in (0, count):
                order += range(vector + piece + k, vector + piece + k + run)
    return order


def _pieces(b: ir.IRBuilder, vectors: list[ir.Value], piece: int, width: int) -> list[ir.Value]:
    """Transpose a square of pieces: result k is piece k of every vector."""
    if len(vectors) == 1:
        return vectors
    numbers = range(0, 2 * width, piece)
    picks = [[lane for at in numbers[first::2] for lane in range(at, at + piece)] for first in (0, 1)]
    parts = []
    for pick in picks:
        halved = [shuffle(b, x, y, pick) for x, y in zip(vectors[::2], vectors[1::2], strict=True)]
        parts.append(_pieces(b, halved, piece, width))
    return [v for pair in zip(*parts, strict=True) for v in pair]


@dataclass
class TransposedTile:
    """``height`` steps across by ``lanes`` lanes, of which the first ``live`` exist.

    `fill` reads and transposes; then, for each step, `step` is set (a number, or a loop's index: the vectors then lie
    on the stack) and `value` answers reads.
    """

    e: CpuEmitter
    across: LoopVar
    lane: LoopVar
    height: int
    lanes: int
    live: int
    rolled: bool
    step: int | ir.Value = 0
    frame: Frame | None = None
    _columns: dict[tuple[object, Expr], list[ir.Value] | ir.Value] = field(default_factory=dict)

    def fill(self, accesses: Sequence[Access], frame: Frame) -> None:
        """Read what the accesses that suit need; the loop variables are bound to the tile's first element."""
        for a in accesses:
            key = (a.leaf, a.offset)
            if key in self._columns or not isinstance(a.leaf, Instruction) or a.leaf not in self.e.pointers:
                continue
            low, high = a.offset.range
            if low < 0 or high > a.shape.size or not reads_across(a.offset, self.across, self.lane):
                continue
            columns = self._read(frame.builder, self.e.pointers[a.leaf], a.offset, a.shape)
            self._columns[key] = self._on_stack(frame.builder, columns) if self.rolled else columns

    def value(self, leaf: Instruction, offset: Expr, dtype: DType) -> Val | None:
        """The vector of the present step; None for a read that is no business of the tile."""
        columns = self._columns.get((leaf, offset))
        if columns is None:
            return None
        assert self.frame is not None
        b = self.frame.builder
        if isinstance(columns, list):
            assert isinstance(self.step, int)
            vector = columns[self.step]
        else:
            unit, units = _element(dtype)
            kind = with_lanes(unit, self.lanes * units)
            step = constant(I64, self.step) if isinstance(self.step, int) else self.step
            vector = b.load(b.gep(columns, [step], source_etype=kind), typ=kind)
        return Val(_registers(b, vector, dtype, self.lanes), self.frame, self.lanes)

    def _read(self, b: ir.IRBuilder, base: ir.Value, offset: Expr, shape: Shape) -> list[ir.Value]:
        dtype = shape.dtype
        unit, units = _element(dtype)
        n = side(self.e.vector_bits, dtype.nbytes)
        squares = -(-self.lanes // n)
        at, step, _, _ = self.e.split(offset)
        if shape.nbytes >= _OUT_OF_CACHE:
            for lane in range(self.live):
                self._fetch(b, base, b.add(at.value, constant(I64, lane * step)), dtype.nbytes)
        blocks = []
        for height in range(0, self.height, n):
            columns: list[list[ir.Value]] = []
            for square in range(squares):
                rows = [
                    self._row(b, base, b.add(at.value, constant(I64, lane * step + height)), unit, units, n, height)
                    if lane < self.live
                    else zero(with_lanes(unit, n * units))
                    for lane in range(square * n, square * n + n)
                ]
                columns.append(transpose_square(b, rows, dtype.nbytes))
            blocks += [self._joined(b, [c[k] for c in columns], units) for k in range(min(n, self.height - height))]
        return blocks

    def _fetch(self, b: ir.IRBuilder, base: ir.Value, at: ir.Value, nbytes: int) -> None:
        """Ask for what a later tile reads from this row: hardware sees no pattern in so many rows."""
        ahead = b.add(b.mul(at, constant(I64, nbytes)), constant(I64, _AHEAD))
        place = b.gep(base, [ahead], source_etype=I8)
        intrinsic(b, "llvm.prefetch", ir.VoidType(), [place, *(constant(I32, k) for k in (0, 2, 1))])

    def _row(
        self, b: ir.IRBuilder, base: ir.Value, at: ir.Value, unit: ir.Type, units: int, n: int, height: int
    ) -> ir.Value:
        """``n`` elements across from element ``at``; those past the tile's height are not read."""
        kind = with_lanes(unit, n * units)
        pointer = b.gep(base, [b.mul(at, constant(I64, units)) if units > 1 else at], source_etype=unit)
        align = unit.width // 8
        exist = self.height - height
        if exist >= n:
            return b.load(pointer, typ=kind, align=align)
        if n * units == 1:
            return b.load(pointer, typ=kind, align=align)
        mask = vector_constant([int(k < exist * units) for k in range(n * units)], I1)
        return intrinsic(b, "llvm.masked.load", kind, [pointer, constant(I32, align), mask, zero(kind)])

    def _joined(self, b: ir.IRBuilder, parts: list[ir.Value], units: int) -> ir.Value:
        """Vectors one after the other, cut to the lanes."""
        while len(parts) > 1:
            both = 2 * parts[0].type.count if isinstance(parts[0].type, ir.VectorType) else 2
            parts = [shuffle(b, x, y, range(both)) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        count = parts[0].type.count
        return parts[0] if count == self.lanes * units else shuffle(b, parts[0], None, range(self.lanes * units))

    def _on_stack(self, b: ir.IRBuilder, columns: list[ir.Value]) -> ir.Value:
        kind = columns[0].type
        place = self.e.slot(ir.ArrayType(kind, len(columns)))
        place.type = ir.PointerType()  # llvmlite gives it a typed pointer, which is no ``ptr`` to it
        for k, column in enumerate(columns):
            b.store(column, b.gep(place, [constant(I64, k)], source_etype=kind))
        return place


def _registers(b: ir.IRBuilder, vector: ir.Value, dtype: DType, lanes: int) -> tuple[ir.Value, ...]:
    """Shuffled elements in register form."""
    stored = memory_type(dtype)
    if dtype.is_complex:
        pairs = b.bitcast(vector, with_lanes(stored, 2 * lanes))
        if lanes == 1:
            return tuple(b.extract_element(pairs, constant(I32, k)) for k in (0, 1))
        return tuple(shuffle(b, pairs, None, range(first, 2 * lanes, 2)) for first in (0, 1))
    kind = with_lanes(stored, lanes)
    return (decode(b, vector if vector.type == kind else b.bitcast(vector, kind), dtype),)
