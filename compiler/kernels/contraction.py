"""Matrix products through BLAS: which strides it can take as they are, and packing for those it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from llvmlite import ir

from shardc.compiler.kernels.affine import Mask
from shardc.compiler.kernels.elements import Elements, Index
from shardc.compiler.kernels.emitter import Emitter
from shardc.compiler.kernels.folds import converted
from shardc.compiler.kernels.frames import Frame, Loop
from shardc.compiler.kernels.function import Kernel, loop_kernel
from shardc.compiler.kernels.mapping import Output, emit_map
from shardc.compiler.kernels.registers import memory_type
from shardc.compiler.kernels.scratch import allocate, release
from shardc.hlo.ir import Instruction
from shardc.hlo.types import DTYPES, DType, Shape, array_shape
from shardc.native import blas
from shardc.native.vector import I32, I64, constant

__all__ = ["Matrix", "convert_all", "emit_dot", "gemm", "gemm_type", "scale"]

#: Products with fewer multiplications than this are loops: a BLAS call costs about a microsecond.
_SMALL = 512


@dataclass(frozen=True, slots=True)
class Matrix:
    """One side of a product as BLAS sees it: where, leading dimension, transposed or not, offsets per batch index."""

    pointer: ir.Value
    leading: int
    transposed: bool
    batch_strides: tuple[int, ...]


def emit_dot(kernel: Kernel) -> None:
    """A loop over batch positions with one matrix product each; loops of our own for integers and tiny products."""
    i = kernel.instruction
    kind = gemm_type(i)
    plan = _Sides(i)
    if kind is None or plan.work < _SMALL or 0 in i.shape.dims:
        loop_kernel(kernel)
        return
    e = kernel.emitter()
    scratch: list[ir.Value] = []
    left = _side(e, scratch, kernel.operands[0], i.operands[0], plan.left, kind)
    right = _side(e, scratch, kernel.operands[1], i.operands[1], plan.right, kind)
    direct = i.shape.dtype is kind
    out = kernel.results[0]
    if not direct:
        out = allocate(e, i.shape.size * kind.nbytes)
        scratch.append(out)
    _products(e, plan, kind, left, right, out)
    if not direct:
        convert_all(e, out, kind, kernel.results[0], i.shape)
    release(e, scratch)
    e.finish()


def gemm_type(i: Instruction) -> DType | None:
    """The type to multiply in; None for integers."""
    result = i.shape.dtype
    if result.name in blas.GEMM:
        return result
    if result.is_float and result.bits < 32:
        return DTYPES["f32"]
    return None


class _Sides:
    """A dot as batch x rows x columns x depth: each side's dimensions in the order (batch, free, contracted)."""

    def __init__(self, i: Instruction) -> None:
        lhs, rhs = i.operands
        a = i.attrs
        self.left = _Roles(lhs.shape, a.get("lhs_batch_dims", ()), a.get("lhs_contracting_dims", ()), True)
        self.right = _Roles(rhs.shape, a.get("rhs_batch_dims", ()), a.get("rhs_contracting_dims", ()), False)
        self.batch = tuple(lhs.shape.dims[d] for d in self.left.batch)
        self.m, self.n, self.k = self.left.free_size, self.right.free_size, self.left.sum_size

    @property
    def work(self) -> int:
        return self.m * self.n * self.k


class _Roles:
    """The dimensions of one side by role, and their strides."""

    def __init__(self, shape: Shape, batch: Sequence[int], contracted: Sequence[int], rows_first: bool) -> None:
        self.dims = shape.dims
        self.batch = tuple(batch)
        self.contracted = tuple(contracted)
        self.free = tuple(d for d in range(shape.rank) if d not in self.batch and d not in self.contracted)
        self.rows_first = rows_first
        self.free_size = self.size(self.free)
        self.sum_size = self.size(self.contracted)

    def size(self, dims: Sequence[int]) -> int:
        total = 1
        for d in dims:
            total *= self.dims[d]
        return total

    def stride(self, dim: int) -> int:
        return self.size(range(dim + 1, len(self.dims)))

    def joint_stride(self, dims: Sequence[int]) -> int | None:
        """The stride of several dimensions taken as one long one; None when they do not follow one another."""
        dims = [d for d in dims if self.dims[d] != 1]
        for a, b in pairwise(dims):
            if self.stride(a) != self.stride(b) * self.dims[b]:
                return None
        return self.stride(dims[-1]) if dims else 0


