"""Triangular solves and Cholesky factorisation of small matrices on a GPU: a block per matrix.

Both are right-looking: when a row (or column) is done, all threads subtract it from what is left. LAPACK's ``trsm`` and
``potrf`` as custom calls are the same. Bigger matrices go to LAPACK on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager

from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.arithmetic.registers import is_small_float
from shardc.compiler.elements.bits import scalar_op
from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.frames import Val
from shardc.compiler.elements.loop_space import power_above
from shardc.compiler.elements.scalars import Scalars
from shardc.compiler.gpu.function import GpuKernel
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.lapack import LAPACK, LapackArgument, attributes_of, letter
from shardc.hlo.ir.types import DTYPES, DType
from shardc.native.math.vector import I1, I32, I64, constant

__all__ = ["emit_cholesky", "emit_triangular_solve", "takes_cholesky", "takes_triangular_solve"]

#: One block works on a matrix: with more rows than these the host's library is faster.
_MOST_ROWS = 512
_THREADS = 256
_SHARED_BYTES = 48 << 10
#: Columns of right-hand sides that a block solves.
_COLUMNS = 32
#: LAPACK's letters.
_OPERATIONS = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}


def takes_triangular_solve(kernel: GpuKernel) -> bool:
    """Solves with few rows, as an op or as LAPACK's."""
    i = kernel.instruction
    if i.opcode != "triangular-solve" and _routine(i) != "trsm":
        return False
    return i.operands[0].shape.dims[-1] <= _MOST_ROWS


def takes_cholesky(kernel: GpuKernel) -> bool:
    """Factors with few rows, as an op or as LAPACK's."""
    i = kernel.instruction
    return (i.opcode == "cholesky" or _routine(i) == "potrf") and i.operands[0].shape.dims[-1] <= _MOST_ROWS


def _routine(i: Instruction) -> str:
    """LAPACK's name of a custom call, without the letter of the type; empty for others."""
    routine = LAPACK.get(i.attrs.get("custom_call_target", ""))
    return "" if routine is None else routine.target.removesuffix("_ffi").removeprefix("lapack_")[1:]


def _word(i: Instruction, name: str) -> str:
    """The letter that a custom call has as an attribute."""
    routine = LAPACK[i.attrs["custom_call_target"]]
    return chr(letter(routine, LapackArgument("letter", name=name), attributes_of(i), i.place))


def _held(dtype: DType) -> DType:
    """The type in which intermediate results are kept."""
    return DTYPES["f32"] if is_small_float(dtype) else dtype


