"""Kernels for 3x3 convolutions by Winograd's tiles, forward and with the kernel turned round; `winograd_tiles` has the
formulas.

A block of tiles is copied with its borders, transformed, multiplied sixteen times, and transformed back, all in a
core's cache. Blocks run in parallel. A block with a result that is not finite is computed again without tiles
(`direct`). Gradients of weights are in `winograd_weights`.
"""

from __future__ import annotations

import math
from functools import partial

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.convolutions import direct as conv_direct
from shardc.compiler.cpu.convolutions.blocks import share, starts_of, variants
from shardc.compiler.cpu.convolutions.direct import Taps, Tiled
from shardc.compiler.cpu.convolutions.slab import Slab, clear, parameter
from shardc.compiler.cpu.convolutions.winograd_tiles import POINTS, WinogradGrid, taps, twice
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.finite import FiniteWatch
from shardc.compiler.cpu.loops.mapping import emit_map
from shardc.compiler.cpu.loops.outputs import MapOutput
from shardc.compiler.cpu.parallel import ChunkSpan, PhaseKernel, chunks, phase
from shardc.compiler.cpu.products.contraction import scale
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.elements.affine import Expr, Mask
from shardc.compiler.elements.arithmetic.registers import memory_type
from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.convolution_roles import RoleCut, Roles
from shardc.compiler.elements.elements import Elements, Index
from shardc.compiler.elements.folds import convert_element
from shardc.compiler.elements.frames import ForLoop, Frame
from shardc.hlo.ir.types import DType, array_shape
from shardc.native.llvm import blas
from shardc.native.llvm.blas import UNPACKED
from shardc.native.math.vector import I32, I64, constant, with_lanes

__all__ = ["POINTS_OF_TILE", "Square", "emit_square", "multiply", "plane_at", "square"]

#: Bytes of a block's transformed inputs and products, which a core's cache shall hold.
_BLOCK = 400_000
#: Bytes of all the sums of a gradient of weights.
_SUMS = 1 << 22
#: Bytes of transformed taps, and tiles of a row, beyond which memory would be too much.
_FILTERS, _ROW = 1 << 25, 1 << 10
#: Fewest channels and features for which sixteen thin products beat one thick one.
_CHANNELS = 16
#: Products per tile.
POINTS_OF_TILE = POINTS * POINTS


