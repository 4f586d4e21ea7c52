"""Convolutions: products of patches and kernel through BLAS, block by block; `convolution_roles` says who is who.

A block of rows gathers its patches into a buffer that stays in a core's cache and multiplies them at once. Where rows
are many, chunks of rows run in parallel. Where depth is long and the result small (gradients of weights), chunks of
depth do, each into a sum of its own, and a fixed tree adds those up. Patches that lie in the input as a matrix are not
copied.
"""

from __future__ import annotations

from functools import partial

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.convolutions.blocks import (
    BlockRange,
    PatchBlocks,
    PatchPlan,
    add_by_tree,
    share,
    starts_of,
    variants,
)
from shardc.compiler.cpu.convolutions.channels import channelwise, emit_channels
from shardc.compiler.cpu.convolutions.slab import parameter
from shardc.compiler.cpu.convolutions.winograd import emit_square, square
from shardc.compiler.cpu.convolutions.winograd_weights import emit_square_weights
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.function import emit_elements
from shardc.compiler.cpu.loops.mapping import emit_map
from shardc.compiler.cpu.loops.outputs import MapOutput
from shardc.compiler.cpu.parallel import ChunkSpan, PhaseKernel, chunks, phase
from shardc.compiler.cpu.products.contraction import gemm_type
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.elements.affine import Expr, Mask
from shardc.compiler.elements.arithmetic.registers import memory_type, part_count
from shardc.compiler.elements.bits import scalar_op
from shardc.compiler.elements.convolution_roles import Roles, cut
from shardc.compiler.elements.elements import Elements, Index
from shardc.compiler.elements.folds import convert_element
from shardc.compiler.elements.frames import ForLoop, Val
from shardc.hlo.ir.types import DType, array_shape
from shardc.native.llvm.blas import UNPACKED
from shardc.native.math.vector import I64, constant

__all__ = ["emit_convolution"]

#: Fewer multiplications than this per product are direct loops.
_SMALL = 4096
#: Bytes that sums over parts of the depth may take together, and how many of them there are at most.
_SUMS, _MOST_SUMS = 1 << 21, 32


