"""Gradients of the weights of 3x3 convolutions by Winograd's tiles: sums over tiles; `winograd_tiles` has the formulas.

Chunks of blocks have sums of their own, which a fixed tree adds up. A chunk with a sum that is not finite is computed
again without tiles (`direct`).
"""

from __future__ import annotations

import math
from functools import partial

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.convolutions import direct as conv_direct
from shardc.compiler.cpu.convolutions.blocks import add_by_tree, share, starts_of
from shardc.compiler.cpu.convolutions.direct import Tiled
from shardc.compiler.cpu.convolutions.slab import Slab, parameter
from shardc.compiler.cpu.convolutions.winograd import POINTS_OF_TILE, Square, multiply, plane_at
from shardc.compiler.cpu.convolutions.winograd_tiles import POINTS, WinogradGrid, outputs, twice
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.finite import FiniteWatch
from shardc.compiler.cpu.loops.mapping import emit_map
from shardc.compiler.cpu.loops.outputs import MapOutput
from shardc.compiler.cpu.parallel import ChunkSpan, PhaseKernel, chunks, phase
from shardc.compiler.cpu.products.contraction import scale
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.elements.affine import Expr, Mask
from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.elements import Elements, Index
from shardc.compiler.elements.folds import convert_element
from shardc.compiler.elements.frames import ForLoop, Frame, IfBlock
from shardc.hlo.ir.types import array_shape
from shardc.native.math.vector import I1, I64, constant, with_lanes

__all__ = ["emit_square_weights"]


def emit_square_weights(kernel: CpuKernel, e: CpuEmitter, plan: Square) -> None:
    """The gradient of the weights: sums over tiles."""
    size = plan.wide * plan.features
    sums = allocate(e, plan.sums * POINTS_OF_TILE * size * plan.kind.nbytes)
    phase(kernel, e, plan.sums, partial(_sums, plan), [sums])
    result = allocate(e, 9 * size * plan.kind.nbytes)
    count = chunks(nbytes=plan.sums * 9 * size * plan.kind.nbytes, most=plan.channels.size)
    phase(kernel, e, count, partial(_add, plan, count), [sums, result])
    phase(kernel, e, count, partial(_spread, plan, count), [result])
    release(e, [sums, result])


def _sums(plan: Square, part: PhaseKernel) -> None:
    """For chunks of the blocks of tiles, the nine sums over each; first by tiles, and again directly if need be."""
    (sums,) = part.shared
    e = part.emitter()
    watch = FiniteWatch(e, with_lanes(plan.t, plan.lanes))
    nbytes, tiles, size = plan.kind.nbytes, math.prod(plan.tiles), plan.wide * plan.features
    scratch = [allocate(e, plan.copy_bytes)]
    scratch += [allocate(e, POINTS_OF_TILE * plan.grid(n).plane * nbytes) for n in (plan.wide, plan.features)]
    direct = _taken_directly(plan)
    if not direct:
        scratch.append(allocate(e, 4 * tiles * plan.features * nbytes))
    slab, inputs, filters, *block = scratch
    chunk = ForLoop(e.entry, part.end, 1, part.begin)
    cb = chunk.frame.builder
    results = plane_at(cb, plan, chunk.index, sums, POINTS_OF_TILE * size)
    first, past = share(cb, chunk.index, cb.add(chunk.index, constant(I64, 1)), plan.cut.count, plan.sums)
    needed = e.slot(I1)
    cb.store(constant(I1, 1), needed)
    attempt = ForLoop(chunk.frame, 2)
    again = attempt.frame.builder.icmp_unsigned("!=", attempt.index, constant(I64, 0))
    branch = IfBlock(attempt.frame, attempt.frame.builder.load(needed))
    loop = ForLoop(branch.frame, past, 1, first)
    frame = loop.frame
    starts, piece = starts_of(e, frame, plan.cut, loop.index)
    border = Tiled(slab, plan.copy_block(e, frame, slab, starts))
    if direct:
        high, wide = (r.size for r in plan.sliding)
        offset = (starts[0] * high + starts[1]) * (wide * plan.features)
        source = frame.builder.gep(part.operands[1], [e.index(offset).value], source_etype=plan.t)
        given = Tiled(source, WinogradGrid(plan.tiles, high, wide, plan.features, plan.lanes))
    else:
        _copied_taps(plan, e, frame, block[0], starts)
        given = Tiled(block[0], plan.grid(plan.features))
    b = frame.builder
    fresh = b.icmp_unsigned("==", loop.index, first)
    with b.if_else(again, likely=False) as (then, otherwise):
        with then:
            conv_direct.weights(b, plan.kind, border, given, _extents(b, plan, piece), results, fresh)
        with otherwise:
            border.grid.forward(b, plan.t, slab, inputs, POINTS)
            given.grid.forward(b, plan.t, given.place, filters, 2)
            beta = b.select(fresh, scale(b, plan.kind, 0.0), scale(b, plan.kind, 1.0))
            with for_range(b, 0, POINTS_OF_TILE) as k:
                step = partial(plane_at, b, plan, k)
                sides = step(inputs, plan.grid(plan.wide).plane), step(filters, plan.grid(plan.features).plane)
                multiply(b, plan, (plan.wide, plan.features, tiles), *sides, step(results, size), beta)
    loop.close()
    with branch.frame.builder.if_then(branch.frame.builder.not_(again)):
        _back(branch.frame.builder, plan, results, watch)
        branch.frame.builder.store(watch.alarm(branch.frame.builder), needed)
    branch.close()
    attempt.close()
    chunk.close()
    release(e, scratch)
    e.finish()


