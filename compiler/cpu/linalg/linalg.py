"""Cholesky factorisation and triangular solves of each matrix of a batch: by LAPACK, small ones by plain loops."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.linalg.lapack import step_to
from shardc.compiler.cpu.loops.mapping import emit_map
from shardc.compiler.cpu.loops.outputs import MapOutput
from shardc.compiler.cpu.loops.updates import copy_unless_same
from shardc.compiler.cpu.products.contraction import convert_all, scale
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import Mask
from shardc.compiler.elements.bits import scalar_op
from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.elements import Elements, Index
from shardc.compiler.elements.folds import convert_element
from shardc.compiler.elements.frames import Val
from shardc.compiler.elements.scalars import Scalars
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DType
from shardc.native.llvm import blas
from shardc.native.math.vector import I1, I8, I32, I64, constant, intrinsic

#: Matrices with fewer rows than this are factorised by loops: a call costs more than they take.
_SMALL = 12

__all__ = ["emit_cholesky", "emit_triangular_solve"]


def _at(b: ir.IRBuilder, row: ir.Value, column: ir.Value, strides: tuple[int, int]) -> ir.Value:
    return b.add(b.mul(row, constant(I64, strides[0])), b.mul(column, constant(I64, strides[1])))


def _cholesky_loops(e: CpuEmitter, i: Instruction, kind: DType, place: ir.Value) -> None:
    """One matrix in its place, column by column; NaN unless it is positive definite, zeros in the other triangle.

    The upper factor is the lower one of the adjoint, so it is written with rows and columns exchanged.
    """
    s = Scalars(e, kind)
    b, n = s.b, i.shape.dims[-1]
    lower = i.attrs.get("lower", False)
    strides = (n, 1) if lower else (1, n)
    bad = e.slot(I1)
    b.store(constant(I1, 0), bad)
    with for_range(b, 0, n) as j:
        with for_range(b, 0, j) as k:
            memory.store(b, e.constant(0, kind).parts, place, _at(b, k, j, strides), kind, None)
        pivot_at = _at(b, j, j, strides)
        with for_range(b, j, n) as row:
            s.put(_conjugate_if(s, s.load(place, _at(b, row, j, strides)), not lower))
            with for_range(b, 0, j) as k:
                left = _conjugate_if(s, s.load(place, _at(b, row, k, strides)), not lower)
                right = _conjugate_if(s, s.load(place, _at(b, j, k, strides)), lower)
                s.put(s.op("subtract", s.get(), s.op("multiply", left, right)))
            value = s.get()
            with b.if_else(b.icmp_unsigned("==", row, j)) as (on_diagonal, below):
                with on_diagonal:
                    _pivot(s, value, place, pivot_at, bad)
                with below:
                    quotient = s.op("divide", value, s.load(place, pivot_at))
                    s.store(_conjugate_if(s, quotient, not lower), place, _at(b, row, j, strides))
    with b.if_then(b.load(bad, typ=I1)):
        nan = e.constant(math.nan, kind)
        with for_range(b, 0, n) as row, for_range(b, 0, b.add(row, constant(I64, 1))) as column:
            memory.store(b, nan.parts, place, _at(b, row, column, strides), kind, None)


def _conjugate_if(s: Scalars, x: Val, yes: bool) -> Val:
    return s.conjugate(x) if yes else x


def _pivot(s: Scalars, value: Val, out: ir.Value, at: ir.Value, bad: ir.Value) -> None:
    """The root of a positive real pivot; anything else marks the matrix as bad."""
    b = s.b
    part = value.parts[0]
    positive = b.fcmp_ordered(">", part, constant(part.type, 0.0))
    b.store(b.or_(b.load(bad, typ=I1), b.not_(positive)), bad)
    root = s.e.elementwise(scalar_op("sqrt", s.real, s.real), [Val((part,), value.frame)], wide=True)
    parts = (root.value, constant(part.type, 0.0)) if len(value.parts) == 2 else (root.value,)
    s.store(Val(parts, value.frame), out, at)


def _solve_loops(e: CpuEmitter, i: Instruction, kind: DType, a: ir.Value, out: ir.Value) -> None:
    """Forward or backward substitution in the place of one matrix, one row of the solution after the other."""
    attrs = i.attrs
    s = Scalars(e, kind)
    b = s.b
    left, lower = attrs.get("left_side", False), attrs.get("lower", False)
    transpose = attrs.get("transpose_a", "NO_TRANSPOSE")
    n = i.operands[0].shape.dims[-1]
    rows, columns = i.shape.dims[-2:]
    turned = (transpose in ("TRANSPOSE", "ADJOINT")) != (not left)
    a_strides = (1, n) if turned else (n, 1)
    x_strides, width = ((columns, 1), columns) if left else ((1, columns), rows)
    forward = lower != turned
    last = constant(I64, n - 1)
    with for_range(b, 0, n) as step, for_range(b, 0, width) as column:
        k = step if forward else b.sub(last, step)
        place = _at(b, k, column, x_strides)
        s.put(s.load(out, place))
        with for_range(b, 0, step) as done:
            d = done if forward else b.sub(last, done)
            factor = _conjugate_if(s, s.load(a, _at(b, k, d, a_strides)), transpose == "ADJOINT")
            known = s.load(out, _at(b, d, column, x_strides))
            s.put(s.op("subtract", s.get(), s.op("multiply", factor, known)))
        value = s.get()
        if not attrs.get("unit_diagonal", False):
            diagonal = s.load(a, _at(b, k, k, a_strides))
            value = s.op("divide", value, _conjugate_if(s, diagonal, transpose == "ADJOINT"))
        s.store(value, out, place)


def emit_cholesky(kernel: CpuKernel) -> None:
    """A matrix that is not positive definite becomes NaN; the other triangle is zero."""
    i = kernel.instruction
    n = i.shape.dims[-1]
    kind = i.shape.dtype.accumulator
    e = kernel.emitter()
    if i.shape.size:
        with _result(kernel, e, kind, 0) as out, for_range(e.entry.builder, 0, math.prod(i.shape.dims[:-2])) as matrix:
            place = step_to(e.entry.builder, out, matrix, n * n * kind.nbytes)
            (_cholesky_loops if n < _SMALL else _cholesky_call)(e, i, kind, place)
    e.finish()


def _cholesky_call(e: CpuEmitter, i: Instruction, kind: DType, place: ir.Value) -> None:
    """LAPACK sees a row-major matrix transposed, which is the conjugate of a Hermitian one, and writes the transpose of
    the wanted factor: nothing needs to be moved or conjugated.
    """
    b, n = e.entry.builder, i.shape.dims[-1]
    lower = i.attrs.get("lower", False)
    arguments = [constant(I32, blas.COLUMN_MAJOR), constant(I8, ord("U" if lower else "L")), constant(I32, n)]
    arguments += [place, constant(I32, n)]
    function = blas.declare(b.module, f"scipy_LAPACKE_{blas.LAPACK[kind.name]}potrf", [a.type for a in arguments])
    info = b.call(function, arguments)
    with for_range(b, 0, n) as row:
        _clear_triangle(b, place, row, n, kind, lower=lower)
    with b.if_then(b.icmp_signed("!=", info, constant(I32, 0))):
        _spoil_triangle(e, place, n, kind, lower=lower)


@contextmanager
def _result(kernel: CpuKernel, e: CpuEmitter, kind: DType, operand: int) -> Iterator[ir.Value]:
    """A copy of an operand in BLAS's element type, which becomes the result at the end."""
    i = kernel.instruction
    source = i.operands[operand]
    if source.shape.dtype is kind:
        copy_unless_same(e, kernel.results[0], kernel.operands[operand], i.shape.nbytes)
        yield kernel.results[0]
        return
    room = allocate(e, i.shape.size * kind.nbytes)
    widen(e, source, kind, room)
    yield room
    convert_all(e, room, kind, kernel.results[0], i.shape)
    release(e, [room])


