"""Tiles multiplied by warps, with tensor cores: bf16 and f16, f32 rounded to tf32 where that is allowed, and f64.

Operands of two bytes lie in shared memory as they do in the arrays, by depth or not, and are read as fragments by
``ldmatrix``, transposed where need be; others are read element by element. Rows are padded by 16 bytes, so that the
eight rows of a small matrix lie in different banks.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from shardc.compiler.elements.arithmetic.registers import memory_type
from shardc.compiler.elements.frames import Frame
from shardc.compiler.gpu.function import GpuEmitter
from shardc.compiler.gpu.products.loaders import StagedTile, stage_tile
from shardc.compiler.gpu.products.plan import ProductPlan
from shardc.compiler.gpu.products.problem import ProductProblem
from shardc.native.gpu.grid import Mma
from shardc.native.math.vector import I8, I32, constant, undef, with_lanes, zero

__all__ = ["WarpProduct"]

#: Rounds an f32 to tf32, halves away from zero: half of what is cut off, and what stays.
_TF32_HALF, _TF32_KEPT = 0x1000, 0xFFFFE000


class WarpProduct:
    """The sums of a block's tile in the registers of its warps. ``thread`` is the thread's number, i64."""

    def __init__(self, e: GpuEmitter, plan: ProductPlan, problem: ProductProblem, thread: ir.Value) -> None:
        assert plan.mma is not None
        self.e, self.mma, self.tile, self.kind = e, plan.mma, plan.tile, problem.kind
        tile, storage = plan.tile, plan.storage
        by_depth = [problem.left.along_depth, problem.right.along_depth]
        pads = [_pad(storage.nbytes, deep) for deep in by_depth]
        self.left = stage_tile(storage, 0, by_depth[0], tile.rows, tile.depth, pads[0])
        after = self.left.nbytes * tile.stages
        self.right = stage_tile(storage, after, by_depth[1], tile.columns, tile.depth, pads[1])
        self.shared_bytes = after + self.right.nbytes * tile.stages
        b = e.entry.builder
        number = b.trunc(thread, I32)
        lane, warp = b.and_(number, constant(I32, 31)), b.lshr(number, constant(I32, 5))
        across = constant(I32, tile.columns // tile.own_columns)
        self.row = b.mul(b.udiv(warp, across), constant(I32, tile.own_rows))
        self.column = b.mul(b.urem(warp, across), constant(I32, tile.own_columns))
        #: What the lane has of a small result: row ``group``, columns ``2 * member`` and the next.
        self.group, self.member = b.lshr(lane, constant(I32, 2)), b.and_(lane, constant(I32, 3))
        fragments = _Matrices if storage.nbytes == 2 else _Singles
        self.rows = fragments(e, self.left, self.mma, lane, self.row, left=True)
        self.columns = fragments(e, self.right, self.mma, lane, self.column, left=False)
        self.t = memory_type(problem.kind)
        count = (tile.own_rows // self.mma.m) * (tile.own_columns // self.mma.n) * self.mma.c
        self.sums = [e.slot(self.t) for _ in range(count)]
        for slot in self.sums:
            b.store(zero(self.t), slot)

    def add(self, frame: Frame, stage: ir.Value) -> None:
        """Add the products of the tiles at ``stage``."""
        b, mma, code = frame.builder, self.mma, self.e.code
        down, across = self.tile.own_rows // mma.m, self.tile.own_columns // mma.n
        sums = [b.load(slot, typ=self.t) for slot in self.sums]
        for k in range(0, self.tile.depth, mma.k):
            left = self.rows.read(b, stage, k, down)
            right = self.columns.read(b, stage, k, across)
            for i, x in enumerate(left):
                for j, y in enumerate(right):
                    at = (i * across + j) * mma.c
                    sums[at : at + mma.c] = code.mma(b, mma, x, y, sums[at : at + mma.c])
        for slot, value in zip(self.sums, sums, strict=True):
            b.store(value, slot)

    def store(self, frame: Frame, to: ir.Value, pitch: int) -> None:
        """Write the sums to shared memory, rows ``pitch`` elements apart."""
        b, mma = frame.builder, self.mma
        down, across = self.tile.own_rows // mma.m, self.tile.own_columns // mma.n
        column = b.add(self.column, b.shl(self.member, constant(I32, 1)))
        start = b.add(b.mul(b.add(self.row, self.group), constant(I32, pitch)), column)
        pair = with_lanes(self.t, 2)
        for i in range(down):
            for j in range(across):
                for half in range(mma.c // 2):
                    first = (i * across + j) * mma.c + 2 * half
                    value: ir.Value = undef(pair)
                    for n in range(2):
                        value = b.insert_element(value, b.load(self.sums[first + n], typ=self.t), constant(I32, n))
                    offset = (i * mma.m + 8 * half) * pitch + j * mma.n
                    place = b.gep(to, [b.add(start, constant(I32, offset))], source_etype=self.t)
                    b.store(value, place, align=self.kind.nbytes * (1 if pitch % 2 else 2))


def _pad(nbytes: int, by_depth: bool) -> int:
    """Elements that rows in shared memory are longer than needed."""
    if nbytes == 4:
        return 4 if by_depth else 8
    return 16 // nbytes if nbytes == 2 else 4


class _Matrices:
    """Fragments of 16-bit elements, read as 8x8 matrices, four at a time: 16 rows (or columns) by 16 in depth."""

    def __init__(self, e: GpuEmitter, place: StagedTile, mma: Mma, lane: ir.Value, first: ir.Value, left: bool) -> None:
        self.e, self.place, self.left = e, place, left
        b = e.entry.builder
        # Matrix lane / 8: of the left side its lowest bit says which rows, the other which depth; of the right side
        # the other way round.
        within = b.and_(lane, constant(I32, 7))
        low = b.shl(b.and_(b.lshr(lane, constant(I32, 3)), constant(I32, 1)), constant(I32, 3))
        high = b.shl(b.lshr(lane, constant(I32, 4)), constant(I32, 3))
        free, depth = (low, high) if left else (high, low)
        if place.by_depth:
            free = b.add(free, within)
        else:
            depth = b.add(depth, within)
        free = b.add(free, first)
        pitch = constant(I32, place.pitch)
        at = b.add(b.mul(free, pitch), depth) if place.by_depth else b.add(b.mul(depth, pitch), free)
        self.start = b.gep(e.code.shared(b, place.offset), [at], source_etype=memory_type(place.dtype))

    def read(self, b: ir.IRBuilder, stage: ir.Value, k: int, count: int) -> list[list[ir.Value]]:
        """The fragments of ``count`` small matrices from depth ``k`` on."""
        place = self.place
        base = b.gep(self.start, [b.mul(stage, constant(I32, place.nbytes))], source_etype=I8)
        found: list[list[ir.Value]] = []
        for n in range(count if self.left else count // 2):
            free = 16 * n
            at = free * place.pitch + k if place.by_depth else k * place.pitch + free
            words = self.e.code.load_matrix(
                b, b.gep(base, [constant(I32, at * place.size)], source_etype=I8), 4, transposed=not place.by_depth
            )
            found += [words] if self.left else [words[:2], words[2:]]
        return found


class _Singles:
    """Fragments of wider elements: each lane reads its own."""

    def __init__(self, e: GpuEmitter, place: StagedTile, mma: Mma, lane: ir.Value, first: ir.Value, left: bool) -> None:
        self.e, self.place, self.mma = e, place, mma
        self.size = mma.m if left else mma.n
        b = e.entry.builder
        free = b.add(first, b.lshr(lane, constant(I32, 2)))
        depth = b.and_(lane, constant(I32, 3))
        pitch = constant(I32, place.pitch)
        at = b.add(b.mul(free, pitch), depth) if place.by_depth else b.add(b.mul(depth, pitch), free)
        self.start = b.gep(e.code.shared(b, place.offset), [at], source_etype=memory_type(place.dtype))

    def read(self, b: ir.IRBuilder, stage: ir.Value, k: int, count: int) -> list[list[ir.Value]]:
        """The fragments of ``count`` small matrices from depth ``k`` on."""
        base = b.gep(self.start, [b.mul(stage, constant(I32, self.place.nbytes))], source_etype=I8)
        return [[self._one(b, base, n * self.size, k, at) for at in self._held()] for n in range(count)]

    def _held(self) -> Sequence[tuple[int, int]]:
        """(free, depth) of a lane's elements from its first on: eight rows and four in depth are other lanes'."""
        return [(f, d) for d in range(0, self.mma.k, 4) for f in range(0, self.size, 8)]

    def _one(self, b: ir.IRBuilder, base: ir.Value, free: int, k: int, at: tuple[int, int]) -> ir.Value:
        place = self.place
        row, depth = free + at[0], k + at[1]
        offset = row * place.pitch + depth if place.by_depth else depth * place.pitch + row
        pointer = b.gep(base, [constant(I32, offset * place.size)], source_etype=I8)
        if place.size == 8:
            return b.load(pointer, typ=memory_type(place.dtype), align=8)
        bits = b.load(pointer, typ=I32, align=4)
        return b.and_(b.add(bits, constant(I32, _TF32_HALF)), constant(I32, _TF32_KEPT))
