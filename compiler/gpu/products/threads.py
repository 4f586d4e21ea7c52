"""Tiles multiplied by threads, one product at a time: every type, in its own precision.

A thread keeps the sums of a few rows and columns in registers. Both operands lie by depth, so that it reads runs of
them; its rows (and columns) are runs of 16 bytes that lie apart, as many as there are threads between them, so that
threads side by side read side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.arithmetic.registers import decode, memory_type, part_count, register_type
from shardc.compiler.elements.frames import Frame
from shardc.compiler.gpu.function import GpuEmitter
from shardc.compiler.gpu.products.loaders import StagedTile, stage_tile
from shardc.compiler.gpu.products.plan import ProductPlan
from shardc.compiler.gpu.products.problem import ProductProblem
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I8, I32, I64, constant, intrinsic, splat, with_lanes, zero

__all__ = ["ThreadProduct", "multiply_add"]

#: Bytes of a run.
_RUN = 16


class ThreadProduct:
    """The sums of a block's tile in the registers of its threads. ``thread`` is the thread's number, i64."""

    def __init__(self, e: GpuEmitter, plan: ProductPlan, problem: ProductProblem, thread: ir.Value) -> None:
        tile, kind = plan.tile, problem.kind
        self.e, self.kind, self.tile = e, kind, tile
        pad = _RUN * part_count(kind) // kind.nbytes
        self.left = stage_tile(kind, 0, False, tile.rows, tile.depth, pad)
        self.right = stage_tile(kind, self.left.nbytes * tile.stages, False, tile.columns, tile.depth, pad)
        self.shared_bytes = (self.left.nbytes + self.right.nbytes) * tile.stages
        across = tile.columns // tile.own_columns
        b = e.entry.builder
        row, column = b.udiv(thread, constant(I64, across)), b.urem(thread, constant(I64, across))
        self.rows = _ThreadRuns(b, self.left, tile.own_rows, row)
        self.columns = _ThreadRuns(b, self.right, tile.own_columns, column)
        self.bases = [e.code.shared(b, p.offset) for p in (self.left, self.right)]
        t = register_type(kind, self.columns.run)
        count = tile.own_rows * self.columns.count * part_count(kind)
        self.sums = [e.slot(t) for _ in range(count)]
        for slot in self.sums:
            b.store(zero(t), slot)

    def add(self, frame: Frame, stage: ir.Value) -> None:
        """Add the products of the tiles at ``stage``."""
        b, parts = frame.builder, part_count(self.kind)
        bases = [
            b.gep(base, [b.mul(stage, constant(I32, p.nbytes))], source_etype=I8)
            for base, p in zip(self.bases, (self.left, self.right), strict=True)
        ]
        t = register_type(self.kind, self.columns.run)
        flat = [b.load(slot, typ=t) for slot in self.sums]
        sums = [tuple(flat[n : n + parts]) for n in range(0, len(flat), parts)]
        for k in range(self.tile.depth):
            left = self.rows.read(b, bases[0], self.left, k)
            right = self.columns.read(b, bases[1], self.right, k)
            for row in range(self.tile.own_rows):
                run, lane = divmod(row, self.rows.run)
                x = tuple(_spread(b, part, lane, self.columns.run) for part in left[run])
                for n, y in enumerate(right):
                    at = row * self.columns.count + n
                    sums[at] = multiply_add(b, self.kind, x, y, sums[at])
        for slot, value in zip(self.sums, (v for s in sums for v in s), strict=True):
            b.store(value, slot)

    def store(self, frame: Frame, to: ir.Value, pitch: int) -> None:
        """Write the sums to shared memory, rows ``pitch`` elements apart."""
        b, parts = frame.builder, part_count(self.kind)
        t = register_type(self.kind, self.columns.run)
        for row in range(self.tile.own_rows):
            for n in range(self.columns.count):
                first = (row * self.columns.count + n) * parts
                values = tuple(b.load(self.sums[first + p], typ=t) for p in range(parts))
                at = b.add(b.mul(self.rows.at(b, row), constant(I64, pitch)), self.columns.at(b, n * self.columns.run))
                memory.store(b, values, to, at, self.kind, None)


class _ThreadRuns:
    """A thread's rows (or columns) of a tile: ``count`` runs of ``run``, of which it is the ``number``-th taker."""

    def __init__(self, b: ir.IRBuilder, place: StagedTile, own: int, number: ir.Value) -> None:
        self.run = min(own, max(1, _RUN // place.size))
        self.count = own // self.run
        self.spacing = place.free // self.count
        self.first = b.mul(number, constant(I64, self.run))

    def at(self, b: ir.IRBuilder, own: int) -> ir.Value:
        run, lane = divmod(own, self.run)
        return b.add(self.first, constant(I64, run * self.spacing + lane))

    def read(self, b: ir.IRBuilder, base: ir.Value, place: StagedTile, k: int) -> list[tuple[ir.Value, ...]]:
        """The elements at depth ``k``, by run and part."""
        found = []
        t = with_lanes(memory_type(place.dtype), self.run)
        for n in range(self.count):
            start = b.gep(base, [self.first], source_etype=memory_type(place.dtype))
            parts = []
            for part in range(part_count(place.dtype)):
                offset = part * place.plane + (k * place.pitch + n * self.spacing) * place.size
                pointer = b.gep(start, [constant(I32, offset)], source_etype=I8)
                value = b.load(pointer, typ=t, align=min(_RUN, self.run * place.size))
                parts.append(value if place.dtype.is_complex else decode(b, value, place.dtype))
            found.append(tuple(parts))
        return found


def _spread(b: ir.IRBuilder, x: ir.Value, lane: int, lanes: int) -> ir.Value:
    one = b.extract_element(x, constant(I32, lane)) if isinstance(x.type, ir.VectorType) else x
    return splat(b, one, lanes)


def multiply_add(
    b: ir.IRBuilder, kind: DType, x: Sequence[ir.Value], y: Sequence[ir.Value], total: Sequence[ir.Value]
) -> tuple[ir.Value, ...]:
    """``x * y + total`` in register form, unrounded in between for floats; ``or`` of ``and`` for pred."""
    if kind.is_complex:
        real = _fused(b, b.fneg(x[1]), y[1], _fused(b, x[0], y[0], total[0]))
        return real, _fused(b, x[1], y[0], _fused(b, x[0], y[1], total[1]))
    if kind.is_float:
        return (_fused(b, x[0], y[0], total[0]),)
    if kind.kind == "pred":
        return (b.or_(b.and_(x[0], y[0]), total[0]),)
    return (b.add(b.mul(x[0], y[0]), total[0]),)


def _fused(b: ir.IRBuilder, x: ir.Value, y: ir.Value, total: ir.Value) -> ir.Value:
    return intrinsic(b, "llvm.fmuladd", total.type, [x, y, total])
