"""FFT of any length: Stockham's autosorting form with one stage per prime factor, in double precision.

A stage of radix p turns rows of length r = p m, interleaved s-fold, into rows of length m, interleaved s p-fold:
``y[s (p i + q) + k] = w_r^(i q) sum_u x[s (i + m u) + k] w_p^(u q)``.
"""

from __future__ import annotations

import cmath
import hashlib
import math
from functools import partial

import numpy as np
from llvmlite import ir

from shardc.compiler.kernels import memory
from shardc.compiler.kernels.control_flow import counted, nest
from shardc.compiler.kernels.convert import convert
from shardc.compiler.kernels.emitter import Emitter
from shardc.compiler.kernels.function import Kernel
from shardc.compiler.kernels.scratch import allocate, release
from shardc.compiler.kernels.sorting import Rows
from shardc.hlo.types import DTYPES, DType
from shardc.native.vector import F64, I8, I64, constant

__all__ = ["emit_fft"]

_WIDE = DTYPES["c128"]


def emit_fft(kernel: Kernel) -> None:
    """All four kinds: one pass over the rows of each transformed dimension, the real side last or first."""
    i = kernel.instruction
    e = kernel.emitter({})
    operand = i.operands[0].shape
    lengths = i.attrs["fft_length"]
    kind = i.attrs["fft_type"]
    if 0 in i.shape.dims or 0 in operand.dims:
        with counted(e.entry.builder, 0, i.shape.nbytes) as k:
            e.entry.builder.store(constant(I8, 0), e.entry.builder.gep(kernel.results[0], [k], source_etype=I8))
        e.finish()
        return
    dims = list(range(operand.rank - len(lengths), operand.rank))
    out = kernel.results[0]
    if kind == "IRFFT":
        middle = allocate(e, operand.nbytes)
        source, source_dims = kernel.operands[0], operand.dims
        for d in dims[:-1]:
            _Pass(e, source_dims, source_dims, d, lengths[d - dims[0]], inverse=True).emit(
                source, middle, operand.dtype
            )
            source = middle
        last = _Pass(e, operand.dims, i.shape.dims, dims[-1], lengths[-1], inverse=True, half_in=True)
        last.emit(source, out, operand.dtype, i.shape.dtype)
        release(e, [middle])
    else:
        first = _Pass(e, operand.dims, i.shape.dims, dims[-1], lengths[-1], inverse=kind == "IFFT")
        first.emit(kernel.operands[0], out, operand.dtype, i.shape.dtype)
        for d in reversed(dims[:-1]):
            again = _Pass(e, i.shape.dims, i.shape.dims, d, lengths[d - dims[0]], inverse=kind == "IFFT")
            again.emit(out, out, i.shape.dtype)
    e.finish()


