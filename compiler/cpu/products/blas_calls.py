"""Calls of the BLAS library in emitted code."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from shardc.compiler.elements.arithmetic.registers import memory_type
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DType
from shardc.native.llvm import blas
from shardc.native.math.vector import I32, I64, PTR, constant

__all__ = ["BlasView", "address", "gemm", "gemm_type", "scale", "transpose_copy"]


@dataclass(frozen=True, slots=True)
class BlasView:
    """A matrix in memory: address of its first element, leading dimension, transposed or not."""

    pointer: ir.Value
    leading: int
    transposed: bool = False


def gemm_type(i: Instruction) -> DType | None:
    """The type to multiply in; None for integers."""
    kind = i.shape.dtype.accumulator
    return kind if kind.name in blas.GEMM else None


def gemm(
    b: ir.IRBuilder,
    kind: DType,
    sizes: tuple[ir.Value, int, int],
    left: BlasView,
    right: BlasView,
    out: BlasView,
    add: ir.Value,
) -> None:
    """``out = left @ right`` of (rows, columns, depth), or ``out += left @ right`` where the i1 ``add`` holds."""
    function = blas.declare_gemm(b.module, kind.name)
    c = partial(constant, I32)
    trans = [c(blas.TRANS if m.transposed else blas.NO_TRANS) for m in (left, right)]
    rows, *others = sizes
    numbers = [b.trunc(rows, I32), *map(c, others)]
    sides = [left.pointer, c(left.leading), right.pointer, c(right.leading)]
    beta = b.select(add, scale(b, kind, 1.0), scale(b, kind, 0.0))
    target = [out.pointer, c(out.leading)]
    b.call(function, [c(blas.ROW_MAJOR), *trans, *numbers, scale(b, kind, 1.0), *sides, beta, *target])


def transpose_copy(b: ir.IRBuilder, kind: DType, rows: int, columns: int, source: BlasView, target: BlasView) -> None:
    """``target[column, row] = source[row, column]`` for real types."""
    c = partial(constant, I32)
    number = memory_type(kind)
    function = blas.declare(b.module, blas.TRANSPOSE[kind.name], [*[I32] * 4, number, PTR, I32, PTR, I32])
    sizes = [c(blas.ROW_MAJOR), c(blas.TRANS), c(rows), c(columns)]
    places = [source.pointer, c(source.leading), target.pointer, c(target.leading)]
    b.call(function, [*sizes, constant(number, 1.0), *places])


def address(b: ir.IRBuilder, base: ir.Value, offset: ir.Value, kind: DType) -> ir.Value:
    """Where element ``offset`` of an array lies."""
    if kind.is_complex:
        offset = b.shl(offset, constant(I64, 1))
    return b.gep(base, [offset], source_etype=memory_type(kind))


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
