"""LAPACK's routines on each matrix of a batch: the rows of `shardc.hlo.ir.lapack` as calls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.loops.updates import copy_unless_same
from shardc.compiler.cpu.products.contraction import scale
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.elements import memory
from shardc.compiler.elements.control_flow import for_range, nest
from shardc.hlo.ir.lapack import LAPACK, LapackArgument, LapackRoutine, attributes_of, bind_dimensions, letter
from shardc.hlo.ir.types import DTYPES, DType, Shape
from shardc.native.llvm import blas
from shardc.native.math.vector import I1, I8, I32, I64, PTR, constant, intrinsic

__all__ = ["emit_lapack", "fill_zeros", "step_to"]

_CHAR = ir.IntType(8)
_PARTS: Mapping[str, str] = {"c64": "f32", "c128": "f64"}


def emit_lapack(kernel: CpuKernel) -> None:
    """Results begin as copies or zeros, then one call per matrix works on them in place."""
    i = kernel.instruction
    routine = LAPACK[i.attrs["custom_call_target"]]
    shapes = [o.shape for o in i.operands]
    batch = bind_dimensions(routine, tuple(shapes), tuple(kernel.result_shapes))
    e = kernel.emitter({})
    for begin, place, shape in zip(routine.begin, kernel.results, kernel.result_shapes, strict=True):
        if begin.isdigit():
            copy_unless_same(e, place, kernel.operands[int(begin)], shape.nbytes)
        else:
            fill_zeros(e.entry.builder, place, shape.nbytes)
    if not any(0 in s.dims for s in shapes):
        calls = _Calls(kernel, e, routine, len(batch))
        with for_range(e.entry.builder, 0, math.prod(batch)) as matrix:
            calls.emit(matrix)
        calls.free()
    e.finish()


def fill_zeros(b: ir.IRBuilder, place: ir.Value, nbytes: int) -> None:
    """Set ``nbytes`` bytes to zero."""
    arguments = [place, constant(I8, 0), constant(I64, nbytes), constant(I1, 0)]
    intrinsic(b, "llvm.memset", ir.VoidType(), arguments)


def step_to(b: ir.IRBuilder, place: ir.Value, number: ir.Value, nbytes: int) -> ir.Value:
    """The address of block ``number`` of ``nbytes``."""
    return b.gep(place, [b.mul(number, constant(I64, nbytes))], source_etype=I8)


class _Calls:
    """The call for one matrix of the batch, and the room it needs."""

    def __init__(self, kernel: CpuKernel, e: CpuEmitter, routine: LapackRoutine, batch_rank: int) -> None:
        self.e = e
        self.b: ir.IRBuilder = e.entry.builder
        self.routine = routine
        self.place = kernel.instruction.place
        self.attributes: Mapping[str, Any] = attributes_of(kernel.instruction)
        self.operands = [Shape(o.shape.dtype, o.shape.dims[batch_rank:]) for o in kernel.instruction.operands]
        self.results = [Shape(s.dtype, s.dims[batch_rank:]) for s in kernel.result_shapes]
        self.bases = {"o": kernel.operands, "r": kernel.results}
        self.dtype: DType = self.operands[0].dtype
        self.real = DTYPES[_PARTS.get(self.dtype.name, self.dtype.name)]
        self.room: dict[object, ir.Value] = {}
        for a in routine.arguments:
            if a.kind == "copy":
                self.room["copy"] = allocate(e, self.operands[a.index].nbytes)
            elif a.kind == "work":
                self.room["work"] = allocate(e, max(self.operands[0].dims) * self.real.nbytes)
        for number, begin in enumerate(routine.begin):
            if begin == "~":
                self.room[number] = allocate(e, self.results[number].size * self.real.nbytes)

    def free(self) -> None:
        release(self.e, list(self.room.values()))

    def emit(self, matrix: ir.Value) -> None:
        b = self.b
        info: ir.Value = constant(I32, -4)
        if not self.routine.needs_finite:
            info = self._call(matrix)
        else:
            place = self.e.slot(I32)
            b.store(info, place)
            with b.if_then(self._finite(self._address("o", 0, matrix))):
                b.store(self._call(matrix), place)
            info = b.load(place, typ=I32)
        if self.routine.returns_info:
            b.store(info, self._address("r", len(self.results) - 1, matrix))

    def _call(self, matrix: ir.Value) -> ir.Value:
        for number, begin in enumerate(self.routine.begin):
            if begin == "~":
                fill_zeros(self.b, self.room[number], self.results[number].size * self.real.nbytes)
        arguments = [constant(I32, blas.ROW_MAJOR), *(self._argument(a, matrix) for a in self.routine.arguments)]
        function = blas.declare(self.b.module, self.routine.symbol, [a.type for a in arguments])
        info = self.b.call(function, arguments)
        for number, begin in enumerate(self.routine.begin):
            if begin == "~":
                self._from_pairs(number, matrix)
        return info

    def _address(self, of: str, index: int, matrix: ir.Value) -> ir.Value:
        shape = (self.operands if of == "o" else self.results)[index]
        return step_to(self.b, self.bases[of][index], matrix, shape.nbytes)

    def _argument(self, a: LapackArgument, matrix: ir.Value) -> ir.Value:
        shapes: Sequence[Shape] = self.operands if a.of == "o" else self.results
        match a.kind:
            case "address":
                if a.of == "r" and a.index in self.room:
                    return self.room[a.index]
                place = self._address(a.of, a.index, matrix)
                offset = constant(I64, a.offset * shapes[a.index].dtype.nbytes)
                return self.b.gep(place, [offset], source_etype=I8) if a.offset else place
            case "copy":
                source = self._address("o", a.index, matrix)
                copy_unless_same(self.e, self.room["copy"], source, self.operands[a.index].nbytes)
                return self.room["copy"]
            case "work":
                return self.room["work"]
            case "rows":
                return constant(I32, shapes[a.index].dims[-2])
            case "cols" | "ld":
                return constant(I32, shapes[a.index].dims[-1])
            case "null":
                return ir.Constant(PTR, None)
            case "one":
                return scale(self.b, self.dtype, 1.0)
        return constant(_CHAR if a.kind == "letter" else I32, letter(self.routine, a, self.attributes, self.place))

    def _finite(self, place: ir.Value) -> ir.Value:
        """Whether the operand holds neither infinities nor NaNs. Only then is x - x zero everywhere."""
        b = self.b
        whole = self.e.slot(I1)
        b.store(constant(I1, 1), whole)
        count = self.operands[0].nbytes // self.real.nbytes
        with for_range(b, 0, count) as k:
            (x,) = memory.load(b, place, k, self.real, 1)
            b.store(b.and_(b.load(whole, typ=I1), b.fcmp_ordered("==", b.fsub(x, x), constant(x.type, 0.0))), whole)
        return b.load(whole, typ=I1)

    def _from_pairs(self, number: int, matrix: ir.Value) -> None:
        """Columns j, j+1 of a pair of conjugate eigenvalues hold the parts of the first's vector."""
        b, n = self.b, self.results[number].dims[-1]
        room, out = self.room[number], self._address("r", number, matrix)
        values = self._address("r", 1, matrix)
        size, one = constant(I64, n), constant(I64, 1)
        with nest(b, [n, n]) as (row, j):
            (imaginary,) = memory.load(b, values, j, self.real, 1)
            nothing = constant(imaginary.type, 0.0)
            first, second = (b.fcmp_ordered(sign, imaginary, nothing) for sign in "><")
            at = b.add(b.mul(row, size), j)
            right = intrinsic(b, "llvm.smin", I64, [b.add(at, one), constant(I64, n * n - 1)])
            left = b.select(second, b.sub(at, one), at)
            (here,), (before,), (after,) = (memory.load(b, room, k, self.real, 1) for k in (at, left, right))
            turn = b.select(first, after, b.select(second, b.fneg(here), nothing))
            memory.store(b, (before, turn), out, at, self.results[number].dtype, None)