def widen(e: CpuEmitter, source: Instruction, kind: DType, target: ir.Value) -> None:
    """Write an operand to ``target`` in another element type."""

    def element(e: Elements, index: Index, mask: Mask) -> object:
        return convert_element(e, e.value(source, index, mask), source.shape.dtype, kind)

    shape = source.shape.plain.with_dtype(kind)
    emit_map(e, shape.dims, [MapOutput(target, shape, element)])


def _clear_triangle(b: ir.IRBuilder, place: ir.Value, row: ir.Value, n: int, kind: DType, *, lower: bool) -> None:
    """Zeros in one row of the triangle that is not the factor."""
    size = constant(I64, kind.nbytes)
    start = b.mul(row, constant(I64, n))
    after = b.add(row, constant(I64, 1))
    at = b.add(start, after) if lower else start
    count = b.sub(constant(I64, n), after) if lower else row
    target = b.gep(place, [b.mul(at, size)], source_etype=I8)
    intrinsic(b, "llvm.memset", ir.VoidType(), [target, constant(I8, 0), b.mul(count, size), constant(I1, 0)])


def _spoil_triangle(e: CpuEmitter, place: ir.Value, n: int, kind: DType, *, lower: bool) -> None:
    b = e.entry.builder
    nan = e.constant(math.nan, kind)
    with for_range(b, 0, n) as row, for_range(b, 0, b.add(row, constant(I64, 1))) as column:
        first, second = (row, column) if lower else (column, row)
        at = b.add(b.mul(first, constant(I64, n)), second)
        memory.store(b, nan.parts, place, at, kind, None)


