"""Matrix products in tiles: BLAS computes each, over dense panels that stay in L2 (Goto and van de Geijn, "Anatomy of
High-Performance Matrix Multiplication", TOMS 2008), into the result, or into scratch memory from which the elements
that depend on it are computed while the tile is in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.loops.mapping import emit_map
from shardc.compiler.cpu.loops.outputs import MapOutput
from shardc.compiler.cpu.parallel import ChunkSpan, PhaseKernel, chunks, phase
from shardc.compiler.cpu.products.blas_calls import BlasView, address, gemm, transpose_copy
from shardc.compiler.cpu.products.grid import TileGrid, grid
from shardc.compiler.cpu.products.pack import pack
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import Expr, Mask, Rest, delinearise, linear
from shardc.compiler.elements.dot_sides import DotSides, Matrix
from shardc.compiler.elements.elements import Elements, Index
from shardc.compiler.elements.folds import convert_element
from shardc.compiler.elements.frames import ForLoop, Frame, IfBlock, Val, deepest
from shardc.compiler.elements.loop_space import power_above
from shardc.compiler.elements.rules import RULES
from shardc.compiler.tuning import Tuning
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DType, array_shape
from shardc.native.llvm import blas
from shardc.native.math.vector import I64, constant, intrinsic

__all__ = ["DotKernel", "emit_product", "tile_pieces"]

#: A right side with rows of at most so many elements in memory is read as it lies: its panels are near each other.
_NEAR = 512


@dataclass
class DotKernel:
    """A dot whose operands are operands ``sides`` of a kernel, and what is made from it.

    ``roots`` are the values that the kernel's results are, ``leaves`` the instructions that its operands are. Roots
    read the dot's element at their own row-major position only. Plain products have the dot itself as root.
    """

    dot: Instruction
    numbers: tuple[int, int]
    leaves: Sequence[Instruction]
    roots: Sequence[Instruction]


def tile_pieces(sides: DotSides, cut: TileGrid, tuning: Tuning) -> int:
    """How many pieces of tiles there are for threads."""
    down, across = cut.tiles(sides)
    return chunks(products=sides.work, most=sides.batches * down * across, tuning=tuning)


def emit_product(kernel: CpuKernel, product: DotKernel, kind: DType) -> None:
    """The whole kernel. No dimension of the dot or its operands is 0; ``kind`` is the type to multiply in."""
    e = kernel.emitter()
    sides = DotSides(product.dot)
    operands = [product.leaves[n] for n in product.numbers]
    both = list(zip(operands, (sides.left, sides.right), strict=True))
    matrices = [side.as_it_lies() if operand.shape.dtype is kind else None for operand, side in both]
    cut = grid(sides, kind, kernel.target, kernel.tuning, *matrices)
    scratch: list[ir.Value] = []
    for place, (operand, side) in enumerate(both):
        if matrices[place] is None and not (cut.panels and side is sides.right):
            scratch.append(pack(kernel, e, product.numbers[place], operand, side, kind))
            matrices[place] = side.dense()
    left, right = matrices
    assert left is not None
    pieces = tile_pieces(sides, cut, kernel.tuning)

    def emit(part: PhaseKernel) -> None:
        _Tiles(part, product, sides, cut, kind, left, right).emit(pieces)

    phase(kernel, e, pieces, emit, scratch)
    release(e, scratch)
    e.finish()


class _Tiles:
    """The function that computes tiles: over batches, rows and columns, the columns fastest."""

    def __init__(
        self,
        part: PhaseKernel,
        product: DotKernel,
        sides: DotSides,
        cut: TileGrid,
        kind: DType,
        left: Matrix,
        right: Matrix | None,
    ) -> None:
        self.part, self.product, self.sides, self.cut, self.kind = part, product, sides, cut, kind
        self.left, self.right = left, right
        packed = iter(part.shared)
        pointers = [part.operands[n] for n in product.numbers]
        self.pointers = [
            next(packed) if m is not None and m.packed else p for m, p in zip((left, right), pointers, strict=True)
        ]
        self.staging = array_shape(kind, cut.rows, cut.columns)
        self.staged = Instruction("parameter", self.staging, attrs={"index": 0})
        self.direct = product.roots == [product.dot] and product.dot.shape.dtype is kind
        rules = {**RULES, "dot": self._element}
        leaves = dict(zip(product.leaves, part.operands, strict=True))
        self.e = part.emitter(leaves, rules)
        source = self.e.source
        self.batch = tuple(source.loop(n) for n in sides.batch)
        self.down, self.across = cut.tiles(sides)
        self.row_tile = source.loop(self.down)
        # At least two, so that what depends on them is never taken for a constant and moved out of the loops.
        self.row, self.column = source.loop(max(cut.rows, 2)), source.loop(max(cut.columns, 2))

    def emit(self, pieces: int) -> None:
        e = self.e
        entry = e.entry
        self.panel = allocate(e, self.cut.depth * self.cut.columns * self.kind.nbytes) if self.cut.panels else None
        self.stage = None if self.direct else allocate(e, self.staging.nbytes)
        if self.stage is not None:
            e.with_leaf(self.staged, self.stage)
        total = self.sides.batches * self.down * self.across
        first, past = ChunkSpan(pieces, self.part.begin, self.part.end).steps(entry.builder, total)
        loop = ForLoop(entry, past, 1, first)
        self._place(loop)
        loop.close()
        release(e, [p for p in (self.panel, self.stage) if p is not None])
        e.finish()

    def _place(self, loop: ForLoop) -> None:
        """Bind the indices of a tile; tiles at the end of the columns have code of their own."""
        e, frame = self.e, loop.frame
        b = frame.builder

        def part_of(number: ir.Value, size: int) -> tuple[ir.Value, ir.Value]:
            return b.udiv(number, constant(I64, size)), b.urem(number, constant(I64, size))

        rest, column = part_of(loop.index, self.across)
        rest, row = part_of(rest, self.down)
        e.bind(self.row_tile, Val((row,), frame))
        for v in reversed(self.batch):
            rest, index = part_of(rest, v.size)
            e.bind(v, Val((index,), frame))
        whole, width = divmod(self.sides.n, self.cut.columns)
        if not width:
            self._tile(frame, column, whole, self.cut.columns)
            return
        last = b.icmp_unsigned("==", column, constant(I64, whole))
        if whole:
            branch = IfBlock(frame, b.not_(last))
            self._tile(branch.frame, column, whole, self.cut.columns)
            branch.close()
        branch = IfBlock(frame, last)
        self._tile(branch.frame, None, whole, width)
        branch.close()

    def _tile(self, frame: Frame, column: ir.Value | None, whole: int, width: int) -> None:
        e, cut = self.e, self.cut
        first = Expr(whole * cut.columns)
        if column is not None:
            v = e.source.loop(whole)
            e.bind(v, Val((column,), frame))
            first = Expr.of(v) * cut.columns
        self.first = first
        self.width = width
        self.first_row = Expr.of(self.row_tile) * cut.rows
        rows: ir.Value = constant(I64, cut.rows)
        if self.sides.m % cut.rows:
            left = frame.builder.sub(constant(I64, self.sides.m), self._index(frame, self.first_row))
            rows = intrinsic(frame.builder, "llvm.umin", I64, [rows, left])
        self._multiply(frame, rows)
        if not self.direct:
            self._finish(frame, rows)

    def _index(self, frame: Frame, position: Expr) -> ir.Value:
        return self.e.index(position).value

    def _multiply(self, frame: Frame, rows: ir.Value) -> None:
        e, depth = self.e, self.cut.depth
        steps, rest = divmod(self.sides.k, depth)
        if steps:
            loop = ForLoop(frame, steps)
            v = e.source.loop(steps)
            e.bind(v, Val((loop.index,), loop.frame))
            self._step(loop.frame, rows, Expr.of(v) * depth, depth)
            loop.close()
        if rest:
            self._step(frame, rows, Expr(steps * depth), rest)

    def _step(self, frame: Frame, rows: ir.Value, at: Expr, depth: int) -> None:
        """Multiply with ``depth`` rows of the right side from row ``at``, block by block of the left side's rows."""
        e, cut, kind = self.e, self.cut, self.kind
        right = self._right(frame, at, depth)
        loop = ForLoop(frame, rows, cut.block)
        inside = loop.frame
        b = inside.builder
        e.bind(self.row, Val((loop.index,), inside))
        row = self.first_row + Expr.of(self.row)
        source = self._index(inside, self.left.offset(e.source, self._batch, row, at))
        left = BlasView(address(b, self.pointers[0], source, kind), self.left.leading, self.left.transposed)
        if self.stage is None:
            sizes = self.sides
            result = self._batch_offset(sizes.m * sizes.n) + row * sizes.n + self.first
            out = BlasView(address(b, self.part.results[0], self._index(inside, result), kind), sizes.n)
        else:
            place = self._index(inside, Expr.of(self.row) * self.width)
            out = BlasView(address(b, self.stage, place, kind), self.width)
        count = intrinsic(b, "llvm.umin", I64, [b.sub(rows, loop.index), constant(I64, cut.block)])
        add = b.icmp_unsigned("!=", self._index(inside, at), constant(I64, 0))
        gemm(b, kind, (count, self.width, depth), left, right, out, add)
        loop.close()

    @property
    def _batch(self) -> Index:
        return tuple(Expr.of(v) for v in self.batch)

    def _batch_offset(self, stride: int) -> Expr:
        return linear(self._batch, self.sides.batch) * stride

    def _right(self, frame: Frame, at: Expr, depth: int) -> BlasView:
        """The right side from row ``at`` in the tile's columns: as it lies, or a panel."""
        e, kind = self.e, self.kind
        matrix = self.right
        if matrix is not None:
            b = frame.builder
            offset = self._index(frame, matrix.offset(e.source, self._batch, at, self.first))
            lies = BlasView(address(b, self.pointers[1], offset, kind), matrix.leading, matrix.transposed)
            if self.panel is None or (not matrix.transposed and matrix.leading <= _NEAR):
                return lies
            panel = BlasView(self.panel, self.width)
            if matrix.transposed and kind.name in blas.TRANSPOSE:
                transpose_copy(b, kind, self.width, depth, lies, panel)
                return panel
        assert self.panel is not None
        side, operand = self.sides.right, self.product.leaves[self.product.numbers[1]]

        def element(e: Elements, index: Index, mask: Mask) -> object:
            k, column = index
            where = side.operand_index(e.source, self._batch, at + k, self.first + column)
            return convert_element(e, e.value(operand, where, mask), operand.shape.dtype, kind)

        dims = (depth, self.width)
        emit_map(e, dims, [MapOutput(self.panel, array_shape(kind, *dims), element)], frame)
        return BlasView(self.panel, self.width)

    def _element(self, e: Elements, dot: Instruction, index: Index, mask: Mask) -> object:
        """The product's element at the row and column that are being finished."""
        offset = Expr.of(self.row) * self.width + Expr.of(self.column)
        return convert_element(e, e.leaf(self.staged, offset, mask), self.kind, dot.shape.dtype)

    def _finish(self, frame: Frame, rows: ir.Value) -> None:
        """The roots' elements, row by row, in vectors along the columns."""
        e = self.e
        loop = ForLoop(frame, rows)
        e.bind(self.row, Val((loop.index,), loop.frame))
        most = 2 * e.vector_bits // max(32, *(s.dtype.bits for s in self.part.result_shapes))
        lanes = min(most, power_above(self.width))
        whole, rest = divmod(self.width, lanes)
        if whole:
            inner = ForLoop(loop.frame, whole * lanes, lanes)
            e.bind(self.column, Val((inner.index,), inner.frame), lanes, whole=True)
            self._store(inner.frame, lanes, ())
            inner.close()
        if rest:
            tail = min(lanes, power_above(rest))
            e.bind(self.column, Val((constant(I64, whole * lanes),), loop.frame), tail, whole=True)
            self._store(loop.frame, tail, () if tail == rest else (Rest(Expr.of(self.column), 0, self.width),))
        loop.close()

    def _store(self, frame: Frame, lanes: int, mask: Mask) -> None:
        e, sides = self.e, self.sides
        row, column = self.first_row + Expr.of(self.row), self.first + Expr.of(self.column)
        index = sides.result_index(e.source, self._batch, row, column)
        position = self._batch_offset(sides.m * sides.n) + row * sides.n + column
        values = []
        for root in self.product.roots:
            same = root.shape.dims == self.product.dot.shape.dims
            values.append(e.value(root, index if same else delinearise(e.source, position, root.shape.dims), mask))
        at = e.split(position)[0]
        holds = e.mask(mask)
        for place, shape, value in zip(self.part.results, self.part.result_shapes, values, strict=True):
            inside = deepest([at, value] if holds is None else [at, value, holds], frame)
            taken = None if holds is None else holds.wide(lanes)[0]
            memory.store(inside.builder, value.wide(lanes), place, at.value, shape.dtype, taken)