class _Pass:
    """Transforms of length ``n`` along one dimension, from rows of one shape to rows of another.

    Rows that are shorter than ``n`` in the result keep their beginning (a real transform's half); ``half_in`` says
    that the operand's rows are such halves, completed by conjugates.
    """

    def __init__(
        self,
        e: Emitter,
        source: tuple[int, ...],
        target: tuple[int, ...],
        dim: int,
        n: int,
        *,
        inverse: bool,
        half_in: bool = False,
    ) -> None:
        self.e = e
        self.b: ir.IRBuilder = e.entry.builder
        self.source = Rows(source, dim)
        self.target = Rows(target, dim)
        self.n = n
        self.inverse = inverse
        self.half_in = half_in
        self.roots = _table(self.b.module, n, inverse)

    def emit(self, source: ir.Value, target: ir.Value, dtype: DType, result: DType | None = None) -> None:
        result = result or dtype
        b = self.b
        work = [allocate(self.e, self.n * 16) for _ in range(2)]
        with nest(b, [self.source.outer, self.source.stride]) as (outer, inner):
            base = self.source.base(b, outer, inner)
            with counted(b, 0, self.n) as k:
                self._store(work[0], k, self._read(source, base, k, dtype))
            done = self._stages(work)
            base = self.target.base(b, outer, inner)
            with counted(b, 0, self.target.length) as k:
                value = self._load(done, k)
                if self.inverse:
                    value = tuple(b.fmul(p, constant(F64, 1 / self.n)) for p in value)
                parts = value if result.is_complex else value[:1]
                kind = DTYPES["f32" if result.name in ("c64", "f32") else "f64"]
                narrow = tuple(convert(b, p, DTYPES["f64"], kind) for p in parts)
                memory.store(b, narrow, target, self.target.at(b, base, k), result, None)
        release(self.e, work)

    def _read(self, source: ir.Value, base: ir.Value, k: ir.Value, dtype: DType) -> tuple[ir.Value, ...]:
        b = self.b
        place, mirrored = k, None
        if self.half_in:
            mirrored = b.icmp_signed(">=", k, constant(I64, self.source.length))
            place = b.select(mirrored, b.sub(constant(I64, self.n), k), k)
        parts = memory.load(b, source, self.source.at(b, base, place), dtype, 1)
        part = DTYPES["f32" if dtype.name in ("c64", "f32") else "f64"]
        wide = [convert(b, p, part, DTYPES["f64"]) for p in parts]
        imaginary = wide[1] if len(wide) == 2 else constant(F64, 0.0)
        if mirrored is not None:
            imaginary = b.select(mirrored, b.fneg(imaginary), imaginary)
        return wide[0], imaginary

    def _load(self, base: ir.Value, k: ir.Value) -> tuple[ir.Value, ...]:
        return memory.load(self.b, base, k, _WIDE, 1)

    def _store(self, base: ir.Value, k: ir.Value, value: tuple[ir.Value, ...]) -> None:
        memory.store(self.b, value, base, k, _WIDE, None)

    def _stages(self, work: list[ir.Value]) -> ir.Value:
        """One stage per prime factor, back and forth between the two rows; where the result lies."""
        rest, interleaved = self.n, 1
        x, y = work
        for p in _factors(self.n):
            self._stage(x, y, p, rest, interleaved)
            x, y = y, x
            rest, interleaved = rest // p, interleaved * p
        return x

    def _stage(self, x: ir.Value, y: ir.Value, p: int, r: int, s: int) -> None:
        b, n, m = self.b, self.n, r // p
        c = partial(constant, I64)
        sums = [self.e.slot(F64), self.e.slot(F64)]
        with nest(b, [m, p]) as (i, q):
            turn = b.mul(b.mul(i, q), c(n // r))
            with counted(b, 0, s) as k:
                for slot in sums:
                    b.store(constant(F64, 0.0), slot)
                with counted(b, 0, p) as u:
                    at = b.add(b.mul(b.add(i, b.mul(u, c(m))), c(s)), k)
                    exponent = b.urem(b.add(b.mul(b.mul(u, q), c(n // p)), turn), c(n))
                    real, imaginary = _product(b, self._load(x, at), self._load(self.roots, exponent))
                    for slot, part in zip(sums, (real, imaginary), strict=True):
                        b.store(b.fadd(b.load(slot, typ=F64), part), slot)
                place = b.add(b.mul(b.add(b.mul(i, c(p)), q), c(s)), k)
                self._store(y, place, tuple(b.load(slot, typ=F64) for slot in sums))


def _product(b: ir.IRBuilder, x: tuple[ir.Value, ...], y: tuple[ir.Value, ...]) -> tuple[ir.Value, ir.Value]:
    real = b.fsub(b.fmul(x[0], y[0]), b.fmul(x[1], y[1]))
    return real, b.fadd(b.fmul(x[0], y[1]), b.fmul(x[1], y[0]))


def _factors(n: int) -> list[int]:
    found, p = [], 2
    while n > 1:
        while n % p == 0:
            found.append(p)
            n //= p
        p = p + 1 if p * p <= n else max(n, p + 1)
    return found


def _table(module: ir.Module, n: int, inverse: bool) -> ir.Value:
    """The n-th roots of unity as a constant array."""
    sign = 1 if inverse else -1
    data = np.array([cmath.rect(1.0, sign * 2 * math.pi * k / n) for k in range(n)], np.complex128).tobytes()
    name = "shardc.roots." + hashlib.sha256(data).hexdigest()[:24]
    place = module.globals.get(name)
    if place is None:
        t = ir.ArrayType(I8, len(data))
        place = ir.GlobalVariable(module, t, name)
        place.initializer = ir.Constant(t, bytearray(data))
        place.linkage, place.global_constant, place.align = "internal", True, 64
    return place
