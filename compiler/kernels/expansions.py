"""Ops that are short programs of simpler ops: expanded to a computation, which then compiles like a fusion.

Random bits (exactly XLA's), batch normalisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from shardc.hlo.build import binary_computation
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir import Computation, Instruction
from shardc.hlo.operations import Operations
from shardc.hlo.random_words import advanced, halved_dimension, high, joined, low, philox, state_words, threefry
from shardc.hlo.types import Shape, array_shape

__all__ = ["EXPANSIONS"]


def _positions(p: Operations, dims: tuple[int, ...], sizes: tuple[int, ...], halved: int | None = None) -> Instruction:
    """Row-major positions (u64) in an array of ``sizes``, for every index of ``dims``; ``halved`` counts in pairs."""
    shape = array_shape("u64", *dims)
    total = p.full(0, shape)
    for d in range(len(dims)):
        step = math.prod(sizes[d + 1 :])
        x = p.op("iota", shape=shape, iota_dimension=d)
        if d == halved:
            x = p.op("shift-right-logical", x, p.full(1, shape))
        total = p.op("add", total, p.op("multiply", x, p.full(step, shape)))
    return total


def _rng_bit_generator(i: Instruction) -> Computation:
    p = Operations(i)
    shape = i.shape.elements[1]
    if shape.dtype.is_float or shape.dtype.bits not in (8, 16, 32, 64):
        raise UnsupportedError(f"random bits of type {shape.dtype}", where=f"%{i.name}", fix="draw u32 and convert")
    words = state_words(p, p.parameters[0])
    bits = (_threefry_bits if i.attrs["algorithm"] == "rng_three_fry" else _philox_bits)(p, words, shape)
    return p.done(advanced(p, i, words), p.convert(bits, shape.dtype.name))


def _key(p: Operations, state: Instruction, dims: tuple[int, ...]) -> tuple[Instruction, Instruction]:
    return p.spread(low(p, state), dims), p.spread(high(p, state), dims)


def _threefry_bits(p: Operations, state: list[Instruction], shape: Shape) -> Instruction:
    dims, wide = shape.dims, shape.dtype.bits == 64
    half = list(dims)
    split = None
    if not wide and dims:
        split = halved_dimension(dims)
        half[split] = -(-half[split] // 2)
    counter = p.op("add", _positions(p, dims, tuple(half), split), p.spread(state[1], dims))
    x, y = threefry(p, _key(p, state[0], dims), low(p, counter), high(p, counter))
    if wide:
        return joined(p, x, y)
    if split is None:
        return x
    iota = p.iota("u32", dims, split)
    odd = p.op("and", iota, p.full(1, iota.shape))
    return p.op("select", p.compare("EQ", odd, p.full(1, odd.shape)), y, x)


def _philox_bits(p: Operations, state: list[Instruction], shape: Shape) -> Instruction:
    dims, wide = shape.dims, shape.dtype.bits == 64
    position = _positions(p, dims, dims)
    block = p.op("shift-right-logical", position, p.full(1 if wide else 2, position.shape))
    start = p.spread(state[1], dims)
    lower = p.op("add", block, start)
    carry = p.convert(p.compare("LT", lower, start), "u64")
    # A state of two words has no room for the counter's upper half: the key stands in for it.
    upper = p.op("add", p.spread(state[2] if len(state) > 2 else state[0], dims), carry)
    words = philox(p, _key(p, state[0], dims), (lower, upper))
    lane = p.convert(p.op("and", position, p.full(1 if wide else 3, position.shape)), "u32")
    choices = [joined(p, words[0], words[1]), joined(p, words[2], words[3])] if wide else words
    bits = choices[-1]
    for k in range(len(choices) - 2, -1, -1):
        bits = p.op("select", p.compare("EQ", lane, p.full(k, lane.shape)), choices[k], bits)
    return bits


def _statistics(p: Operations, x: Instruction, feature: int) -> tuple[Instruction, Instruction]:
    """Mean and variance of ``x`` over all dimensions but one."""
    dims = tuple(d for d in range(x.shape.rank) if d != feature)
    count = math.prod(x.shape.dims[d] for d in dims)
    kind = x.shape.dtype
    zero = p.b.constant(0.0, kind)
    add = binary_computation("add", kind)
    shape = array_shape(kind, x.shape.dims[feature])
    mean = p.op("divide", p.op("reduce", x, zero, dimensions=dims, to_apply=add), p.full(count, shape))
    centred = p.op("subtract", x, p.spread(mean, x.shape.dims, (feature,)))
    squares = p.op("reduce", p.op("multiply", centred, centred), zero, dimensions=dims, to_apply=add)
    return mean, p.op("divide", squares, p.full(count, shape))


def _normalised(
    p: Operations, i: Instruction, x: Instruction, mean: Instruction, variance: Instruction
) -> tuple[Instruction, Instruction]:
    """(x - mean) / sqrt(variance + epsilon), and the reciprocal root."""
    feature = i.attrs["feature_index"]
    root = p.op("rsqrt", p.op("add", variance, p.full(i.attrs["epsilon"], variance.shape)))
    centred = p.op("subtract", x, p.spread(mean, x.shape.dims, (feature,)))
    return p.op("multiply", centred, p.spread(root, x.shape.dims, (feature,))), root


def _in_f32(p: Operations) -> list[Instruction]:
    return [p.convert(x, "f32") if x.shape.dtype.bits < 32 else x for x in p.parameters]


def _out(p: Operations, shape: Shape, *values: Instruction) -> Computation:
    kinds = [s.dtype for s in shape.leaves()]
    return p.done(*(v if v.shape.dtype is k else p.convert(v, k.name) for v, k in zip(values, kinds, strict=True)))


def _batch_norm_inference(i: Instruction) -> Computation:
    p = Operations(i)
    x, scale, offset, mean, variance = _in_f32(p)
    return _out(p, i.shape, _scaled(p, i, _normalised(p, i, x, mean, variance)[0], scale, offset))


def _scaled(p: Operations, i: Instruction, y: Instruction, scale: Instruction, offset: Instruction) -> Instruction:
    at = (i.attrs["feature_index"],)
    return p.op("add", p.op("multiply", y, p.spread(scale, y.shape.dims, at)), p.spread(offset, y.shape.dims, at))


def _batch_norm_training(i: Instruction) -> Computation:
    p = Operations(i)
    x, scale, offset = _in_f32(p)
    mean, variance = _statistics(p, x, i.attrs["feature_index"])
    return _out(p, i.shape, _scaled(p, i, _normalised(p, i, x, mean, variance)[0], scale, offset), mean, variance)


def _batch_norm_grad(i: Instruction) -> Computation:
    p = Operations(i)
    x, scale, mean, variance, gradient = _in_f32(p)
    feature = i.attrs["feature_index"]
    dims = tuple(d for d in range(x.shape.rank) if d != feature)
    count = math.prod(x.shape.dims[d] for d in dims)
    y, root = _normalised(p, i, x, mean, variance)
    zero, add = p.b.constant(0.0, x.shape.dtype), binary_computation("add", x.shape.dtype)
    scale_gradient = p.op("reduce", p.op("multiply", gradient, y), zero, dimensions=dims, to_apply=add)
    offset_gradient = p.op("reduce", gradient, zero, dimensions=dims, to_apply=add)

    def by(v: Instruction) -> Instruction:
        return p.spread(v, x.shape.dims, (feature,))

    def share(v: Instruction) -> Instruction:
        return by(p.op("divide", v, p.full(count, v.shape)))

    inner = p.op("subtract", gradient, share(offset_gradient))
    inner = p.op("subtract", inner, p.op("multiply", y, share(scale_gradient)))
    return _out(p, i.shape, p.op("multiply", by(p.op("multiply", scale, root)), inner), scale_gradient, offset_gradient)


EXPANSIONS: Mapping[str, Callable[[Instruction], Computation]] = MappingProxyType(
    {
        "rng-bit-generator": _rng_bit_generator,
        "batch-norm-inference": _batch_norm_inference,
        "batch-norm-training": _batch_norm_training,
        "batch-norm-grad": _batch_norm_grad,
    }
)
