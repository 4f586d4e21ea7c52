"""FFT kernels: rows along one dimension after the other, in double precision; the real side comes last or first."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.fft.transforms import Transform
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.elements import memory
from shardc.compiler.elements.arithmetic.convert import convert
from shardc.compiler.elements.control_flow import for_range, nest
from shardc.compiler.elements.sorting import Rows
from shardc.hlo.ir.types import DTYPES, DType
from shardc.native.math.vector import F64, I8, I64, constant, splat, with_lanes

__all__ = ["emit_fft"]


def emit_fft(kernel: CpuKernel) -> None:
    """All four kinds, of one to three dimensions."""
    i = kernel.instruction
    e = kernel.emitter({})
    operand = i.operands[0].shape
    lengths = i.attrs["fft_length"]
    kind = i.attrs["fft_type"]
    if 0 in i.shape.dims or 0 in operand.dims:
        with for_range(e.entry.builder, 0, i.shape.nbytes) as k:
            e.entry.builder.store(constant(I8, 0), e.entry.builder.gep(kernel.results[0], [k], source_etype=I8))
        e.finish()
        return
    dims = list(range(operand.rank - len(lengths), operand.rank))
    out = kernel.results[0]
    lanes = kernel.target.vector_bits // 64
    if kind == "IRFFT":
        middle = allocate(e, operand.nbytes)
        source, source_dims = kernel.operands[0], operand.dims
        for d in dims[:-1]:
            again = _Pass(e, source_dims, source_dims, d, lengths[d - dims[0]], lanes, inverse=True)
            again.emit(source, middle, operand.dtype)
            source = middle
        last = _Pass(e, operand.dims, i.shape.dims, dims[-1], lengths[-1], lanes, inverse=True, half_in=True)
        last.emit(source, out, operand.dtype, i.shape.dtype)
        release(e, [middle])
    else:
        inverse = kind == "IFFT"
        first = _Pass(e, operand.dims, i.shape.dims, dims[-1], lengths[-1], lanes, inverse=inverse)
        first.emit(kernel.operands[0], out, operand.dtype, i.shape.dtype)
        for d in reversed(dims[:-1]):
            again = _Pass(e, i.shape.dims, i.shape.dims, d, lengths[d - dims[0]], lanes, inverse=inverse)
            again.emit(out, out, i.shape.dtype)
    e.finish()


class _Pass:
    """Transforms of length ``n`` along one dimension, from rows of one shape to rows of another.

    Rows that are shorter than ``n`` in the result keep their beginning (a real transform's half); ``half_in`` says
    that the operand's rows are such halves, completed by conjugates.
    """

    def __init__(
        self,
        e: CpuEmitter,
        source: tuple[int, ...],
        target: tuple[int, ...],
        dim: int,
        n: int,
        lanes: int,
        *,
        inverse: bool,
        half_in: bool = False,
    ) -> None:
        self.e = e
        self.b: ir.IRBuilder = e.entry.builder
        self.source = Rows(source, dim)
        self.target = Rows(target, dim)
        self.n = n
        self.lanes = lanes
        self.inverse = inverse
        self.half_in = half_in

    def emit(self, source: ir.Value, target: ir.Value, dtype: DType, result: DType | None = None) -> None:
        result = result or dtype
        b = self.b
        transform = Transform(b, self.n, self.lanes, inverse=self.inverse)
        work = [allocate(self.e, transform.row_bytes) for _ in range(2)]
        with nest(b, [self.source.outer, self.source.stride]) as (outer, inner):
            base = self.source.base(b, outer, inner)
            start = self.target.base(b, outer, inner)

            def read(k: ir.Value, lanes: int) -> None:
                transform.begin(work[0], k, self._read(source, base, k, dtype, lanes), lanes)

            def write(k: ir.Value, lanes: int) -> None:
                self._write(transform.finish(done, k, lanes), target, self.target.at(b, start, k), result, lanes)

            self._loop(self.n, not self.half_in and self.source.stride == 1, read)
            done = transform.run(work[0], work[1])
            self._loop(self.target.length, self.target.stride == 1, write)
        release(self.e, work)

    def _loop(self, size: int, contiguous: bool, body: Callable[[ir.Value, int], None]) -> None:
        """``body(k, lanes)`` over ``size`` elements, in vectors where they follow one another."""
        whole = size - size % self.lanes if contiguous else 0
        if whole:
            with for_range(self.b, 0, whole, self.lanes) as k:
                body(k, self.lanes)
        if whole < size:
            with for_range(self.b, whole, size) as k:
                body(k, 1)

    def _read(
        self, source: ir.Value, base: ir.Value, k: ir.Value, dtype: DType, lanes: int
    ) -> tuple[ir.Value, ir.Value]:
        b = self.b
        place, mirrored = k, None
        if self.half_in:
            mirrored = b.icmp_signed(">=", k, constant(I64, self.source.length))
            place = b.select(mirrored, b.sub(constant(I64, self.n), k), k)
        parts = memory.load(b, source, self.source.at(b, base, place), dtype, lanes)
        part = DTYPES["f32" if dtype.name in ("c64", "f32") else "f64"]
        wide = [convert(b, p, part, DTYPES["f64"]) for p in parts]
        imaginary = wide[1] if len(wide) == 2 else constant(with_lanes(F64, lanes), 0.0)
        if mirrored is not None:
            imaginary = b.select(mirrored, b.fneg(imaginary), imaginary)
        return wide[0], imaginary

    def _write(
        self, value: tuple[ir.Value, ir.Value], target: ir.Value, at: ir.Value, result: DType, lanes: int
    ) -> None:
        b = self.b
        if self.inverse:
            by = splat(b, constant(F64, 1 / self.n), lanes)
            value = (b.fmul(value[0], by), b.fmul(value[1], by))
        parts = value if result.is_complex else value[:1]
        kind = DTYPES["f32" if result.name in ("c64", "f32") else "f64"]
        narrow = tuple(convert(b, p, DTYPES["f64"], kind) for p in parts)
        memory.store(b, narrow, target, at, result, None)
