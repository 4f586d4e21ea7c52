"""Depthwise convolutions: every channel with taps of its own, in vector lanes over channels.

Result (position, channel) is the sum over taps of ``input[position + tap, channel] * kernel[tap, channel]``; the
gradient of the kernel sums over positions instead, and is its taps. Either way the input slides: a block of it is
copied with its borders (channels last), the taps stay in registers. Blocks run in parallel; sums over positions are
taken per block, then per chunk of blocks, and those are added by a fixed tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.convolutions.blocks import add_by_tree, share, starts_of, variants
from shardc.compiler.cpu.convolutions.slab import Slab, clear, parameter
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.loops.mapping import emit_map
from shardc.compiler.cpu.loops.outputs import MapOutput
from shardc.compiler.cpu.parallel import PhaseKernel, chunks, phase
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.elements.affine import Expr, Mask
from shardc.compiler.elements.arithmetic.registers import memory_type
from shardc.compiler.elements.bits import scalar_op
from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.convolution_roles import Roles, cut
from shardc.compiler.elements.elements import Elements, Index
from shardc.compiler.elements.folds import convert_element
from shardc.compiler.elements.frames import ForLoop, Frame
from shardc.hlo.ir.types import DType, array_shape
from shardc.native.math.vector import I64, constant, intrinsic, with_lanes

__all__ = ["Channels", "channelwise", "emit_channels"]

#: Bytes of a block of the input that leave room in a core's cache.
_BLOCK = 1 << 17
#: Most taps, which are unrolled.
_TAPS = 64
#: Most sums that a gradient is cut into.
_SUMS = 32


class Channels:
    """A depthwise convolution: roles that slide over the input, and taps; channels are groups of one feature.

    ``gradient``: of the kernel, whose taps are the result.
    """

    def __init__(self, kernel: CpuKernel, roles: Roles, kind: DType, gradient: bool) -> None:
        self.kernel, self.roles, self.kind, self.gradient = kernel, roles, kind, gradient
        self.source, self.other = kernel.instruction.operands
        d = kernel.instruction.attrs["dim_labels"]
        self.channel_dim, image_dim = (d.lhs_batch, d.lhs_feature) if gradient else (d.lhs_feature, d.lhs_batch)
        sliding, taps = (roles.depth, roles.rows) if gradient else (roles.rows, roles.depth)
        self.images = next(r for r in sliding if r.dim == image_dim)
        #: Images first, then spatial dimensions, in the order of the operand or result that they count.
        self.sliding = (self.images, *(r for r in sliding if r is not self.images))
        self.single = next(r for r in taps if r.dim == self.channel_dim)
        by_dim = {r.dim: r for r in taps}
        self.taps = tuple(by_dim[r.dim] for r in self.sliding[1:])
        self.lanes = kernel.target.vector_bits // kind.bits
        self.wide = -(-roles.groups // self.lanes) * self.lanes
        self.t = memory_type(kind)
        self.vector = with_lanes(self.t, self.lanes)
        self.cut = cut(self.sliding, max(1, _BLOCK // (self.wide * kind.nbytes)))
        #: Dimensions of the input as blocks of it lie in memory.
        self.order = (image_dim, *(r.dim for r in self.sliding[1:]), self.channel_dim)

    @property
    def fits(self) -> bool:
        forwards = all(r.step > 0 for r in self.sliding) and not (self.gradient and self.roles.scattered)
        return forwards and self.roles.features == 1 and self.single.size == 1 and self.tap_count <= _TAPS

    @property
    def tap_count(self) -> int:
        return math.prod(r.size for r in self.taps)

    @property
    def work(self) -> int:
        """Multiplications."""
        return self.wide * self.tap_count * math.prod(r.size for r in self.sliding)

    def extents(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """What a block of such sizes reads, in `order`."""
        spatial = zip(self.sliding[1:], self.taps, sizes[1:], strict=True)
        each = [s.step * (n - 1) + abs(t.step) * (t.size - 1) + 1 for s, t, n in spatial]
        return (sizes[0], *each, self.wide)

    def copy_block(
        self, e: CpuEmitter, frame: Frame, place: ir.Value, starts: Sequence[Expr], sizes: Sequence[int]
    ) -> None:
        """A block of the input with its borders."""
        roles = self.roles
        origin = [Expr()] * roles.input.rank
        origin[self.images.dim] = starts[0]
        for slide, tap, start in zip(self.sliding[1:], self.taps, starts[1:], strict=True):
            origin[slide.dim] = start * slide.step + roles.base[slide.dim] + min(0, tap.step) * (tap.size - 1)
        extents = dict(zip(self.order, self.extents(sizes), strict=True))
        sizes = [extents[d] for d in range(roles.input.rank)]
        slab = Slab(self.source, sizes, self.kind, place, roles.dilation, self.order)
        slab.fill(e, frame, tuple(origin))

    def tap_offsets(self, sizes: Sequence[int]) -> list[int]:
        """Where each tap of the first position lies in a block."""
        extents = self.extents(sizes)
        out = []
        for steps in product(*(range(r.size) for r in self.taps)):
            offset = 0
            for r, k, n in zip(self.taps, steps, extents[1:-1], strict=True):
                at = abs(r.step) * (k if r.step > 0 else r.size - 1 - k)
                offset = offset * n + at
            out.append(offset * self.wide)
        return out

    def slide_steps(self, sizes: Sequence[int]) -> list[int]:
        """Elements of a block that a step of each sliding role moves."""
        extents = self.extents(sizes)
        steps = [1, *(r.step for r in self.sliding[1:])]
        return [s * math.prod(extents[d + 1 :]) for d, s in enumerate(steps)]


def channelwise(kernel: CpuKernel, roles: Roles, kind: DType) -> Channels | None:
    """The convolution by channels, where it is one: as many groups as channels and as features."""
    if kind.name not in ("f32", "f64") or roles.groups == 1:
        return None
    gradient = kernel.instruction.attrs.get("batch_group_count", 1) > 1
    if gradient and kernel.instruction.attrs.get("feature_group_count", 1) > 1:
        return None
    found = Channels(kernel, roles, kind, gradient)
    return found if found.fits else None


def emit_channels(kernel: CpuKernel, e: CpuEmitter, plan: Channels) -> None:
    """Phases: the kernel packed and the blocks; or the sums of blocks, and their sum."""
    count = chunks(flops=plan.work / 4, most=min(plan.cut.count, _SUMS if plan.gradient else plan.cut.count))
    if plan.gradient:
        place = allocate(e, count * plan.tap_count * plan.wide * plan.kind.nbytes)
        phase(kernel, e, count, partial(_sums, plan, count), [place])
        phase(kernel, e, 1, partial(_add, plan, count), [place])
    else:
        place = allocate(e, plan.tap_count * plan.wide * plan.kind.nbytes)
        phase(kernel, e, 1, partial(_pack, plan), [place])
        phase(kernel, e, count, partial(_blocks, plan, count), [place])
    release(e, [place])


def _pack(plan: Channels, part: PhaseKernel) -> None:
    """Taps as (taps..., channels)."""
    e = part.emitter()
    dims = (*(r.size for r in plan.taps), plan.roles.groups)
    if plan.wide != plan.roles.groups:
        clear(e.entry.builder, part.shared[0], plan.tap_count * plan.wide * plan.kind.nbytes)

    def element(e: Elements, index: Index, mask: Mask) -> object:
        at = {r.own: r.at(x) for r, x in zip(plan.taps, index, strict=False)}
        at |= {plan.single.own: Expr(), plan.roles.kernel_feature_dim: index[-1]}
        value = e.value(plan.other, tuple(at[d] for d in range(plan.other.shape.rank)), mask)
        return convert_element(e, value, plan.other.shape.dtype, plan.kind)

    shape = array_shape(plan.kind, *dims[:-1], plan.wide)
    emit_map(e, dims, [MapOutput(part.shared[0], shape, element)])
    e.finish()


def _blocks(plan: Channels, count: int, part: PhaseKernel) -> None:
    """Some of the blocks of positions."""
    e = part.emitter()
    direct = _in_order(plan, plan.roles.output.dtype, [r.own for r in plan.sliding], plan.roles.feature_dim)
    direct &= not plan.roles.scattered
    scratch = [allocate(e, math.prod(plan.extents(plan.cut.sizes())) * plan.kind.nbytes)]
    if not direct:
        scratch.append(allocate(e, math.prod(plan.cut.sizes()) * plan.wide * plan.kind.nbytes))
    chunk = ForLoop(e.entry, part.end, 1, part.begin)
    for frame, sizes, starts in _blocks_of(plan, e, chunk, count):
        plan.copy_block(e, frame, scratch[0], starts, sizes)
        if direct:
            whole = [r.size for r in plan.sliding]
            target = _element(plan, e, frame, part.results[0], starts, whole)
        else:
            whole, target = list(sizes), scratch[1]
        _positions(plan, frame.builder, sizes, (scratch[0], part.shared[0], target), whole)
        if not direct:
            _spread(plan, e, frame, part, scratch[1], starts, sizes)
    chunk.close()
    release(e, scratch)
    e.finish()


def _blocks_of(
    plan: Channels, e: CpuEmitter, chunk: ForLoop, count: int
) -> Iterator[tuple[Frame, Sequence[int], Sequence[Expr]]]:
    """A loop over the blocks of one of ``count`` chunks: code for each size of a block, and where the block starts."""
    b = chunk.frame.builder
    first, past = share(b, chunk.index, b.add(chunk.index, constant(I64, 1)), plan.cut.count, count)
    loop = ForLoop(chunk.frame, past, 1, first)
    starts, piece = starts_of(e, loop.frame, plan.cut, loop.index)
    for frame, sizes in variants(loop.frame, plan.cut, piece):
        yield frame, sizes, starts
    loop.close()


def _in_order(plan: Channels, dtype: DType, own: Sequence[int], feature: int) -> bool:
    """Whether an array is stored as (images, positions..., channels), in whole vectors of type ``plan.kind``."""
    return dtype is plan.kind and [*own, feature] == list(range(len(own) + 1)) and plan.wide == plan.roles.groups


def _element(
    plan: Channels, e: CpuEmitter, frame: Frame, base: ir.Value, starts: Sequence[Expr], sizes: Sequence[int]
) -> ir.Value:
    """The address of position ``starts`` in an array of (sizes, channels)."""
    offset = Expr()
    for start, n in zip(starts, sizes, strict=True):
        offset = offset * n + start
    return frame.builder.gep(base, [e.index(offset * plan.wide).value], source_etype=plan.t)


def _positions(
    plan: Channels, b: ir.IRBuilder, sizes: Sequence[int], places: tuple[ir.Value, ir.Value, ir.Value],
    whole: Sequence[int],
) -> None:  # fmt: skip
    """The sums over taps of a block's positions: of the block, with packed taps, to an array of ``whole`` sizes."""
    block, taps, target = places
    moves, offsets = plan.slide_steps(sizes), plan.tap_offsets(sizes)
    out = [math.prod(whole[d + 1 :]) * plan.wide for d in range(len(whole))]

    def line(outer: list[ir.Value]) -> None:
        with for_range(b, 0, plan.wide, plan.lanes) as c:
            factors = [_load(plan, b, taps, b.add(c, constant(I64, k * plan.wide))) for k in range(len(offsets))]
            with for_range(b, 0, sizes[-1]) as x:
                at = _offset(b, [*outer, x], moves, c)
                total = constant(plan.vector, 0.0)
                for factor, offset in zip(factors, offsets, strict=True):
                    value = _load(plan, b, block, b.add(at, constant(I64, offset)))
                    total = intrinsic(b, "llvm.fmuladd", plan.vector, [value, factor, total])
                place = b.gep(target, [_offset(b, [*outer, x], out, c)], source_etype=plan.t)
                b.store(total, place, align=plan.kind.nbytes)

    _nest(b, sizes[:-1], [], line)


