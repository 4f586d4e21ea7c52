"""What ``rng`` and ``rng-get-and-update-state`` mean: HLO leaves their numbers open, here they are ThreeFry's.

The key is a digest of the instruction's name, so different instructions draw different numbers, every run draws the
same ones, and evaluator and compiled code agree. An instruction in a loop draws the same numbers each time round:
programs that need more use ``rng-bit-generator``, whose state is theirs.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.operations import Operations
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape

__all__ = ["expand_rng", "expand_state"]


def _state(p: Operations, i: Instruction) -> Instruction:
    digest = hashlib.sha256(i.name.encode()).digest()
    return p.b.constant(np.array([int.from_bytes(digest[:8], "little"), 0], np.uint64))


def expand_state(i: Instruction) -> Computation:
    """The state that every run finds; what the instruction adds to it nobody reads again."""
    p = Operations(i)
    return p.build(_state(p, i))


def expand_rng(i: Instruction) -> Computation:
    """Uniform numbers in [a, b), or normal ones of mean a and deviation b. `UnsupportedError` for complex types."""
    p = Operations(i)
    low, high = p.parameters
    dtype = i.shape.dtype
    if dtype.is_complex:
        raise UnsupportedError(
            f"rng of {dtype} is not supported", where=f"%{i.name}", fix="draw the two parts and combine them"
        )
    if i.attrs["distribution"] == "rng_normal":
        return p.build(_normal(p, i, low, high))
    if dtype.is_float:
        return p.build(_uniform(p, i, low, high))
    return p.build(_integers(p, i, low, high))


def _bits(p: Operations, i: Instruction, dtype: str, dims: tuple[int, ...]) -> Instruction:
    state = _state(p, i)
    shape = tuple_shape(state.shape, array_shape(dtype, *dims))
    return p.element(p.op("rng-bit-generator", state, shape=shape, algorithm="rng_three_fry"), 1)


def _fractions(p: Operations, i: Instruction, dims: tuple[int, ...]) -> Instruction:
    """Multiples of 2^-24 (2^-53 for f64) in [0, 1)."""
    wide = i.shape.dtype.bits == 64
    bits = _bits(p, i, "u64" if wide else "u32", dims)
    bits = p.op("shift-right-logical", bits, p.full(11 if wide else 8, bits.shape))
    x = p.convert(bits, "f64" if wide else "f32")
    return p.op("multiply", x, p.full(2.0**-53 if wide else 2.0**-24, x.shape))


def _spread(p: Operations, x: Instruction, like: Shape) -> Instruction:
    return p.spread(p.convert(x, like.dtype.name), like.dims)


def _uniform(p: Operations, i: Instruction, low: Instruction, high: Instruction) -> Instruction:
    """``low`` also where rounding to a narrow type would reach ``high``."""
    u = _fractions(p, i, i.shape.dims)
    a, b = _spread(p, low, u.shape), _spread(p, high, u.shape)
    x = p.convert(p.op("add", a, p.op("multiply", u, p.op("subtract", b, a))), i.shape.dtype.name)
    least, past = p.spread(low, i.shape.dims), p.spread(high, i.shape.dims)
    return p.op("select", p.compare("LT", x, past), x, least)


def _normal(p: Operations, i: Instruction, mean: Instruction, deviation: Instruction) -> Instruction:
    """Box and Muller: a radius and an angle from two uniform numbers."""
    u = _fractions(p, i, (2, *i.shape.dims))
    whole = tuple((0, n, 1) for n in i.shape.dims)
    radius, angle = (p.reshape(p.op("slice", u, slice=((k, k + 1, 1), *whole)), i.shape.dims) for k in (0, 1))
    above_zero = p.op("subtract", p.full(1.0, radius.shape), radius)
    size = p.op("sqrt", p.op("multiply", p.full(-2.0, radius.shape), p.op("log", above_zero)))
    z = p.op("multiply", size, p.op("cosine", p.op("multiply", angle, p.full(2 * math.pi, angle.shape))))
    scaled = p.op("multiply", z, _spread(p, deviation, z.shape))
    return p.convert(p.op("add", _spread(p, mean, z.shape), scaled), i.shape.dtype.name)


def _integers(p: Operations, i: Instruction, low: Instruction, high: Instruction) -> Instruction:
    bits = _bits(p, i, "u64", i.shape.dims)
    if i.shape.dtype.kind == "pred":
        return p.compare("GE", bits, p.full(1 << 63, bits.shape))
    wide = "s64" if i.shape.dtype.kind == "signed" else "u64"
    first, past = (p.convert(p.convert(x, wide), "u64") for x in (low, high))
    size = p.spread(p.op("subtract", past, first), i.shape.dims)
    offset = p.op("remainder", bits, size)
    return p.convert(p.op("add", p.spread(first, i.shape.dims), offset), i.shape.dtype.name)