def _side(
    e: Emitter, scratch: list[ir.Value], pointer: ir.Value, operand: Instruction, roles: _Roles, kind: DType
) -> Matrix:
    """The operand as it lies where BLAS can take it, packed to (batch, rows, columns) otherwise."""
    rows, columns = (roles.free, roles.contracted) if roles.rows_first else (roles.contracted, roles.free)
    height, width = roles.size(rows), roles.size(columns)
    down, across = roles.joint_stride(rows), roles.joint_stride(columns)
    if operand.shape.dtype is kind and down is not None and across is not None:
        strides = tuple(roles.stride(d) for d in roles.batch)
        if (across == 1 or width == 1) and (height == 1 or down >= width):
            return Matrix(pointer, down if height > 1 else max(width, 1), False, strides)
        if (down == 1 or height == 1) and (width == 1 or across >= height):
            return Matrix(pointer, across if width > 1 else max(height, 1), True, strides)
    packed = _pack(e, operand, (*roles.batch, *rows, *columns), len(roles.batch), (height, width), kind)
    scratch.append(packed.pointer)
    return packed


def _pack(
    e: Emitter, operand: Instruction, order: Sequence[int], batches: int, size: tuple[int, int], kind: DType
) -> Matrix:
    """A dense copy with dimensions in ``order``, the first ``batches`` of them batch dimensions."""
    height, width = size
    dims = tuple(operand.shape.dims[d] for d in order)
    packed = array_shape(kind, *dims)
    place = allocate(e, packed.nbytes)

    def element(e: Elements, index: Index, mask: Mask) -> object:
        where = [index[0]] * len(order) if order else []
        for position, d in enumerate(order):
            where[d] = index[position]
        return converted(e, e.value(operand, tuple(where), mask), operand.shape.dtype, kind)

    emit_map(e, dims, [Output(place, packed, element)])
    strides: list[int] = []
    stride = height * width
    for n in reversed(dims[:batches]):
        strides.append(stride)
        stride *= n
    return Matrix(place, max(width, 1), False, tuple(reversed(strides)))


def _products(e: Emitter, plan: _Sides, kind: DType, left: Matrix, right: Matrix, out: ir.Value) -> None:
    frame: Frame = e.entry
    loops: list[Loop] = []
    places = [left.pointer, right.pointer, out]
    size = plan.m * plan.n
    out_strides = []
    for n in reversed(plan.batch):
        out_strides.append(size)
        size *= n
    out_strides.reverse()
    for number, n in enumerate(plan.batch):
        if n == 1:
            continue
        loop = Loop(frame, n)
        loops.append(loop)
        frame = loop.frame
        strides = (left.batch_strides[number], right.batch_strides[number], out_strides[number])
        places = [_step(frame, p, loop.index, s, kind) for p, s in zip(places, strides, strict=True)]
    left, right = replace(left, pointer=places[0]), replace(right, pointer=places[1])
    gemm(frame.builder, kind, (plan.m, plan.n, plan.k), left, right, places[2])
    for loop in reversed(loops):
        loop.close()


def _step(frame: Frame, pointer: ir.Value, index: ir.Value, stride: int, kind: DType) -> ir.Value:
    offset = frame.builder.mul(index, constant(I64, stride * (2 if kind.is_complex else 1)))
    return frame.builder.gep(pointer, [offset], source_etype=memory_type(kind))


def gemm(b: ir.IRBuilder, kind: DType, sizes: tuple[int, int, int], left: Matrix, right: Matrix, out: ir.Value) -> None:
    """Call BLAS for one dense (m, n) result of (m, n, k)."""
    function = blas.declare_gemm(b.module, kind.name)
    c = partial(constant, I32)
    trans = [c(blas.TRANS if m.transposed else blas.NO_TRANS) for m in (left, right)]
    one, nothing = scale(b, kind, 1.0), scale(b, kind, 0.0)
    a = [left.pointer, c(left.leading), right.pointer, c(right.leading)]
    b.call(function, [c(blas.ROW_MAJOR), *trans, *map(c, sizes), one, *a, nothing, out, c(sizes[1])])


def scale(b: ir.IRBuilder, kind: DType, value: float) -> ir.Value:
    """A factor as BLAS wants it: a value for real types, the address of one for complex types."""
    t = memory_type(kind)
    if not kind.is_complex:
        return constant(t, value)
    name = f"shardc.scale.{kind.name}.{int(value)}"
    place = b.module.globals.get(name)
    if place is None:
        pair = ir.ArrayType(t, 2)
        place = ir.GlobalVariable(b.module, pair, name)
        place.initializer = ir.Constant(pair, [constant(t, value), constant(t, 0.0)])
        place.linkage, place.global_constant, place.align = "internal", True, 16
    return place


def convert_all(e: Emitter, source: ir.Value, kind: DType, target: ir.Value, shape: Shape) -> None:
    """Element by element from the product's type to the result's."""
    value = Instruction("parameter", array_shape(kind, *shape.dims), attrs={"index": 0})
    inner = e.with_leaf(value, source)

    def element(e: Elements, index: Index, mask: Mask) -> object:
        return converted(e, e.value(value, index, mask), kind, shape.dtype)

    emit_map(inner, shape.dims, [Output(target, shape, element)])