def emit_triangular_solve(kernel: CpuKernel) -> None:
    """op(a) x = b, or x op(a) = b, in the place of b; narrow floats are solved in f32 and rounded at the end."""
    i = kernel.instruction
    a = i.operands[0]
    n = a.shape.dims[-1]
    kind = i.shape.dtype.accumulator
    e = kernel.emitter()
    if i.shape.size:
        b = e.entry.builder
        matrices = kernel.operands[0]
        if a.shape.dtype is not kind:
            matrices = allocate(e, a.shape.size * kind.nbytes)
            widen(e, a, kind, matrices)
        with _result(kernel, e, kind, 1) as out, for_range(b, 0, math.prod(i.shape.dims[:-2])) as matrix:
            left = step_to(b, matrices, matrix, n * n * kind.nbytes)
            right = step_to(b, out, matrix, math.prod(i.shape.dims[-2:]) * kind.nbytes)
            (_solve_loops if n < _SMALL else _solve_call)(e, i, kind, left, right)
        if matrices is not kernel.operands[0]:
            release(e, [matrices])
    e.finish()


def _solve_call(e: CpuEmitter, i: Instruction, kind: DType, left: ir.Value, right: ir.Value) -> None:
    b = e.entry.builder
    rows, columns = i.shape.dims[-2:]
    arguments = [constant(I32, w) for w in (blas.ROW_MAJOR, *_trsm_flags(i), rows, columns)]
    arguments += [scale(b, kind, 1.0), left, constant(I32, i.operands[0].shape.dims[-1]), right, constant(I32, columns)]
    symbol = f"scipy_cblas_{blas.LAPACK[kind.name]}trsm"
    b.call(blas.declare(b.module, symbol, [a.type for a in arguments]), arguments)


def _trsm_flags(i: Instruction) -> tuple[int, int, int, int]:
    """CBLAS's constants for side, triangle, operation and diagonal."""
    a = i.attrs
    operation = {"NO_TRANSPOSE": 111, "TRANSPOSE": 112, "ADJOINT": 113}[a.get("transpose_a", "NO_TRANSPOSE")]
    return (
        141 if a.get("left_side", False) else 142,
        122 if a.get("lower", False) else 121,
        operation,
        132 if a.get("unit_diagonal", False) else 131,
    )