def emit_convolution(kernel: CpuKernel) -> None:
    """By channels, tiles or patches where the shapes allow, direct loops elsewhere; part by part of a dilated input."""
    i = kernel.instruction
    kind = gemm_type(i)
    roles = Roles(i)
    if kind is None or 0 in (roles.output.size, roles.input.size, roles.kernel.size):
        emit_elements(kernel)
        return
    if roles.work < _SMALL or (roles.work // roles.groups < _SMALL and channelwise(kernel, roles, kind) is None):
        emit_elements(kernel)
        return
    e = kernel.emitter()
    parts = roles.parts()
    if sum(p.row_count for p in parts) < roles.row_count:
        count = chunks(nbytes=roles.output.nbytes, most=roles.output.size)
        phase(kernel, e, count, partial(_zeros, count))
    for part in parts:
        _emit_part(kernel, e, part, kind)
    e.finish()


def _emit_part(kernel: CpuKernel, e: CpuEmitter, roles: Roles, kind: DType) -> None:
    channels = channelwise(kernel, roles, kind)
    tiles = square(kernel, roles, kind) if kernel.tuning.winograd else None
    if channels is not None:
        emit_channels(kernel, e, channels)
    elif tiles is None:
        _Patches(kernel, roles, kind).emit(e)
    elif tiles.gradient:
        emit_square_weights(kernel, e, tiles)
    else:
        emit_square(kernel, e, tiles)


def _zeros(count: int, part: PhaseKernel) -> None:
    """For rows that meet nothing."""
    e = part.emitter()
    shape = part.instruction.shape
    output = MapOutput(part.results[0], shape, lambda e, index, mask: e.constant(0, shape.dtype))
    emit_map(e, shape.dims, [output], span=ChunkSpan(count, part.begin, part.end))
    e.finish()


class _Patches:
    """The kernel of one convolution as products of patches."""

    def __init__(self, kernel: CpuKernel, roles: Roles, kind: DType) -> None:
        self.kernel, self.roles, self.kind = kernel, roles, kind
        self.instruction = kernel.instruction
        packed = self._packs()
        if packed:
            roles.depth = roles.depth_as_read
        self.plan = self._cut(packed)

    def emit(self, e: CpuEmitter) -> None:
        """Code at the end of ``e.entry``."""
        kernel = self.kernel
        scratch: list[ir.Value] = []
        filters = kernel.operands[1]
        if self.plan.packed:
            filters = allocate(e, self.roles.kernel.size * self.kind.nbytes)
            scratch.append(filters)
            self._pack(e, filters)
        if self.plan.sums:
            sums = allocate(e, self.plan.sums * self.roles.output.size * self.kind.nbytes)
            scratch.append(sums)
            phase(kernel, e, self.plan.sums, self._sum_part, [filters, sums])
            phase(kernel, e, 1, self._add_part, [filters, sums])
        else:
            blocks = self.roles.groups * self.plan.rows.count
            count = chunks(products=self.roles.work, most=blocks, tuning=kernel.tuning)
            phase(kernel, e, count, partial(self._rows_part, count), [filters])
        release(e, scratch)

    # How it is cut.

    def _packs(self) -> bool:
        """Whether the convolution's kernel is copied, with features last and in the product's type.

        It must be in another type; it is when that is cheap and spares slow products or element-wise gathering.
        """
        roles = self.roles
        if roles.kernel.dtype is not self.kind or roles.scattered:
            return True
        natural = roles.kernel_feature_dim == roles.kernel.rank - 1 and roles.depth_as_read == roles.depth
        small = roles.kernel.nbytes <= max(1 << 20, (roles.input.nbytes + roles.output.nbytes) // 4)
        return not natural and small and roles.row_count >= 32

    def _cut(self, packed: bool) -> PatchPlan:
        roles = self.roles
        work = self.kernel.tuning.patches // self.kind.nbytes
        if self.kernel.target.vector_bits >= 512 and roles.features <= 1024:
            work = min(work, max(64, UNPACKED // roles.features))
        rows, depth = roles.row_count, roles.depth_count
        first = 0 if packed else roles.first_depth()
        result = roles.output.size * self.kind.nbytes
        if depth >= 4 * rows and result * 8 <= _SUMS and roles.groups == 1 and not roles.scattered:
            width = rows if work // rows >= 16 else max(1, work // 32)
            by_depth = cut(roles.depth, max(1, work // width), first)
            sums = chunks(products=roles.work, most=min(_MOST_SUMS, _SUMS // result, by_depth.count))
            return PatchPlan(roles, self.kind, cut(roles.rows, width, roles.first_row()), by_depth, sums, packed)
        length = depth if work // depth >= 8 else max(1, work // 32)
        by_rows = cut(roles.rows, max(1, work // length), roles.first_row())
        return PatchPlan(roles, self.kind, by_rows, cut(roles.depth, length, first), 0, packed)

    # Phases.

    def _pack(self, e: CpuEmitter, place: ir.Value) -> None:
        """The kernel as (depth..., all features)."""
        roles = self.roles
        operand = self.instruction.operands[1]
        sizes = (*(r.size for r in roles.depth), roles.groups * roles.features)

        def element(e: Elements, index: Index, mask: Mask) -> object:
            at = {r.own: r.at(x) for r, x in zip(roles.depth, index, strict=False)}
            at[roles.kernel_feature_dim] = index[-1]
            value = e.value(operand, tuple(at[d] for d in range(roles.kernel.rank)), mask)
            return convert_element(e, value, operand.shape.dtype, self.kind)

        emit_map(e, sizes, [MapOutput(place, array_shape(self.kind, *sizes), element)])

    def _rows_part(self, count: int, part: PhaseKernel) -> None:
        """Chunks of the blocks of rows, each block over the whole depth."""
        plan, groups = self.plan, self.roles.groups
        direct = self.roles.output.dtype is self.kind and not self.roles.scattered
        blocks = PatchBlocks(plan, part, part.shared[0], part.results[0] if direct else None)
        e = blocks.e
        chunk = ForLoop(e.entry, part.end, 1, part.begin)
        first, past = _chunk(chunk, groups * plan.rows.count, count)
        loop = ForLoop(chunk.frame, past, 1, first)
        b = loop.frame.builder
        group = e.source.loop(groups)
        e.bind(group, Val((b.udiv(loop.index, constant(I64, plan.rows.count)),), loop.frame))
        starts, piece = starts_of(e, loop.frame, plan.rows, b.urem(loop.index, constant(I64, plan.rows.count)))
        for frame, sizes in variants(loop.frame, plan.rows, piece):
            blocks.whole_depth(frame, Expr.of(group), BlockRange(starts, sizes))
        loop.close()
        chunk.close()
        blocks.finish()

    def _sum_part(self, part: PhaseKernel) -> None:
        """For chunks of the depth, the sum over each."""
        filters, sums = part.shared
        plan = self.plan
        blocks = PatchBlocks(plan, part, filters, sums)
        e = blocks.e
        chunk = ForLoop(e.entry, part.end, 1, part.begin)
        b = chunk.frame.builder
        offset = b.mul(chunk.index, constant(I64, self.roles.output.size * part_count(self.kind)))
        blocks.out = b.gep(sums, [offset], source_etype=memory_type(self.kind))
        first, past = _chunk(chunk, plan.depth.count, plan.sums)
        loop = ForLoop(chunk.frame, past, 1, first)
        fresh = loop.frame.builder.icmp_unsigned("==", loop.index, first)
        starts, piece = starts_of(e, loop.frame, plan.depth, loop.index)
        for frame, sizes in variants(loop.frame, plan.depth, piece):
            blocks.all_rows(frame, BlockRange(starts, sizes), fresh)
        loop.close()
        chunk.close()
        blocks.finish()

    def _add_part(self, part: PhaseKernel) -> None:
        """The sums over parts of the depth, added up by a fixed tree."""
        roles = self.roles
        leaf = parameter(array_shape(self.kind, self.plan.sums, *roles.output.dims))
        e = part.emitter({leaf: part.shared[1]})
        total = scalar_op("add", self.kind, self.kind, self.kind)

        def element(e: Elements, index: Index, mask: Mask) -> object:
            values = [e.value(leaf, (Expr(n), *index), mask) for n in range(self.plan.sums)]
            return convert_element(
                e, add_by_tree(values, lambda x, y: e.elementwise(total, [x, y])), self.kind, roles.output.dtype
            )

        emit_map(e, roles.output.dims, [MapOutput(part.results[0], roles.output, element)])
        e.finish()


def _chunk(chunk: ForLoop, total: int, count: int) -> tuple[ir.Value, ir.Value]:
    """The part of ``total`` that one chunk of ``count`` takes; never empty: chunks are no more than parts."""
    b = chunk.frame.builder
    return share(b, chunk.index, b.add(chunk.index, constant(I64, 1)), total, count)