class _Solve:
    """The block's right-hand sides, ``columns`` of them, in shared memory: row by row."""

    def __init__(self, kernel: GpuKernel) -> None:
        i = self.instruction = kernel.instruction
        self.kernel = kernel
        if i.opcode == "custom-call":
            left, lower, self.unit = (_word(i, n) == yes for n, yes in (("side", "L"), ("uplo", "L"), ("diag", "U")))
            operation = _OPERATIONS[_word(i, "trans_x")]
        else:
            left, lower, self.unit = (i.attrs.get(n, False) for n in ("left_side", "lower", "unit_diagonal"))
            operation = i.attrs.get("transpose_a", "NO_TRANSPOSE")
        turned = (operation in ("TRANSPOSE", "ADJOINT")) != (not left)
        rows, columns = i.shape.dims[-2:]
        self.n = i.operands[0].shape.dims[-1]
        self.adjoint, self.forward = operation == "ADJOINT", lower != turned
        self.a_strides = (1, self.n) if turned else (self.n, 1)
        self.x_strides, self.width = ((columns, 1), columns) if left else ((1, columns), rows)
        self.held = _held(i.shape.dtype)
        self.columns = min(power_above(self.width), _COLUMNS)
        while self.columns > 1 and self.shared_bytes > _SHARED_BYTES:
            self.columns //= 2
        self.threads = min(max(self.columns * power_above(self.n), kernel.target.warp), _THREADS)

    @property
    def shared_bytes(self) -> int:
        return self.n * self.columns * self.held.nbytes

    def emit(self) -> None:
        kernel, i = self.kernel, self.instruction
        a, source, out = *kernel.operands, kernel.results[0]
        function = kernel.function([a, source, out], self.threads)
        e = self.e = function.emitter({})
        b = self.b = e.entry.builder
        self.s = Scalars(e, i.shape.dtype)
        self.shared = e.code.shared(b, 0)
        thread, block = e.code.thread(b), e.code.block(b)
        chunks = -(-self.width // self.columns)
        matrix = b.zext(b.udiv(block, constant(I32, chunks)), I64)
        self.row = b.zext(b.udiv(thread, constant(I32, self.columns)), I64)
        self.column = b.zext(b.urem(thread, constant(I32, self.columns)), I64)
        first = b.mul(b.zext(b.urem(block, constant(I32, chunks)), I64), constant(I64, self.columns))
        column = b.add(first, self.column)
        self.factors = function.pointer(a)
        self.a_base = b.mul(matrix, constant(I64, self.n * self.n))
        self.x_base = b.mul(matrix, constant(I64, self.n * self.width))
        self.x_base = b.add(self.x_base, b.mul(column, constant(I64, self.x_strides[1])))
        taken, results = function.pointer(source), function.pointer(out)
        rows = constant(I64, self.n)
        there = b.icmp_unsigned("<", column, constant(I64, self.width))
        with b.if_then(there):
            self._rows(rows, lambda r: self._put(r, self.s.load(taken, self._x(r))))
        e.code.barrier(b)
        self._substitute()
        with b.if_then(there):
            self._rows(rows, lambda r: self.s.store(self._get(r), results, self._x(r)))
        e.finish()
        kernel.launch(function, (math.prod(i.shape.dims[:-2]) * chunks,), self.shared_bytes)

    def _substitute(self) -> None:
        b, s, last = self.b, self.s, constant(I64, self.n - 1)
        with for_range(b, 0, self.n) as step:
            k = step if self.forward else b.sub(last, step)
            if not self.unit:
                with b.if_then(b.icmp_unsigned("==", self.row, constant(I64, 0))):
                    self._put(k, s.op("divide", self._get(k), self._factor(k, k)))
                self.e.code.barrier(b)
            known = self._get(k)

            def take_off(past: ir.Value) -> None:
                r = b.add(past, b.add(k, constant(I64, 1))) if self.forward else past
                self._put(r, s.op("subtract", self._get(r), s.op("multiply", self._factor(r, k), known)))

            self._rows(b.sub(last, step), take_off)
            self.e.code.barrier(b)

    def _rows(self, count: ir.Value, body: Callable[[ir.Value], None]) -> None:
        """``body`` for this thread's share of ``count`` rows."""
        with for_range(self.b, self.row, count, self.threads // self.columns) as r:
            body(r)

    def _factor(self, row: ir.Value, column: ir.Value) -> Val:
        b = self.b
        place = b.add(b.mul(row, constant(I64, self.a_strides[0])), b.mul(column, constant(I64, self.a_strides[1])))
        value = self.s.load(self.factors, b.add(self.a_base, place))
        return self.s.conjugate(value) if self.adjoint else value

    def _x(self, row: ir.Value) -> ir.Value:
        return self.b.add(self.x_base, self.b.mul(row, constant(I64, self.x_strides[0])))

    def _place(self, row: ir.Value) -> ir.Value:
        return self.b.add(self.b.mul(row, constant(I64, self.columns)), self.column)

    def _get(self, row: ir.Value) -> Val:
        return Val(memory.load(self.b, self.shared, self._place(row), self.held, 1), self.e.entry)

    def _put(self, row: ir.Value, value: Val) -> None:
        memory.store(self.b, value.parts, self.shared, self._place(row), self.held, None)


def emit_triangular_solve(kernel: GpuKernel) -> None:
    """op(a) x = b, or x op(a) = b, possibly in the place of b."""
    _Solve(kernel).emit()


class _Cholesky:
    """A block's matrix in memory: the result's, or scratch where that is too narrow. Only the triangle of rows r and
    columns c <= r is used; for an upper factor it lies transposed, and is the conjugate. Columns are divided by the
    roots of their pivots at the end, so that a step is one division and one barrier.

    The op gives NaN for a matrix that is not positive definite, and zeros in the other triangle; LAPACK says which
    pivot was not positive, and leaves the other triangle alone."""

    def __init__(self, kernel: GpuKernel) -> None:
        i = kernel.instruction
        self.kernel, self.shape = kernel, kernel.result_shapes[0]
        self.n = self.shape.dims[-1]
        self.lapack = i.opcode == "custom-call"
        self.lower = _word(i, "uplo") == "L" if self.lapack else i.attrs.get("lower", False)
        self.held = _held(self.shape.dtype)
        self.strides = (self.n, 1) if self.lower else (1, self.n)

    def emit(self) -> None:
        kernel = self.kernel
        source, out = kernel.operands[0], kernel.results[0]
        room = out if self.held is self.shape.dtype else kernel.scratch(self.shape.size * self.held.nbytes)
        function = kernel.function(list(dict.fromkeys([source, *kernel.results, room])), _THREADS)
        e = self.e = function.emitter({})
        b = self.b = e.entry.builder
        s = self.s = Scalars(e, self.shape.dtype)
        warp = kernel.target.warp
        thread = e.code.thread(b)
        self.lane = b.zext(b.urem(thread, constant(I32, warp)), I64)
        self.warp = b.zext(b.udiv(thread, constant(I32, warp)), I64)
        self.lanes, self.warps = warp, _THREADS // warp
        block = b.zext(e.code.block(b), I64)
        self.base = b.mul(block, constant(I64, self.n * self.n))
        self.source, self.room, self.results = (function.pointer(a) for a in (source, room, out))

        def take(r: ir.Value, c: ir.Value) -> None:
            value = s.load(self.source, self._at(r, c))
            self._put(r, c, value if self.lower else s.conjugate(value))

        self._triangle(constant(I64, 0), take)
        e.code.barrier(b)
        failed = self._eliminate()
        self._give(failed)
        if self.lapack:
            with b.if_then(b.icmp_unsigned("==", thread, constant(I32, 0))):
                b.store(failed, b.gep(function.pointer(kernel.results[1]), [block], source_etype=I32), align=4)
        e.finish()
        kernel.launch(function, (math.prod(self.shape.dims[:-2]),))

    def _eliminate(self) -> ir.Value:
        """Take every column off the columns behind it; the first pivot that was not positive, counted from 1, or 0.
        All threads see it."""
        b, s, none = self.b, self.s, constant(I32, 0)
        failed = self.e.slot(I32)
        b.store(none, failed)
        one = self.e.constant(1, s.real)
        with for_range(b, 0, self.n) as j:
            pivot = self._pivot(j)
            positive = b.fcmp_ordered(">", pivot.value, constant(pivot.value.type, 0.0))
            known = b.load(failed, typ=I32)
            first = b.and_(b.not_(positive), b.icmp_unsigned("==", known, none))
            b.store(b.select(first, b.add(b.trunc(j, I32), constant(I32, 1)), known), failed)
            inverse = self.e.elementwise(scalar_op("divide", s.real, s.real, s.real), [one, pivot], wide=True)

            def take_off(r: ir.Value, c: ir.Value) -> None:
                product = s.op("multiply", self._scaled(self._get(r, j), inverse), s.conjugate(self._get(c, j)))
                self._put(r, c, s.op("subtract", self._get(r, c), product))

            self._triangle(b.add(j, constant(I64, 1)), take_off)
            self.e.code.barrier(b)
        return b.load(failed, typ=I32)

    def _give(self, failed: ir.Value) -> None:
        """The result from what is left: below the diagonal first, since everybody needs that."""
        b, s, one = self.b, self.s, constant(I64, 1)
        bad = constant(I1, 0) if self.lapack else b.icmp_unsigned("!=", failed, constant(I32, 0))
        nan = self.e.constant(math.nan, self.shape.dtype)

        def write(r: ir.Value, c: ir.Value, value: Val) -> None:
            parts = tuple(b.select(bad, x, y) for x, y in zip(nan.parts, value.parts, strict=True))
            s.store(Val(parts, self.e.entry), self.results, self._at(r, c))

        with self._share(constant(I64, 0), self.n, self.warp, self.warps) as c:
            root = self.e.elementwise(scalar_op("rsqrt", s.real, s.real), [self._pivot(c)], wide=True)
            with self._share(b.add(c, one), self.n, self.lane, self.lanes) as r:
                value = self._scaled(self._get(r, c), root)
                write(r, c, value if self.lower else s.conjugate(value))
                other = s.load(self.source, self._at(c, r)) if self.lapack else self.e.constant(0, self.shape.dtype)
                s.store(other, self.results, self._at(c, r))
        self.e.code.barrier(b)
        number = b.add(b.mul(self.warp, constant(I64, self.lanes)), self.lane)
        with self._share(constant(I64, 0), self.n, number, _THREADS) as k:
            root = self.e.elementwise(scalar_op("sqrt", s.real, s.real), [self._pivot(k)], wide=True)
            write(k, k, Val((root.value, constant(root.value.type, 0.0))[: len(nan.parts)], self.e.entry))

    def _pivot(self, k: ir.Value) -> Val:
        return Val(self._get(k, k).parts[:1], self.e.entry)

    def _scaled(self, x: Val, by: Val) -> Val:
        """``x`` times a real number."""
        multiply = scalar_op("multiply", self.s.real, self.s.real, self.s.real)
        parts = [self.e.elementwise(multiply, [Val((p,), x.frame), by], wide=True).value for p in x.parts]
        return Val(tuple(parts), x.frame)

    def _triangle(self, first: ir.Value, body: Callable[[ir.Value, ir.Value], None]) -> None:
        """``body`` for this thread's share of rows r and columns c <= r from ``first`` on: a row per warp."""
        with self._share(first, self.n, self.warp, self.warps) as r:
            past = self.b.add(r, constant(I64, 1))
            with self._share(first, past, self.lane, self.lanes) as c:
                body(r, c)

    def _share(
        self, first: ir.Value, end: int | ir.Value, mine: ir.Value, step: int
    ) -> AbstractContextManager[ir.Value]:
        """A loop from ``first`` to ``end``, dealt out among ``step`` threads or warps."""
        return for_range(self.b, self.b.add(first, mine), end, step)

    def _at(self, row: ir.Value, column: ir.Value) -> ir.Value:
        b = self.b
        place = b.add(b.mul(row, constant(I64, self.strides[0])), b.mul(column, constant(I64, self.strides[1])))
        return b.add(self.base, place)

    def _get(self, row: ir.Value, column: ir.Value) -> Val:
        return Val(memory.load(self.b, self.room, self._at(row, column), self.held, 1), self.e.entry)

    def _put(self, row: ir.Value, column: ir.Value, value: Val) -> None:
        memory.store(self.b, value.parts, self.room, self._at(row, column), self.held, None)


def emit_cholesky(kernel: GpuKernel) -> None:
    """A matrix that is not positive definite becomes NaN; the other triangle is zero."""
    _Cholesky(kernel).emit()