def _nest(b: ir.IRBuilder, sizes: Sequence[int], at: list[ir.Value], body: Callable[[list[ir.Value]], None]) -> None:
    if not sizes:
        body(at)
        return
    with for_range(b, 0, sizes[0]) as x:
        _nest(b, sizes[1:], [*at, x], body)


def _offset(b: ir.IRBuilder, at: Sequence[ir.Value], moves: Sequence[int], first: ir.Value) -> ir.Value:
    for x, move in zip(at, moves, strict=True):
        first = b.add(first, b.mul(x, constant(I64, move)))
    return first


def _load(plan: Channels, b: ir.IRBuilder, base: ir.Value, offset: ir.Value) -> ir.Value:
    return b.load(b.gep(base, [offset], source_etype=plan.t), typ=plan.vector, align=plan.kind.nbytes)


def _spread(
    plan: Channels,
    e: CpuEmitter,
    frame: Frame,
    part: PhaseKernel,
    block: ir.Value,
    starts: Sequence[Expr],
    sizes: Sequence[int],
) -> None:
    """A block's results to where they belong, in the result's type."""
    roles = plan.roles
    leaf = parameter(array_shape(plan.kind, *sizes, plan.wide))
    e.with_leaf(leaf, block, frame)

    def element(e: Elements, index: Index, mask: Mask) -> object:
        return convert_element(e, e.value(leaf, index, mask), plan.kind, roles.output.dtype)

    def place(e: Elements, index: Index) -> Index:
        where = {roles.feature_dim: index[-1]}
        for r, start, x in zip(plan.sliding, starts, index, strict=False):
            where[r.own] = r.at(start + x)
        return tuple(where[d] for d in range(roles.output.rank))

    emit_map(e, (*sizes, roles.groups), [MapOutput(part.results[0], roles.output, element, place)], frame)


