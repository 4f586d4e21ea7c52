"""Tiny products, and those of integers: sums of a few rows and columns stay in registers until they are complete.

What is made from a product is computed there, too. The library knows no integers, and a call of it takes longer than a
tiny product does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.parallel import ChunkSpan, PhaseKernel, chunks, phase
from shardc.compiler.cpu.products.tiles import DotKernel
from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import Expr, Mask, Rest, linear
from shardc.compiler.elements.arithmetic.registers import register_type
from shardc.compiler.elements.dot_sides import DotSides
from shardc.compiler.elements.elements import Elements, Index
from shardc.compiler.elements.folds import convert_element
from shardc.compiler.elements.frames import ForLoop, Frame, IfBlock, Val, deepest
from shardc.compiler.elements.loop_space import power_above
from shardc.compiler.elements.rules import RULES
from shardc.compiler.tuning import Tuning
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I64, constant, intrinsic, zero

__all__ = ["emit_in_registers", "fits_registers", "register_pieces"]

#: Most multiplications of floats, of all batches together.
_MOST = 1 << 18
#: How much longer a multiplication takes here than in the library.
_SLOWNESS = 2
#: Rows and vectors of columns whose sums are kept at the same time.
_ROWS, _VECTORS = 4, 2


def fits_registers(product: DotKernel, kind: DType) -> bool:
    """Whether the product is tiny, or one of integers of whole bytes. The right side's columns must also lie together,
    to load as vectors."""
    sides = DotSides(product.dot)
    together = sides.n == 1 or sides.right.joint_stride(sides.right.columns) == 1
    fits = kind.is_integer and kind.bits >= 8 if not kind.is_float else sides.work <= _MOST
    return together and fits


def register_pieces(sides: DotSides, tuning: Tuning) -> int:
    """How many pieces there are for threads."""
    blocks = sides.batches * -(-sides.m // _ROWS)
    return chunks(products=_SLOWNESS * sides.work, most=blocks, tuning=tuning)


def emit_in_registers(kernel: CpuKernel, product: DotKernel, kind: DType) -> None:
    """The whole kernel; as `shardc.compiler.cpu.products.tiles.emit_product`."""
    count = register_pieces(DotSides(product.dot), kernel.tuning)
    if count == 1:
        _RegisterProduct(kernel, product, kind).emit(None)
        return
    e = kernel.emitter()

    def emit(part: PhaseKernel) -> None:
        _RegisterProduct(part, product, kind).emit(ChunkSpan(count, part.begin, part.end))

    phase(kernel, e, count, emit)
    e.finish()


@dataclass(frozen=True, slots=True)
class _ColumnVector:
    """A vector of columns: the first, how many lanes, and which of them exist."""

    first: Expr
    lanes: int
    mask: Mask


class _RegisterProduct:
    def __init__(self, kernel: CpuKernel, product: DotKernel, kind: DType) -> None:
        self.kernel, self.product, self.kind = kernel, product, kind
        self.sides = DotSides(product.dot)
        leaves = dict(zip(product.leaves, kernel.operands, strict=True))
        self.e = kernel.emitter(leaves, {**RULES, "dot": self._sum})
        source = self.e.source
        self.batch = tuple(source.loop(n) for n in self.sides.batch)
        # At least two, so that what depends on them is never taken for a constant and moved out of the loops.
        self.row, self.depth = source.loop(max(self.sides.m, 2)), source.loop(max(self.sides.k, 2))
        self.lane = source.loop(max(self.sides.n, 2))
        self.current: Val | None = None

    def emit(self, span: ChunkSpan | None) -> None:
        """Blocks of rows of all batches, one after the other, or a span of them."""
        e, rows = self.e, self.sides.m
        blocks = -(-rows // _ROWS)
        b = e.entry.builder
        total = self.sides.batches * blocks
        first, past = (0, total) if span is None else span.steps(b, total)
        loop = ForLoop(e.entry, past, 1, first)
        inside = loop.frame
        rest, block = self._divided(inside, loop.index, blocks)
        for v in reversed(self.batch):
            rest, index = self._divided(inside, rest, v.size)
            e.bind(v, Val((index,), inside))
        start = inside.builder.mul(block, constant(I64, _ROWS))
        whole, some = divmod(rows, _ROWS)
        if whole and some:
            last = inside.builder.icmp_unsigned("==", block, constant(I64, whole))
            for condition, size in ((inside.builder.not_(last), _ROWS), (last, some)):
                branch = IfBlock(inside, condition)
                self._rows(branch.frame, start, size)
                branch.close()
        else:
            self._rows(inside, start, some or _ROWS)
        loop.close()
        e.finish()

    def _divided(self, frame: Frame, number: ir.Value, size: int) -> tuple[ir.Value, ir.Value]:
        divisor = constant(I64, size)
        return frame.builder.udiv(number, divisor), frame.builder.urem(number, divisor)

    def _rows(self, frame: Frame, row: ir.Value, rows: int) -> None:
        columns = self._columns()
        for start in range(0, len(columns), _VECTORS):
            self._block(frame, row, rows, columns[start : start + _VECTORS])

    def _columns(self) -> list[_ColumnVector]:
        n = self.sides.n
        lanes = min(self.e.vector_bits // max(32, self.kind.bits), power_above(n))
        found = []
        for first in range(0, n, lanes):
            position = Expr.of(self.lane) + first
            found.append(_ColumnVector(position, lanes, () if first + lanes <= n else (Rest(position, 0, n),)))
        return found

    def _block(self, frame: Frame, row: ir.Value, rows: int, columns: Sequence[_ColumnVector]) -> None:
        """The sums of some rows and columns, then what is made from them."""
        e = self.e
        e.bind(self.row, Val((row,), frame))
        lanes = columns[0].lanes
        e.bind(self.lane, Val((constant(I64, 0),), frame), lanes, whole=True)
        kind = register_type(self.kind, lanes)
        slots = [[e.slot(kind) for _ in columns] for _ in range(rows)]
        for slot in (s for line in slots for s in line):
            frame.builder.store(zero(kind), slot)
        loop = ForLoop(frame, self.sides.k)
        e.bind(self.depth, Val((loop.index,), loop.frame))
        self._add(loop.frame, slots, columns)
        loop.close()
        for r, line in enumerate(slots):
            for slot, c in zip(line, columns, strict=True):
                self.current = Val((frame.builder.load(slot, typ=kind),), frame, lanes)
                self._store(frame, r, c)

    def _add(self, frame: Frame, slots: Sequence[Sequence[ir.Value]], columns: Sequence[_ColumnVector]) -> None:
        e, b, lanes = self.e, frame.builder, columns[0].lanes
        left, right = (self.product.leaves[n] for n in self.product.numbers)
        k = Expr.of(self.depth)
        batch = self._batch

        def operand(number: int, row: Expr, column: Expr, mask: Mask) -> ir.Value:
            side = (self.sides.left, self.sides.right)[number]
            leaf = (left, right)[number]
            value = e.value(leaf, side.operand_index(e.source, batch, row, column), mask)
            found = convert_element(e, value, leaf.shape.dtype, self.kind)
            assert isinstance(found, Val)
            return found.wide(lanes)[0]

        vectors = [operand(1, k, c.first, c.mask) for c in columns]
        for r, line in enumerate(slots):
            factor = operand(0, Expr.of(self.row) + r, k, ())
            for slot, vector in zip(line, vectors, strict=True):
                total = b.load(slot, typ=vector.type)
                if self.kind.is_float:
                    b.store(intrinsic(b, "llvm.fmuladd", vector.type, [factor, vector, total]), slot)
                else:
                    b.store(b.add(b.mul(factor, vector), total), slot)

    @property
    def _batch(self) -> Index:
        return tuple(Expr.of(v) for v in self.batch)

    def _sum(self, e: Elements, dot: object, index: Index, mask: Mask) -> object:
        return convert_element(e, self.current, self.kind, self.product.dot.shape.dtype)

    def _store(self, frame: Frame, r: int, columns: _ColumnVector) -> None:
        e, sides = self.e, self.sides
        row = Expr.of(self.row) + r
        index = sides.result_index(e.source, self._batch, row, columns.first)
        position = linear(self._batch, sides.batch) * (sides.m * sides.n) + row * sides.n + columns.first
        values = [e.value(root, index, columns.mask) for root in self.product.roots]
        at = e.split(position)[0]
        holds = e.mask(columns.mask)
        lanes = columns.lanes
        for place, shape, value in zip(self.kernel.results, self.kernel.result_shapes, values, strict=True):
            inside = deepest([at, value] if holds is None else [at, value, holds], frame)
            taken = None if holds is None else holds.wide(lanes)[0]
            memory.store(inside.builder, value.wide(lanes), place, at.value, shape.dtype, taken)