def _extents(b: ir.IRBuilder, plan: Square, piece: ir.Value) -> tuple[ir.Value, ir.Value, int]:
    """Images, rows and columns of a block, of which the last piece may have fewer."""
    cut = plan.cut
    last = b.icmp_unsigned("==", piece, constant(I64, cut.pieces - 1))
    of = [constant(I64, n) for n in cut.sizes()]
    of[cut.at] = b.select(last, constant(I64, cut.rest or cut.chunk), of[cut.at])
    return of[0], of[1], cut.sizes()[2]


def _back(b: ir.IRBuilder, plan: Square, sums: ir.Value, watch: FiniteWatch) -> None:
    """Sixteen sums to nine, in place."""
    size = plan.wide * plan.features
    vector = with_lanes(plan.t, plan.lanes)
    watch.start(b)
    with for_range(b, 0, size, plan.lanes) as at:
        places = [b.gep(sums, [b.add(at, constant(I64, k * size))], source_etype=plan.t) for k in range(POINTS_OF_TILE)]
        found = [b.load(p, typ=vector, align=4) for p in places]
        square = [found[POINTS * i : POINTS * (i + 1)] for i in range(POINTS)]
        nine = [v for line in twice(b, square, lambda b, m: outputs(b, m, 3)) for v in line]
        watch.see(b, nine)
        for value, place in zip(nine, places, strict=False):
            b.store(value, place, align=4)


def _taken_directly(plan: Square) -> bool:
    """Whether whole tiles of taps are read in place, without a copy."""
    order = tuple(r.own for r in (plan.images, *plan.sliding))
    even = all(r.size % 2 == 0 for r in plan.sliding) and not plan.cut.rest
    whole = plan.roles.kernel.dtype is plan.kind and plan.features == plan.roles.features
    return even and whole and order == (0, 1, 2) and plan.roles.kernel_feature_dim == 3


def _copied_taps(plan: Square, e: CpuEmitter, frame: Frame, place: ir.Value, starts: list[Expr]) -> None:
    """A block of the kernel, (images, rows, columns, features), zeros where there is none."""
    order = (*(r.own for r in (plan.images, *plan.sliding)), plan.roles.kernel_feature_dim)
    images, rows, columns = plan.tiles
    sizes = dict(zip(order, (images, 2 * rows, 2 * columns, plan.features), strict=True))
    origin = dict(zip(order, (*starts, Expr()), strict=True))
    dims = range(len(order))
    slab = Slab(plan.instruction.operands[1], [sizes[d] for d in dims], plan.kind, place, order=order)
    slab.fill(e, frame, tuple(origin[d] for d in dims))


def _add(plan: Square, count: int, part: PhaseKernel) -> None:
    """The sums added up by a fixed tree: (3, 3, channels, features)."""
    sums, result = part.shared
    e = part.emitter()
    b = e.entry.builder
    size = plan.wide * plan.features
    vector = with_lanes(plan.t, plan.lanes)
    first, past = share(b, part.begin, part.end, 9 * size // plan.lanes, count)
    with for_range(b, first, past) as n:
        at = b.mul(n, constant(I64, plan.lanes))
        offsets = [b.add(at, constant(I64, chunk * POINTS_OF_TILE * size)) for chunk in range(plan.sums)]
        places = [b.gep(sums, [offset], source_etype=plan.t) for offset in offsets]
        total = add_by_tree([b.load(p, typ=vector, align=4) for p in places], b.fadd)
        b.store(total, b.gep(result, [at], source_etype=plan.t), align=4)
    e.finish()


def _spread(plan: Square, count: int, part: PhaseKernel) -> None:
    """(3, 3, channels, features) to the result, in its order and type."""
    roles = plan.roles
    leaf = parameter(array_shape(plan.kind, 3, 3, plan.wide, plan.features))
    e = part.emitter({leaf: part.shared[0]})

    def element(e: Elements, index: Index, mask: Mask) -> object:
        where = (*index[1:3], index[0], index[3])
        return convert_element(e, e.value(leaf, where, mask), plan.kind, roles.output.dtype)

    def place(e: Elements, index: Index) -> Index:
        own = (plan.channels.own, *(r.own for r in plan.fixed), roles.feature_dim)
        at = dict(zip(own, index, strict=True))
        return tuple(at[d] for d in range(4))

    dims = (plan.channels.size, 3, 3, roles.features)
    outputs = [MapOutput(part.results[0], roles.output, element, place)]
    emit_map(e, dims, outputs, span=ChunkSpan(count, part.begin, part.end))
    e.finish()