def _sums(plan: Channels, count: int, part: PhaseKernel) -> None:
    """For chunks of blocks, the sums over their positions: (taps, channels) each."""
    e = part.emitter()
    direct = _in_order(plan, plan.other.shape.dtype, [r.own for r in plan.sliding], plan.roles.kernel_feature_dim)
    scratch = [allocate(e, math.prod(plan.extents(plan.cut.sizes())) * plan.kind.nbytes)]
    if not direct:
        scratch.append(allocate(e, math.prod(plan.cut.sizes()) * plan.wide * plan.kind.nbytes))
    chunk = ForLoop(e.entry, part.end, 1, part.begin)
    b = chunk.frame.builder
    size = plan.tap_count * plan.wide
    sums = b.gep(part.shared[0], [b.mul(chunk.index, constant(I64, size))], source_etype=plan.t)
    clear(b, sums, size * plan.kind.nbytes)
    for frame, sizes, starts in _blocks_of(plan, e, chunk, count):
        plan.copy_block(e, frame, scratch[0], starts, sizes)
        if direct:
            whole = [r.size for r in plan.sliding]
            other = _element(plan, e, frame, part.operands[1], starts, whole)
        else:
            whole, other = list(sizes), scratch[1]
            _copied_other(plan, e, frame, other, starts, sizes)
        _block_sums(plan, e, frame.builder, sizes, (scratch[0], other, sums), whole)
    chunk.close()
    release(e, scratch)
    e.finish()


