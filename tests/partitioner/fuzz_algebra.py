"""Steps of a growing program from linear algebra, over values that keep everything exact: transforms, factors, ranks.

A transform there and back is rounded to the integers that it must give. Factors are integers by construction, so
that square roots and divisions on the way are exact.
"""

from __future__ import annotations

import numpy as np
from fuzz_grow import Grown

from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import array_shape

__all__ = ["cholesky", "circular_convolution", "top_k", "transform", "triangular_solve"]


def transform(g: Grown, x: Instruction) -> None:
    """A transform over the last dimensions and back."""
    if not x.shape.rank:
        return
    rank = g.r.randint(1, min(3, x.shape.rank))
    lengths = x.shape.dims[-rank:]
    if g.r.random() < 0.5:
        there = g.b.add("fft", x, fft_type="RFFT", fft_length=lengths)
        back = g.b.add("fft", there, fft_type="IRFFT", fft_length=lengths)
    else:
        there = g.b.add("fft", g.b.add("complex", x, g.like(x)), fft_type="FFT", fft_length=lengths)
        part = g.r.choice(["real", "imag"])
        back = g.b.add(part, g.b.add("fft", there, fft_type="IFFT", fft_length=lengths))
    g.keep(g.b.add("round-nearest-even", back), 64)


def circular_convolution(g: Grown, x: Instruction) -> None:
    """The product of two transforms, as spectral solvers have it."""
    y = g.like(x)
    bound = g.bound(x) * g.bound(y) * x.shape.size
    if not x.shape.rank or bound > 50_000:
        return
    rank = g.r.randint(1, min(2, x.shape.rank))
    lengths = x.shape.dims[-rank:]
    spectra = [g.b.add("fft", v, fft_type="RFFT", fft_length=lengths) for v in (x, y)]
    back = g.b.add("fft", g.b.add("multiply", *spectra), fft_type="IRFFT", fft_length=lengths)
    g.keep(g.b.add("round-nearest-even", back), bound)


def _triangle(g: Grown, x: Instruction, *, low: float, high: float, lower: bool) -> Instruction:
    """Square matrices of small integers from ``x``, zero beyond the diagonal, positive on it."""
    n = x.shape.dims[-1]
    rank = x.shape.rank
    index = array_shape("s32", *x.shape.dims)
    row, column = (g.b.add("iota", shape=index, iota_dimension=d) for d in (rank - 2, rank - 1))
    inside = g.b.add("compare", row, column, direction="GT" if lower else "LT")
    diagonal = g.b.add("compare", row, column, direction="EQ")
    limits = [g.b.constant(v, "f32") for v in (low, high)]
    small = g.b.add("clamp", limits[0], x, limits[1])
    one = g.b.constant(1.0, "f32", x.shape.dims)
    positive = g.b.add("add", g.b.add("abs", small), one)
    zero = g.b.constant(0.0, "f32", x.shape.dims)
    assert x.shape.dims[-2:] == (n, n)
    return g.b.add("select", diagonal, positive, g.b.add("select", inside, small, zero))


def _square(g: Grown, x: Instruction) -> Instruction:
    """``x``, or another value of its batch dimensions, with square matrices."""
    if x.shape.rank >= 2 and x.shape.dims[-1] == x.shape.dims[-2]:
        return x
    n = g.r.choice([2, 3, 4, 6])
    return g.fresh((*x.shape.dims[: max(0, x.shape.rank - 2)], n, n))


def cholesky(g: Grown, x: Instruction) -> None:
    """The factor of L L^T, for an L of integers."""
    lower = g.r.random() < 0.5
    factor = _triangle(g, _square(g, x), low=-3.0, high=3.0, lower=True)
    batch = tuple(range(factor.shape.rank - 2))
    last = factor.shape.rank - 1
    whole = g.b.add(
        "dot", factor, factor, lhs_batch_dims=batch, rhs_batch_dims=batch, lhs_contracting_dims=(last,),
        rhs_contracting_dims=(last,),
    )  # fmt: skip
    made = g.b.add("cholesky", whole, lower=lower)
    # What is beyond the diagonal is anybody's.
    index = array_shape("s32", *made.shape.dims)
    row, column = (g.b.add("iota", shape=index, iota_dimension=d) for d in (last - 1, last))
    inside = g.b.add("compare", row, column, direction="GE" if lower else "LE")
    g.keep(g.b.add("select", inside, made, g.b.constant(0.0, "f32", made.shape.dims)), 4)


def triangular_solve(g: Grown, x: Instruction) -> None:
    """With a unit diagonal, integers stay integers."""
    lower, left = g.r.random() < 0.5, g.r.random() < 0.5
    a = _triangle(g, _square(g, x), low=-1.0, high=1.0, lower=lower)
    n, batch = a.shape.dims[-1], a.shape.dims[:-2]
    columns = g.r.choice([1, 2, 3, 4, 8])
    b = g.fresh((*batch, n, columns) if left else (*batch, columns, n))
    made = g.b.add(
        "triangular-solve", a, b, left_side=left, lower=lower, unit_diagonal=True,
        transpose_a=g.r.choice(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]),
    )  # fmt: skip
    g.keep(made, g.bound(b) * 2.0**n)


def top_k(g: Grown, x: Instruction) -> None:
    """The largest values of a line, and where they are (ties in order)."""
    if not x.shape.rank:
        return
    k = g.part_of(x.shape.dims[-1])
    both = g.b.add("topk", x, k=k, largest=g.r.random() < 0.7)
    g.keep(g.b.add("get-tuple-element", both, index=0), g.bound(x))
    where = g.b.add("get-tuple-element", both, index=1)
    total = g.b.add(
        "reduce", where, g.b.constant(0, "s32"), dimensions=(x.shape.rank - 1,),
        to_apply=binary_computation("add", "s32"),
    )  # fmt: skip
    g.keep(
        g.b.add("convert", total, shape=array_shape("f32", *total.shape.dims)), float(np.prod(x.shape.dims[-1:]) ** 2)
    )