class Square:
    """A convolution seen as tiles: images x (two dimensions) x channels, and features.

    ``gradient``: of the weights, where the result has the 3x3 positions and the kernel is as large as the images.
    """

    def __init__(self, kernel: CpuKernel, roles: Roles, kind: DType, gradient: bool) -> None:
        self.kernel, self.roles, self.kind, self.gradient = kernel, roles, kind, gradient
        self.instruction = kernel.instruction
        d = self.instruction.attrs["dim_labels"]
        sliding, fixed = (roles.depth, roles.rows) if gradient else (roles.rows, roles.depth)
        self.image_dim, self.channel_dim = (d.lhs_feature, d.lhs_batch) if gradient else (d.lhs_batch, d.lhs_feature)
        by_dim = {r.dim: r for r in sliding}
        self.images = by_dim[self.image_dim]
        self.sliding = tuple(r for r in sliding if r.dim != self.image_dim)
        held = {r.dim: r for r in fixed}
        self.channels = held[self.channel_dim]
        self.fixed = tuple(held[r.dim] for r in self.sliding)
        self.lanes = kernel.target.vector_bits // kind.bits
        self.wide = -(-self.channels.size // self.lanes) * self.lanes
        self.features = -(-roles.features // self.lanes) * self.lanes
        self.t = memory_type(kind)
        self.cut = self._cut()
        images = self.cut.chunk if self.cut.at == 0 else 1
        rows = self.sliding[0].size if self.cut.at == 0 else self.cut.chunk
        self.tiles = (images, -(-rows // 2), -(-self.sliding[1].size // 2))

    def _cut(self) -> RoleCut:
        high, wide = (-(-r.size // 2) for r in self.sliding)
        count = _BLOCK // (POINTS_OF_TILE * (self.wide + self.features) * self.kind.nbytes)
        count = max(64, min(count, 512))
        all_roles = (self.images, *self.sliding)
        if high * wide > count:
            pieces = -(-high // max(1, count // wide))
            return RoleCut(all_roles, 1, 2 * -(-high // pieces))
        most = max(1, min(self.images.size, count // (high * wide)))
        pieces = -(-self.images.size // most)
        return RoleCut(all_roles, 0, -(-self.images.size // pieces))

    @property
    def work(self) -> int:
        """Multiplications."""
        tiles = self.images.size * math.prod(-(-r.size // 2) for r in self.sliding)
        return POINTS_OF_TILE * tiles * self.wide * self.features

    @property
    def sums(self) -> int:
        """Into how many sums a gradient of weights is cut; 0 when they take too much memory."""
        most = _SUMS // (POINTS_OF_TILE * self.wide * self.features * self.kind.nbytes)
        return min(most, chunks(products=self.work, most=self.cut.count)) if most else 0

    def origin(self, starts: list[Expr]) -> Index:
        """The first input position of a block's borders."""
        out = [Expr()] * self.roles.input.rank
        out[self.image_dim] = starts[0]
        for role, taps_role, start in zip(self.sliding, self.fixed, starts[1:], strict=True):
            back = min(0, taps_role.step) * (taps_role.size - 1)
            out[role.dim] = start + self.roles.base[role.dim] + back
        return tuple(out)

    def grid(self, channels: int) -> WinogradGrid:
        """Tiles in memory of their own."""
        return WinogradGrid(self.tiles, 2 * self.tiles[1], 2 * self.tiles[2], channels, self.lanes)

    def copy_block(self, e: CpuEmitter, frame: Frame, place: ir.Value, starts: list[Expr]) -> WinogradGrid:
        """A block of the input with its borders, (images, rows, columns, channels)."""
        images, rows, columns = self.tiles
        order = (self.image_dim, *(r.dim for r in self.sliding), self.channel_dim)
        sizes = dict(zip(order, (images, 2 * rows + 2, 2 * columns + 2, self.wide), strict=True))
        extents = [sizes[d] for d in range(len(order))]
        slab = Slab(self.instruction.operands[0], extents, self.kind, place, order=order)
        slab.fill(e, frame, self.origin(starts))
        return WinogradGrid(self.tiles, 2 * rows + 2, 2 * columns + 2, self.wide, self.lanes)

    @property
    def copy_bytes(self) -> int:
        images, rows, columns = self.tiles
        return images * (2 * rows + 2) * (2 * columns + 2) * self.wide * self.kind.nbytes


def square(kernel: CpuKernel, roles: Roles, kind: DType) -> Square | None:
    """The convolution by tiles, where it can be and pays: 3x3, one step at a time, enough channels."""
    attrs = kernel.instruction.attrs
    exact = any(p in ("high", "highest") for p in attrs.get("operand_precision", ()))
    if exact or kind.name not in ("f32", "f64") or roles.groups != 1 or roles.scattered or len(roles.rows) != 3:
        return None
    if any(n != 1 for n in roles.dilation) or any(abs(r.step) != 1 for r in (*roles.rows, *roles.depth)):
        return None
    for gradient in (False, True):
        found = Square(kernel, roles, kind, gradient)
        few = min(found.channels.size, roles.features) < _CHANNELS or found.cut.count * math.prod(found.tiles) < 64
        if any(r.size != 3 for r in found.fixed) or min(r.size for r in found.sliding) < 4 or few:
            continue
        if not gradient and POINTS_OF_TILE * found.wide * found.features * kind.nbytes > _FILTERS:
            continue
        if found.tiles[2] > _ROW:
            continue
        if gradient and (found.sums == 0 or any(r.step != 1 for r in found.sliding)):
            continue
        return found
    return None


def emit_square(kernel: CpuKernel, e: CpuEmitter, plan: Square) -> None:
    """Forward, and the gradient of the input, which is the same with the kernel turned round."""
    size = plan.wide * plan.features
    shared = [allocate(e, POINTS_OF_TILE * size * plan.kind.nbytes)]
    count = chunks(nbytes=25 * size * plan.kind.nbytes, most=plan.channels.size)
    if not _taken_as_lies(plan):
        shared.append(allocate(e, 9 * size * plan.kind.nbytes))
        if (plan.wide, plan.features) != (plan.channels.size, plan.roles.features):
            clear(e.entry.builder, shared[1], 9 * size * plan.kind.nbytes)
        phase(kernel, e, count, partial(_pack, plan, count), shared)
    phase(kernel, e, count, partial(_points, plan, count), shared)
    count = chunks(products=plan.work, most=plan.cut.count)
    phase(kernel, e, count, partial(_forward, plan, count), shared)
    release(e, shared)


def _taken_as_lies(plan: Square) -> bool:
    """Whether the kernel is stored as (3, 3, channels, features), in whole vectors of the product's type."""
    own = (*(r.own for r in plan.fixed), plan.channels.own, plan.roles.kernel_feature_dim)
    padded = (plan.wide, plan.features) != (plan.channels.size, plan.roles.features)
    return own == (0, 1, 2, 3) and plan.roles.kernel.dtype is plan.kind and not padded


def _taps(plan: Square, part: PhaseKernel) -> Taps:
    """The kernel as it lies, or the copy in that order."""
    if _taken_as_lies(plan):
        return Taps(part.operands[1], tuple(r.step < 0 for r in plan.fixed))
    return Taps(part.shared[1])


def _pack(plan: Square, count: int, part: PhaseKernel) -> None:
    """The kernel as (3, 3, channels, features), turned back, zeros for channels and features that do not exist."""
    operand = plan.instruction.operands[1]
    e = part.emitter()

    def element(e: Elements, index: Index, mask: Mask) -> object:
        at = {plan.channels.own: index[0], plan.roles.kernel_feature_dim: index[3]}
        for role, x in zip(plan.fixed, index[1:3], strict=True):
            at[role.own] = Expr(2) - x if role.step < 0 else x
        value = e.value(operand, tuple(at[d] for d in range(4)), mask)
        return convert_element(e, value, operand.shape.dtype, plan.kind)

    def place(e: Elements, index: Index) -> Index:
        return (*index[1:3], index[0], index[3])

    dims = (plan.channels.size, 3, 3, plan.roles.features)
    shape = array_shape(plan.kind, 3, 3, plan.wide, plan.features)
    emit_map(e, dims, [MapOutput(part.shared[1], shape, element, place)], span=ChunkSpan(count, part.begin, part.end))
    e.finish()


def _points(plan: Square, count: int, part: PhaseKernel) -> None:
    """U of some of the taps, (16, channels, features)."""
    source, back = _taps(plan, part)
    e = part.emitter()
    b = e.entry.builder
    target = part.shared[0]
    size = plan.wide * plan.features
    vector = with_lanes(plan.t, plan.lanes)
    first, past = share(b, part.begin, part.end, size // plan.lanes, count)
    with for_range(b, first, past) as n:
        at = b.mul(n, constant(I64, plan.lanes))

        def place(base: ir.Value, number: int) -> ir.Value:
            return b.gep(base, [b.add(at, constant(I64, number * size))], source_etype=plan.t)

        lines, columns = (range(2, -1, -1) if turned else range(3) for turned in back)
        square = [[b.load(place(source, 3 * i + j), typ=vector, align=4) for j in columns] for i in lines]
        for k, value in enumerate(v for line in twice(b, square, taps) for v in line):
            b.store(value, place(target, k), align=4)
    e.finish()


def _forward(plan: Square, count: int, part: PhaseKernel) -> None:
    """Some of the blocks of tiles."""
    filters = part.shared[0]
    e = part.emitter()
    watch = FiniteWatch(e, with_lanes(plan.t, plan.lanes))
    roles, nbytes = plan.roles, plan.kind.nbytes
    tiles = math.prod(plan.tiles)
    sizes = [plan.copy_bytes, *(POINTS_OF_TILE * plan.grid(n).plane * nbytes for n in (plan.wide, plan.features))]
    direct = _direct(plan)
    if not direct:
        sizes.append(4 * tiles * plan.features * nbytes)
    slab, inputs, results, *block = scratch = [allocate(e, n) for n in sizes]
    chunk = ForLoop(e.entry, part.end, 1, part.begin)
    cb = chunk.frame.builder
    first, past = share(cb, chunk.index, cb.add(chunk.index, constant(I64, 1)), plan.cut.count, count)
    loop = ForLoop(chunk.frame, past, 1, first)
    frame = loop.frame
    starts, piece = starts_of(e, frame, plan.cut, loop.index)
    copied = plan.copy_block(e, frame, slab, starts)
    copied.forward(frame.builder, plan.t, slab, inputs, POINTS)
    with for_range(frame.builder, 0, POINTS_OF_TILE) as k:
        step = partial(plane_at, frame.builder, plan, k)
        sides = step(inputs, plan.grid(plan.wide).plane), step(filters, plan.wide * plan.features)
        multiply(
            frame.builder,
            plan,
            (tiles, plan.features, plan.wide),
            *sides,
            step(results, plan.grid(plan.features).plane),
        )
    if direct:
        offset = starts[0] * plan.sliding[0].size + starts[1]
        offset = offset * (plan.sliding[1].size * plan.features)
        target = frame.builder.gep(part.results[0], [e.index(offset).value], source_etype=plan.t)
        grid = WinogradGrid(plan.tiles, plan.sliding[0].size, plan.sliding[1].size, plan.features, plan.lanes)
        out = Tiled(target, grid)
    else:
        out = Tiled(block[0], plan.grid(plan.features))
    watch.start(frame.builder)
    out.grid.backward(frame.builder, plan.t, results, out.place, watch)
    with frame.builder.if_then(watch.alarm(frame.builder), likely=False):
        conv_direct.results(frame.builder, plan.kind, Tiled(slab, copied), _taps(plan, part), out)
    if not direct:
        leaf = parameter(array_shape(plan.kind, plan.tiles[0], *(2 * n for n in plan.tiles[1:]), plan.features))
        e.with_leaf(leaf, block[0], frame)
        for inner, extents in variants(frame, plan.cut, piece):
            dims = (*extents, roles.features)
            element = lambda e, x, mask: convert_element(e, e.value(leaf, x, mask), plan.kind, roles.output.dtype)  # noqa: E731
            emit_map(e, dims, [MapOutput(part.results[0], roles.output, element, partial(_place, plan, starts))], inner)
    loop.close()
    chunk.close()
    release(e, scratch)
    e.finish()


def _place(plan: Square, starts: list[Expr], e: Elements, index: Index) -> Index:
    """Where an element (image, row, column, feature) of a block lies in the result."""
    where = {plan.roles.feature_dim: index[3]}
    for role, start, x in zip((plan.images, *plan.sliding), starts, index[:3], strict=True):
        where[role.own] = start + x
    return tuple(where[d] for d in range(4))


def _direct(plan: Square) -> bool:
    """Whether blocks write straight into the result: in whole tiles and vectors, in the result's order."""
    roles = plan.roles
    order = tuple(r.own for r in (plan.images, *plan.sliding))
    even = all(r.size % 2 == 0 for r in plan.sliding) and not plan.cut.rest
    whole = roles.output.dtype is plan.kind and plan.features == roles.features
    return even and whole and order == (0, 1, 2) and roles.feature_dim == 3


def plane_at(b: ir.IRBuilder, plan: Square, k: ir.Value, base: ir.Value, size: int) -> ir.Value:
    """The address of plane ``k`` of ``size`` elements."""
    return b.gep(base, [b.mul(k, constant(I64, size))], source_etype=plan.t)


def multiply(
    b: ir.IRBuilder, plan: Square, sizes: tuple[int, int, int], left: ir.Value, right: ir.Value, out: ir.Value,
    beta: ir.Value | None = None,
) -> None:  # fmt: skip
    """(m, n) = (m, k) x (k, n), in pieces of so few multiplications that BLAS need not pack them.

    With ``beta`` the left side lies as (k, m), and the product adds to beta times the result.
    """
    m, n, k = sizes
    function = blas.declare_gemm(b.module, plan.kind.name)
    one, nothing = scale(b, plan.kind, 1.0), scale(b, plan.kind, 0.0)
    trans = constant(I32, blas.NO_TRANS if beta is None else blas.TRANS)
    for i, rows in _pieces(m, max(plan.lanes, UNPACKED // (min(n, 128) * min(k, 128)))):
        for j, columns in _pieces(n, max(plan.lanes, UNPACKED // (rows * min(k, 128)))):
            for start, depth in _pieces(k, max(plan.lanes, UNPACKED // (rows * columns))):
                offsets = (i * k + start if beta is None else start * m + i, start * n + j, i * n + j)
                x, y, z = (
                    b.gep(p, [constant(I64, o)], source_etype=plan.t)
                    for p, o in zip((left, right, out), offsets, strict=True)
                )
                before = one if start else (nothing if beta is None else beta)
                numbers = [constant(I32, s) for s in (rows, columns, depth)]
                sides = [x, constant(I32, k if beta is None else m), y, constant(I32, n)]
                order, plain = constant(I32, blas.ROW_MAJOR), constant(I32, blas.NO_TRANS)
                b.call(function, [order, trans, plain, *numbers, one, *sides, before, z, constant(I32, n)])


def _pieces(size: int, most: int) -> list[tuple[int, int]]:
    """(start, length) of equal pieces, multiples of 16 but for the last."""
    if size <= most:
        return [(0, size)]
    count = -(-size // most)
    length = -(-size // (16 * count)) * 16
    length = max(16, length if length <= most else length - 16)
    return [(start, min(length, size - start)) for start in range(0, size, length)]
