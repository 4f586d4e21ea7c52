"""Discrete Fourier transforms of one row, of any length in n log n, in double precision with real parts apart.

Lengths of small prime factors take Stockham's autosorting form: a stage of radix p turns rows of length r = p m,
interleaved s-fold, into rows of length m, interleaved s p-fold:
``y[s (p i + q) + k] = w_r^(i q) sum_u x[s (i + m u) + k] w_p^(u q)``.
Other lengths take Bluestein's: with the chirp c_k = w_n^(k^2 / 2) the transform is ``c_j (x c * conj(c))_j``, and the
convolution goes through transforms of a power of two.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from shardc.compiler.elements import memory
from shardc.compiler.elements.control_flow import for_range
from shardc.hlo.ir.types import DTYPES
from shardc.native.math.vector import F64, I8, I64, constant, splat

__all__ = ["Transform", "roots"]

#: A complex value or a vector of them: real parts, imaginary parts.
Pair: TypeAlias = tuple[ir.Value, ir.Value]

_LARGEST_RADIX = 31
#: Tables of roots up to this length are whole; longer ones are products of two short tables.
_WHOLE_TABLE = 1 << 14
_REAL = DTYPES["f64"]


class Transform:
    """The transform of one row: `begin` writes its elements, `run` transforms, `finish` reads the result's."""

    def __init__(self, b: ir.IRBuilder, n: int, lanes: int, *, inverse: bool) -> None:
        self.b = b
        self.n = n
        self.lanes = lanes
        self.inverse = inverse
        factors = radices(n)
        self.chirped = bool(factors) and factors[-1] > _LARGEST_RADIX
        # A power of two, and a multiple of the lanes of any machine: chirped rows are longer than the largest radix.
        self.length = 1 << (2 * n - 2).bit_length() if self.chirped else n
        # Bluestein's inner transforms are forward ones.
        self.stages = _Stages(b, self.length, lanes, inverse=inverse and not self.chirped)
        if self.chirped:
            k = np.arange(n, dtype=np.int64)
            chirp = roots(2 * n, k * k % (2 * n), inverse=inverse)
            kernel = np.zeros(self.length, np.complex128)
            kernel[:n] = np.conj(chirp)
            kernel[self.length - n + 1 :] = np.conj(chirp[:0:-1])
            self.chirp = _split_constant(b.module, chirp)
            self.kernel = _split_constant(b.module, np.fft.fft(kernel) / self.length)

    @property
    def row_bytes(self) -> int:
        """Room that each of the two rows needs."""
        return self.length * 16

    def begin(self, row: ir.Value, k: ir.Value, value: Pair, lanes: int) -> None:
        """Element(s) ``k`` of the row to transform."""
        if self.chirped:
            value = product(self.b, value, self._constant(self.chirp, self.n, k, lanes))
        self.stages.store(row, k, value)

    def run(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Transform row ``x`` with the help of ``y``; where the result lies."""
        if not self.chirped:
            return self.stages.run(x, y)
        b, n, length = self.b, self.n, self.length
        with for_range(b, n, length) as k:
            zero = constant(F64, 0.0)
            self.stages.store(x, k, (zero, zero))
        done = self.stages.run(x, y)
        with for_range(b, 0, length, self.lanes) as k:
            value = self.stages.load(done, k, self.lanes)
            value = product(b, value, self._constant(self.kernel, length, k, self.lanes))
            self.stages.store(done, k, (value[0], b.fneg(value[1])))
        return self.stages.run(done, y if done is x else x)

    def finish(self, done: ir.Value, k: ir.Value, lanes: int) -> Pair:
        """Element(s) ``k`` of the result."""
        real, imaginary = self.stages.load(done, k, lanes)
        if not self.chirped:
            return real, imaginary
        # The inverse of the inner transform is the conjugate of the transform of the conjugate.
        return product(self.b, (real, self.b.fneg(imaginary)), self._constant(self.chirp, self.n, k, lanes))

    def _constant(self, table: ir.Value, n: int, k: ir.Value, lanes: int) -> Pair:
        b = self.b
        (real,) = memory.load(b, table, k, _REAL, lanes)
        (imaginary,) = memory.load(b, table, b.add(k, constant(I64, n)), _REAL, lanes)
        return real, imaginary


class _Stages:
    """Stockham's stages for one length, between two rows of n real parts followed by n imaginary parts."""

    def __init__(self, b: ir.IRBuilder, n: int, lanes: int, *, inverse: bool) -> None:
        self.b = b
        self.n = n
        self.lanes = lanes
        self.inverse = inverse
        self.radices = radices(n)
        self.step = 1 if n <= _WHOLE_TABLE else 1 << (n.bit_length() // 2)
        k = np.arange(-(-n // self.step), dtype=np.int64)
        self.coarse = _split_constant(b.module, roots(n, k * self.step, inverse=inverse))
        self.coarse_size = len(k)
        self.fine = _split_constant(b.module, roots(n, np.arange(self.step, dtype=np.int64), inverse=inverse))

    def load(self, row: ir.Value, k: ir.Value, lanes: int) -> Pair:
        (real,) = memory.load(self.b, row, k, _REAL, lanes)
        (imaginary,) = memory.load(self.b, row, self.b.add(k, constant(I64, self.n)), _REAL, lanes)
        return real, imaginary

    def store(self, row: ir.Value, k: ir.Value, value: Pair) -> None:
        memory.store(self.b, value[:1], row, k, _REAL, None)
        memory.store(self.b, value[1:], row, self.b.add(k, constant(I64, self.n)), _REAL, None)

    def run(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """All stages, back and forth between the rows; where the result lies."""
        rest, interleaved = self.n, 1
        for p in self.radices:
            self._stage(x, y, p, rest // p, interleaved)
            x, y = y, x
            rest, interleaved = rest // p, interleaved * p
        return x

    def _stage(self, x: ir.Value, y: ir.Value, p: int, m: int, s: int) -> None:
        b = self.b
        with for_range(b, 0, m) as i:
            # w_r^(i q) with r = p m = n / s.
            turns = [self._root(b.mul(i, constant(I64, q * s))) for q in range(1, p)] if m > 1 else []
            first = b.mul(i, constant(I64, s))
            target = b.mul(i, constant(I64, p * s))
            whole = s - s % self.lanes
            if whole:
                with for_range(b, 0, whole, self.lanes) as k:
                    self._column(x, y, p, m * s, s, b.add(first, k), b.add(target, k), turns, self.lanes)
            if whole < s:
                with for_range(b, whole, s) as k:
                    self._column(x, y, p, m * s, s, b.add(first, k), b.add(target, k), turns, 1)

    def _column(
        self,
        x: ir.Value,
        y: ir.Value,
        p: int,
        distance: int,
        s: int,
        source: ir.Value,
        target: ir.Value,
        turns: Sequence[Pair],
        lanes: int,
    ) -> None:
        b = self.b
        values = [self.load(x, b.add(source, constant(I64, u * distance)), lanes) for u in range(p)]
        for q, value in enumerate(butterfly(b, values, inverse=self.inverse)):
            if q and turns:
                real, imaginary = (splat(b, part, lanes) for part in turns[q - 1])
                value = product(b, value, (real, imaginary))
            self.store(y, b.add(target, constant(I64, q * s)), value)

    def _root(self, exponent: ir.Value) -> Pair:
        """The power of the n-th root of unity; exponents are below n."""
        b = self.b
        if self.step == 1:
            return self._entry(self.coarse, self.coarse_size, exponent)
        bits = constant(I64, self.step.bit_length() - 1)
        coarse = self._entry(self.coarse, self.coarse_size, b.lshr(exponent, bits))
        fine = self._entry(self.fine, self.step, b.and_(exponent, constant(I64, self.step - 1)))
        return product(b, coarse, fine)

    def _entry(self, table: ir.Value, size: int, k: ir.Value) -> Pair:
        b = self.b
        (real,) = memory.load(b, table, k, _REAL, 1)
        (imaginary,) = memory.load(b, table, b.add(k, constant(I64, size)), _REAL, 1)
        return real, imaginary


def product(b: ir.IRBuilder, x: Pair, y: Pair) -> Pair:
    real = b.fsub(b.fmul(x[0], y[0]), b.fmul(x[1], y[1]))
    return real, b.fadd(b.fmul(x[0], y[1]), b.fmul(x[1], y[0]))


def butterfly(b: ir.IRBuilder, x: Sequence[Pair], *, inverse: bool) -> list[Pair]:
    """The transform of a few values, written out."""
    if len(x) == 2:
        return [_add(b, x[0], x[1]), _subtract(b, x[0], x[1])]
    if len(x) == 4:
        a, c = _add(b, x[0], x[2]), _add(b, x[1], x[3])
        d, f = _subtract(b, x[0], x[2]), _quarter(b, _subtract(b, x[1], x[3]), inverse=inverse)
        return [_add(b, a, c), _add(b, d, f), _subtract(b, a, c), _subtract(b, d, f)]
    return _odd_butterfly(b, x, inverse=inverse)


def _odd_butterfly(b: ir.IRBuilder, x: Sequence[Pair], *, inverse: bool) -> list[Pair]:
    """Values j and p - j meet conjugate roots: their sum goes with the cosine, their difference with the sine."""
    p = len(x)
    half = range(1, (p + 1) // 2)
    sums = [_add(b, x[j], x[p - j]) for j in half]
    differences = [_quarter(b, _subtract(b, x[j], x[p - j]), inverse=inverse) for j in half]
    out: list[Pair] = [x[0]] * p
    total = x[0]
    for s in sums:
        total = _add(b, total, s)
    out[0] = total
    unit = roots(p, np.arange(p, dtype=np.int64), inverse=True)
    for q in half:
        even, odd = x[0], None
        for j, s, d in zip(half, sums, differences, strict=True):
            root = unit[j * q % p]
            even = _add(b, even, _scaled(b, s, root.real))
            part = _scaled(b, d, root.imag)
            odd = part if odd is None else _add(b, odd, part)
        assert odd is not None
        out[q], out[p - q] = _add(b, even, odd), _subtract(b, even, odd)
    return out


def _add(b: ir.IRBuilder, x: Pair, y: Pair) -> Pair:
    return b.fadd(x[0], y[0]), b.fadd(x[1], y[1])


def _subtract(b: ir.IRBuilder, x: Pair, y: Pair) -> Pair:
    return b.fsub(x[0], y[0]), b.fsub(x[1], y[1])


def _scaled(b: ir.IRBuilder, x: Pair, by: float) -> Pair:
    factor = constant(x[0].type, by)
    return b.fmul(x[0], factor), b.fmul(x[1], factor)


def _quarter(b: ir.IRBuilder, x: Pair, *, inverse: bool) -> Pair:
    """A quarter of a turn: times i for the inverse transform, times -i for the forward one."""
    return (b.fneg(x[1]), x[0]) if inverse else (x[1], b.fneg(x[0]))


def radices(n: int) -> list[int]:
    """Factors of n: fours, a two, odd primes upwards."""
    found = []
    while n % 4 == 0:
        found.append(4)
        n //= 4
    p = 2
    while n > 1:
        while n % p == 0:
            found.append(p)
            n //= p
        p = p + 1 if p * p <= n else max(n, p + 1)
    return found


def roots(n: int, exponents: NDArray[np.int64], *, inverse: bool) -> NDArray[np.complex128]:
    """exp(-2 pi i k / n) (conjugate for the inverse), each part to the last place: angles never exceed pi / 4."""
    eighths, rest = np.divmod(8 * (exponents % n), n)
    mirrored = eighths % 2 == 1
    angle = np.where(mirrored, n - rest, rest) * (math.pi / (4 * n))
    c, s = np.cos(angle), np.sin(angle)
    # Within each quarter turn the second eighth mirrors the first.
    quarter = eighths // 2
    first, second = np.where(mirrored, s, c), np.where(mirrored, c, s)
    real = np.choose(quarter, [first, -second, -first, second])
    imaginary = np.choose(quarter, [second, first, -second, -first])
    return np.asarray(real + 1j * imaginary if inverse else real - 1j * imaginary)


def _split_constant(module: ir.Module, values: NDArray[Any]) -> ir.Value:
    """A constant array: all real parts, then all imaginary parts."""
    data = np.concatenate([values.real, values.imag]).tobytes()
    name = "shardc.roots." + hashlib.sha256(data).hexdigest()[:24]
    place = module.globals.get(name)
    if place is None:
        t = ir.ArrayType(I8, len(data))
        place = ir.GlobalVariable(module, t, name)
        place.initializer = ir.Constant(t, bytearray(data))
        place.linkage, place.global_constant, place.align = "internal", True, 64
    return place
