"""Blocks of a convolution's product: gather patches, multiply, and (narrow types) convert."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from llvmlite import ir

from shardc.compiler.cpu.convolutions.slab import Slab, parameter
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.loops.mapping import emit_map
from shardc.compiler.cpu.loops.outputs import MapOutput
from shardc.compiler.cpu.parallel import PhaseKernel
from shardc.compiler.cpu.products.contraction import scale
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.elements.affine import Expr, Mask, linear
from shardc.compiler.elements.arithmetic.registers import memory_type
from shardc.compiler.elements.convolution_roles import BlockReading, RoleCut, Roles, joint_stride, run_length
from shardc.compiler.elements.elements import Elements, Index
from shardc.compiler.elements.folds import convert_element
from shardc.compiler.elements.frames import ForLoop, Frame, IfBlock, Val
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DType, array_shape
from shardc.native.llvm import blas
from shardc.native.math.vector import I32, I64, constant

__all__ = ["BlockRange", "PatchBlocks", "PatchPlan", "add_by_tree", "share", "shift", "starts_of", "variants"]

_Term = TypeVar("_Term")

#: Bytes of the input's part that several blocks read which leave room in a core's cache.
_SHARED_SLAB = 1 << 18


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """How the product is cut: blocks of rows and of depth, and into how many sums over depth (0: rows run in parallel).

    ``packed``: the kernel lies in memory as (depth..., all features), in the product's type ``kind``.
    """

    roles: Roles
    kind: DType
    rows: RoleCut
    depth: RoleCut
    sums: int
    packed: bool


class BlockRange(NamedTuple):
    """A block of rows or of depth: where it starts and its extent, per role."""

    starts: Sequence[Expr]
    sizes: tuple[int, ...]

    @property
    def area(self) -> int:
        return math.prod(self.sizes)


@dataclass(frozen=True, slots=True)
class _BlockSource:
    """Memory that holds what a block reads: dimension for dimension the input's, from ``origin``.

    The block's own rows and depth start at ``rows`` and ``depth`` of what ``reading`` describes.
    """

    leaf: Instruction
    pointer: ir.Value
    reading: BlockReading
    origin: Sequence[Expr]
    rows: Sequence[Expr]
    depth: Sequence[Expr]

    def index(self, rows: Sequence[Expr], depth: Sequence[Expr]) -> Index:
        """Where the element of a (local) row and depth lies."""
        found = self.reading.index(shift(rows, self.rows), shift(depth, self.depth))
        return tuple(shift(found, self.origin))


def shift(starts: Sequence[Expr], by: Sequence[Expr]) -> list[Expr]:
    """``starts`` moved on, role by role."""
    return [a + b for a, b in zip(starts, by, strict=True)]


def share(b: ir.IRBuilder, begin: ir.Value, end: ir.Value, total: int, count: int) -> tuple[ir.Value, ir.Value]:
    """The part [first, past) of ``total`` that chunks [begin, end) of ``count`` take."""
    first, past = (b.udiv(b.mul(n, constant(I64, total)), constant(I64, count)) for n in (begin, end))
    return first, past


def add_by_tree(values: Sequence[_Term], add: Callable[[_Term, _Term], _Term]) -> _Term:
    """One value from several (at least one), by a tree that depends on their number only."""
    values = list(values)
    while len(values) > 1:
        odd = values[len(values) - len(values) % 2 :]
        values = [add(x, y) for x, y in zip(values[::2], values[1::2], strict=False)] + odd
    return values[0]


def starts_of(e: CpuEmitter, frame: Frame, cut: RoleCut, number: ir.Value) -> tuple[list[Expr], ir.Value]:
    """Where block ``number`` starts, per role, and the number of its piece of the role that is cut."""
    b = frame.builder
    numbers: list[ir.Value] = []
    rest = number
    for n in (cut.pieces, *(r.size for r in reversed(cut.roles[: cut.at]))):
        numbers.append(b.urem(rest, constant(I64, n)))
        rest = b.udiv(rest, constant(I64, n))
    starts = []
    sizes = [r.size for r in cut.roles[: cut.at]] + [cut.pieces]
    for n, value in zip(sizes, reversed(numbers), strict=True):
        v = e.source.loop(n)
        e.bind(v, Val((value,), frame))
        starts.append(Expr.of(v))
    starts[-1] = starts[-1] * cut.chunk
    return [*starts, *(Expr() for _ in cut.roles[cut.at + 1 :])], numbers[0]


def variants(frame: Frame, cut: RoleCut, piece: ir.Value) -> Iterator[tuple[Frame, tuple[int, ...]]]:
    """Code for a block of each extent there is: all equal, or the last piece smaller."""
    if not cut.rest:
        yield frame, cut.sizes()
        return
    for rest, sign in ((False, "!="), (True, "==")):
        is_last = frame.builder.icmp_unsigned(sign, piece, constant(I64, cut.pieces - 1))
        branch = IfBlock(frame, is_last)
        yield branch.frame, cut.sizes(rest)
        branch.close()


class PatchBlocks:
    """One phase's function: its buffers, and the blocks that it computes into ``out``.

    ``out`` has the product's type and the output's layout; None: each block of rows is computed apart and converted.
    """

    def __init__(self, plan: PatchPlan, part: PhaseKernel, filters: ir.Value, out: ir.Value | None) -> None:
        self.plan, self.part, self.filters, self.out = plan, part, filters, out
        self.roles, self.kind = plan.roles, plan.kind
        self.operand = part.instruction.operands[0]
        self.e = part.emitter()
        self.scratch: list[ir.Value] = []
        rows, depth = plan.rows, plan.depth
        self.slab: ir.Value | None = None
        self.shares_slab = False
        if not self.roles.inside or self.operand.shape.dtype is not self.kind:
            small = self._reading_bytes(rows.sizes(), depth.sizes())
            many = (rows.whole(), depth.sizes()) if plan.sums else (rows.sizes(), depth.whole())
            whole = self._reading_bytes(*many)
            self.shares_slab = whole <= max(_SHARED_SLAB, small)
            self.slab = self._allocate(whole if self.shares_slab else small)
        self.patches = self._allocate(math.prod(rows.sizes()) * math.prod(depth.sizes()) * self.kind.nbytes)
        self.block = None
        if out is None:
            self.block = self._allocate(math.prod(rows.sizes()) * self.roles.features * self.kind.nbytes)

    def _reading_bytes(self, rows: tuple[int, ...], depth: tuple[int, ...]) -> int:
        return math.prod(BlockReading(self.roles, rows, depth).extents) * self.kind.nbytes

    def _allocate(self, nbytes: int) -> ir.Value:
        place = allocate(self.e, nbytes)
        self.scratch.append(place)
        return place

    def finish(self) -> None:
        release(self.e, self.scratch)
        self.e.finish()

    def whole_depth(self, frame: Frame, group: Expr, rows: BlockRange) -> None:
        """One block of rows, all of the depth."""
        cut = self.plan.depth
        none = [Expr()] * len(cut.roles)
        source = self._copied(frame, group, rows, BlockRange(none, cut.whole())) if self.shares_slab else None
        loop = ForLoop(frame, cut.count)
        fresh = loop.frame.builder.icmp_unsigned("==", loop.index, constant(I64, 0))
        starts, piece = starts_of(self.e, loop.frame, cut, loop.index)
        for inner, sizes in variants(loop.frame, cut, piece):
            part = source and replace(source, depth=starts)
            self._multiply(inner, group, rows, BlockRange(starts, sizes), fresh, part)
        loop.close()
        if self.block is not None:
            self._convert(frame, group, rows)

    def all_rows(self, frame: Frame, depth: BlockRange, fresh: ir.Value) -> None:
        """One block of depth, all of the rows (ungrouped)."""
        cut = self.plan.rows
        none = [Expr()] * len(cut.roles)
        source = self._copied(frame, Expr(), BlockRange(none, cut.whole()), depth) if self.shares_slab else None
        loop = ForLoop(frame, cut.count)
        starts, piece = starts_of(self.e, loop.frame, cut, loop.index)
        for inner, sizes in variants(loop.frame, cut, piece):
            part = source and replace(source, rows=starts)
            self._multiply(inner, Expr(), BlockRange(starts, sizes), depth, fresh, part)
        loop.close()

    # What is read.

    def _copied(self, frame: Frame, group: Expr, rows: BlockRange, depth: BlockRange) -> _BlockSource:
        assert self.slab is not None
        reading = BlockReading(self.roles, rows.sizes, depth.sizes)
        slab = Slab(self.operand, reading.extents, self.kind, self.slab, self.roles.dilation)
        slab.fill(self.e, frame, reading.origin(group, rows.starts, depth.starts))
        self.e.with_leaf(slab.leaf, self.slab, frame)
        zeros = [Expr()] * len(rows.sizes)
        return _BlockSource(slab.leaf, self.slab, reading, [Expr()] * self.roles.input.rank, zeros, zeros)

    def _in_place(self, frame: Frame, group: Expr, rows: BlockRange, depth: BlockRange) -> _BlockSource:
        reading = BlockReading(self.roles, rows.sizes, depth.sizes)
        origin = reading.origin(group, rows.starts, depth.starts)
        zeros = [Expr()] * len(rows.sizes)
        return _BlockSource(self.operand, self.part.operands[0], reading, origin, zeros, zeros)

    # The product.

    def _multiply(
        self,
        frame: Frame,
        group: Expr,
        rows: BlockRange,
        depth: BlockRange,
        fresh: ir.Value,
        source: _BlockSource | None,
    ) -> None:
        """Patches of a block times its part of the kernel: overwrites the result if ``fresh``, else adds to it."""
        if source is None:
            read = self._in_place if self.slab is None else self._copied
            source = read(frame, group, rows, depth)
        patches = self._as_it_lies(source, rows, depth) or self._gathered(frame, source, rows, depth)
        filters, out = self._filters(group, depth), self._out(group, rows)
        sizes = (rows.area, self.roles.features, depth.area)
        if not out.across:
            patches, filters = filters.transpose(), patches.transpose()
            sizes = (self.roles.features, rows.area, depth.area)
        self._call(frame.builder, sizes, patches, filters, out, fresh)

    def _call(
        self, b: ir.IRBuilder, sizes: tuple[int, int, int], left: _Matrix, right: _Matrix, out: _Matrix, fresh: ir.Value
    ) -> None:
        m, n, k = sizes
        sides: list[ir.Value] = []
        for side, height, width in ((left, m, k), (right, k, n)):
            leading = max(side.stride, width if side.across else height)
            sides += [self._address(b, side), constant(I32, leading)]
        trans = [constant(I32, blas.NO_TRANS if side.across else blas.TRANS) for side in (left, right)]
        beta = b.select(fresh, scale(b, self.kind, 0.0), scale(b, self.kind, 1.0))
        target = [self._address(b, out), constant(I32, max(out.stride, n))]
        numbers = [constant(I32, x) for x in sizes]
        order = constant(I32, blas.ROW_MAJOR)
        function = blas.declare_gemm(b.module, self.kind.name)
        b.call(function, [order, *trans, *numbers, scale(b, self.kind, 1.0), *sides, beta, *target])

    def _address(self, b: ir.IRBuilder, matrix: _Matrix) -> ir.Value:
        offset = self.e.index(matrix.offset).value
        if self.kind.is_complex:
            offset = b.mul(offset, constant(I64, 2))
        return b.gep(matrix.pointer, [offset], source_etype=memory_type(self.kind))

    def _as_it_lies(self, source: _BlockSource, rows: BlockRange, depth: BlockRange) -> _Matrix | None:
        """The patches as a matrix in the memory that holds them."""
        down, across = self._strides(source, rows, depth)
        row, column = joint_stride(rows.sizes, down), joint_stride(depth.sizes, across)
        if row is None or column is None or min(row, column) < 0:
            return None
        zeros = [Expr()] * len(down)
        offset = linear(source.index(zeros, zeros), source.leaf.shape.dims)
        if column <= 1 and (rows.area == 1 or row >= depth.area) and (column == 1 or depth.area == 1):
            return _Matrix(source.pointer, offset, True, row)
        if row <= 1 and (depth.area == 1 or column >= rows.area) and (row == 1 or rows.area == 1):
            return _Matrix(source.pointer, offset, False, column)
        return None

    def _strides(self, source: _BlockSource, rows: BlockRange, depth: BlockRange) -> tuple[list[int], list[int]]:
        """Elements that a step of each row and each depth role moves in ``source``."""
        dims = source.leaf.shape.dims
        each = [math.prod(dims[d + 1 :]) for d in range(len(dims))]
        return [r.step * each[r.dim] for r in self.roles.rows], [r.step * each[r.dim] for r in self.roles.depth]

    def _gathered(self, frame: Frame, source: _BlockSource, rows: BlockRange, depth: BlockRange) -> _Matrix:
        """The patches copied, so that the longer runs of neighbours stay together."""
        down, across = self._strides(source, rows, depth)
        across_first = run_length(depth.sizes, across) >= run_length(rows.sizes, down)
        sizes = (*rows.sizes, *depth.sizes) if across_first else (*depth.sizes, *rows.sizes)
        count = len(rows.sizes)

        def element(e: Elements, index: Index, mask: Mask) -> object:
            first, second = index[:count], index[count:]
            where = source.index(first, second) if across_first else source.index(second, first)
            return convert_element(e, e.value(source.leaf, where, mask), source.leaf.shape.dtype, self.kind)

        emit_map(self.e, sizes, [MapOutput(self.patches, array_shape(self.kind, *sizes), element)], frame)
        return _Matrix(self.patches, Expr(), across_first, depth.area if across_first else rows.area)

    def _filters(self, group: Expr, depth: BlockRange) -> _Matrix:
        """The kernel's part for a block of depth, (depth, features)."""
        roles = self.roles
        features = roles.groups * roles.features
        offset = group * roles.features
        if self.plan.packed:
            stride = features
            for role, start in zip(reversed(roles.depth), reversed(depth.starts), strict=True):
                offset = offset + start * stride
                stride *= role.size
            return _Matrix(self.filters, offset, True, features)
        dims = roles.kernel.dims
        behind = math.prod(dims[roles.kernel_feature_dim + 1 :])
        offset = offset * behind
        for role, start in zip(roles.depth, depth.starts, strict=True):
            offset = offset + start * math.prod(dims[role.own + 1 :])
        return _Matrix(self.filters, offset, behind == 1, features if behind == 1 else behind)

    def _out(self, group: Expr, rows: BlockRange) -> _Matrix:
        """The result's part for a block of rows, (rows, features)."""
        roles = self.roles
        dims = roles.output.dims
        behind = math.prod(dims[roles.feature_dim + 1 :])
        if self.block is not None:
            return _Matrix(self.block, Expr(), behind == 1, roles.features if behind == 1 else rows.area)
        assert self.out is not None
        offset = group * roles.features * behind
        for role, start in zip(roles.rows, rows.starts, strict=True):
            offset = offset + start * math.prod(dims[role.own + 1 :])
        return _Matrix(self.out, offset, behind == 1, dims[roles.feature_dim] if behind == 1 else behind)

    def _convert(self, frame: Frame, group: Expr, rows: BlockRange) -> None:
        """A finished block to the result, in its type."""
        roles = self.roles
        assert self.block is not None
        last = math.prod(roles.output.dims[roles.feature_dim + 1 :]) == 1
        sizes = (*rows.sizes, roles.features) if last else (roles.features, *rows.sizes)
        leaf = parameter(array_shape(self.kind, *sizes))
        self.e.with_leaf(leaf, self.block, frame)

        def element(e: Elements, index: Index, mask: Mask) -> object:
            return convert_element(e, e.value(leaf, index, mask), self.kind, roles.output.dtype)

        def place(e: Elements, index: Index) -> Index:
            feature, *at = (index[-1], *index[:-1]) if last else index
            where = {r.own: r.at(x) for r, x in zip(roles.rows, shift(rows.starts, at), strict=True)}
            where[roles.feature_dim] = feature + group * roles.features
            return tuple(where[d] for d in range(roles.output.rank))

        emit_map(self.e, sizes, [MapOutput(self.part.results[0], roles.output, element, place)], frame)


@dataclass(frozen=True, slots=True)
class _Matrix:
    """Element (i, j) lies at ``offset + i * stride + j``, or at ``offset + i + j * stride`` when not ``across``."""

    pointer: ir.Value
    offset: Expr
    across: bool
    stride: int

    def transpose(self) -> _Matrix:
        """Rows and columns exchanged."""
        return replace(self, across=not self.across)