def _copied_other(
    plan: Channels, e: CpuEmitter, frame: Frame, place: ir.Value, starts: Sequence[Expr], sizes: Sequence[int]
) -> None:
    """A block of the kernel, (positions..., channels)."""
    order = (*(r.own for r in plan.sliding), plan.roles.kernel_feature_dim)
    extents = dict(zip(order, (*sizes, plan.wide), strict=True))
    origin = dict(zip(order, (*starts, Expr()), strict=True))
    dims = range(len(order))
    slab = Slab(plan.other, [extents[d] for d in dims], plan.kind, place, order=order)
    slab.fill(e, frame, tuple(origin[d] for d in dims))


def _block_sums(
    plan: Channels, e: CpuEmitter, b: ir.IRBuilder, sizes: Sequence[int], places: tuple[ir.Value, ir.Value, ir.Value],
    whole: Sequence[int],
) -> None:  # fmt: skip
    """Add a block's sums over positions to ``sums``; lines of positions first, so that errors stay small."""
    block, other, sums = places
    moves, offsets = plan.slide_steps(sizes), plan.tap_offsets(sizes)
    strides = [math.prod(whole[d + 1 :]) * plan.wide for d in range(len(whole))]
    slots = [e.slot(plan.vector) for _ in offsets]
    with for_range(b, 0, plan.wide, plan.lanes) as c:
        for slot in slots:
            b.store(constant(plan.vector, 0.0), slot)

        def position(at: list[ir.Value]) -> None:
            factor = _load(plan, b, other, _offset(b, at, strides, c))
            place = _offset(b, at, moves, c)
            for slot, offset in zip(slots, offsets, strict=True):
                value = _load(plan, b, block, b.add(place, constant(I64, offset)))
                total = b.load(slot, typ=plan.vector)
                b.store(intrinsic(b, "llvm.fmuladd", plan.vector, [value, factor, total]), slot)

        _nest(b, sizes, [], position)
        for k, slot in enumerate(slots):
            place = b.gep(sums, [b.add(c, constant(I64, k * plan.wide))], source_etype=plan.t)
            before = b.load(place, typ=plan.vector, align=plan.kind.nbytes)
            b.store(b.fadd(before, b.load(slot, typ=plan.vector)), place, align=plan.kind.nbytes)


def _add(plan: Channels, count: int, part: PhaseKernel) -> None:
    """The chunks' sums, by a fixed tree, to the result."""
    roles = plan.roles
    taps = tuple(r.size for r in plan.taps)
    leaf = parameter(array_shape(plan.kind, count, *taps, plan.wide))
    e = part.emitter({leaf: part.shared[0]})
    add = scalar_op("add", plan.kind, plan.kind, plan.kind)

    def element(e: Elements, index: Index, mask: Mask) -> object:
        values = [e.value(leaf, (Expr(n), *index), mask) for n in range(count)]
        return convert_element(
            e, add_by_tree(values, lambda x, y: e.elementwise(add, [x, y])), plan.kind, roles.output.dtype
        )

    def place(e: Elements, index: Index) -> Index:
        where = {r.own: r.at(x) for r, x in zip(plan.taps, index, strict=False)}
        where |= {plan.single.own: Expr(), roles.feature_dim: index[-1]}
        return tuple(where[d] for d in range(roles.output.rank))

    emit_map(e, (*taps, roles.groups), [MapOutput(part.results[0], roles.output, element, place)])
    e.finish()
