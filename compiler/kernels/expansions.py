"""Ops that are short programs of simpler ops: expanded to a computation, which then compiles like a fusion.

Random bits (exactly XLA's), batch normalisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from shardc.hlo.build import Builder, binary_computation
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir import Computation, Instruction
from shardc.hlo.types import Shape, array_shape

__all__ = ["EXPANSIONS"]


class _Program:
    """A `Builder` with elementwise operators over one shape."""

    def __init__(self, instruction: Instruction) -> None:
        self.b = Builder("expanded")
        self.parameters = [self.b.parameter(o.shape) for o in instruction.operands]

    def op(self, opcode: str, *operands: Instruction, **fields: Any) -> Instruction:
        return self.b.add(opcode, *operands, **fields)

    def full(self, value: Any, like: Shape) -> Instruction:
        return self.b.constant(value, like.dtype, like.dims)

    def spread(self, x: Instruction, dims: tuple[int, ...], at: tuple[int, ...] = ()) -> Instruction:
        return self.op("broadcast", x, shape=array_shape(x.shape.dtype, *dims), dimensions=at)

    def convert(self, x: Instruction, dtype: str) -> Instruction:
        return self.op("convert", x, shape=x.shape.plain.with_dtype(dtype))

    def element(self, x: Instruction, k: int) -> Instruction:
        """Element k of a vector as a scalar."""
        part = self.op("slice", x, slice=((k, k + 1, 1),))
        return self.op("reshape", part, shape=array_shape(x.shape.dtype))

    def done(self, *results: Instruction) -> Computation:
        return self.b.build(results[0] if len(results) == 1 else self.op("tuple", *results))

    # 32-bit words in u32 arrays of one shape.

    def const(self, x: Instruction, value: int) -> Instruction:
        return self.full(value, x.shape)

    def rotate(self, x: Instruction, distance: int) -> Instruction:
        left = self.op("shift-left", x, self.const(x, distance))
        return self.op("or", left, self.op("shift-right-logical", x, self.const(x, 32 - distance)))

    def low(self, x: Instruction) -> Instruction:
        return self.convert(x, "u32")

    def high(self, x: Instruction) -> Instruction:
        return self.convert(self.op("shift-right-logical", x, self.const(x, 32)), "u32")

    def join(self, low: Instruction, high: Instruction) -> Instruction:
        wide = self.convert(high, "u64")
        return self.op("or", self.convert(low, "u64"), self.op("shift-left", wide, self.const(wide, 32)))


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(p: _Program, key: tuple[Instruction, Instruction], x: Instruction, y: Instruction) -> Any:
    third = p.op("xor", p.op("xor", *key), p.const(key[0], 0x1BD11BDA))
    keys = (*key, third)
    x, y = p.op("add", x, keys[0]), p.op("add", y, keys[1])
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x = p.op("add", x, y)
            y = p.op("xor", p.rotate(y, distance), x)
        x = p.op("add", x, keys[(group + 1) % 3])
        y = p.op("add", p.op("add", y, keys[(group + 2) % 3]), p.const(y, group + 1))
    return x, y


def _philox(p: _Program, key: tuple[Instruction, Instruction], words: list[Instruction]) -> list[Instruction]:
    a, b, c, d = words
    first, second = key
    for _ in range(10):
        x = _wide_product(p, a, 0xD2511F53)
        y = _wide_product(p, c, 0xCD9E8D57)
        a, b = p.op("xor", p.op("xor", p.high(y), b), first), p.low(y)
        c, d = p.op("xor", p.op("xor", p.high(x), d), second), p.low(x)
        first = p.op("add", first, p.const(first, 0x9E3779B9))
        second = p.op("add", second, p.const(second, 0xBB67AE85))
    return [a, b, c, d]


def _wide_product(p: _Program, x: Instruction, factor: int) -> Instruction:
    wide = p.convert(x, "u64")
    return p.op("multiply", wide, p.const(wide, factor))


def _positions(p: _Program, dims: tuple[int, ...], sizes: tuple[int, ...], halved: int | None = None) -> Instruction:
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
    p = _Program(i)
    state_shape, shape = i.shape.elements
    if shape.dtype.is_float or shape.dtype.bits not in (8, 16, 32, 64):
        raise UnsupportedError(f"random bits of type {shape.dtype}", where=f"%{i.name}", fix="draw u32 and convert")
    state = p.parameters[0]
    if state_shape.dtype.name != "u64":
        state = p.op("bitcast-convert", state, shape=array_shape("u64", *state_shape.dims))
    words = [p.element(state, k) for k in range(state_shape.size)]
    make = _threefry_bits if i.attrs["algorithm"] == "rng_three_fry" else _philox_bits
    after, bits = make(p, words, shape)
    vector = [p.op("broadcast", w, shape=array_shape("u64", 1), dimensions=()) for w in after]
    state = p.op("concatenate", *vector, dimensions=(0,)) if len(vector) > 1 else vector[0]
    if state_shape.dtype.name != "u64":
        state = p.op("bitcast-convert", state, shape=state_shape.plain)
    if bits.shape.dtype is not shape.dtype:
        bits = p.convert(bits, shape.dtype.name)
    return p.done(state, bits)


def _threefry_bits(p: _Program, state: list[Instruction], shape: Shape) -> tuple[list[Instruction], Instruction]:
    dims, wide = shape.dims, shape.dtype.bits == 64
    half = list(dims)
    split = None
    if not wide and dims:
        even = [d for d, n in enumerate(dims) if n % 2 == 0]
        split = even[0] if even else max(range(len(dims)), key=lambda d: (dims[d], -d))
        half[split] = -(-half[split] // 2)
    count = math.prod(half)
    counter = p.op("add", _positions(p, dims, tuple(half), split), p.spread(state[1], dims))
    key = (p.spread(p.low(state[0]), dims), p.spread(p.high(state[0]), dims))
    x, y = _threefry(p, key, p.low(counter), p.high(counter))
    after = [state[0], p.op("add", state[1], p.const(state[1], count))]
    if wide:
        return after, p.join(x, y)
    if split is None:
        return after, x
    iota = p.op("iota", shape=array_shape("u32", *dims), iota_dimension=split)
    odd = p.op("and", iota, p.const(iota, 1))
    second = p.op("compare", odd, p.const(odd, 1), direction="EQ")
    return after, p.op("select", second, y, x)


def _philox_bits(p: _Program, state: list[Instruction], shape: Shape) -> tuple[list[Instruction], Instruction]:
    dims, wide = shape.dims, shape.dtype.bits == 64
    blocks = -(-shape.size * (2 if wide else 1) // 4)
    words_each = 2 if wide else 4
    position = _positions(p, dims, dims)
    block = p.op("shift-right-logical", position, p.const(position, 1 if wide else 2))
    low0 = p.spread(state[1], dims)
    high = state[2] if len(state) > 2 else state[0]
    low = p.op("add", block, low0)
    carry = p.convert(p.op("compare", low, low0, direction="LT"), "u64")
    top = p.op("add", p.spread(high, dims), carry)
    key = (p.spread(p.low(state[0]), dims), p.spread(p.high(state[0]), dims))
    words = _philox(p, key, [p.low(low), p.high(low), p.low(top), p.high(top)])
    lane = p.convert(p.op("and", position, p.const(position, words_each - 1)), "u32")
    choices = [p.join(words[0], words[1]), p.join(words[2], words[3])] if wide else words
    bits = choices[-1]
    for k in range(len(choices) - 2, -1, -1):
        bits = p.op("select", p.op("compare", lane, p.const(lane, k), direction="EQ"), choices[k], bits)
    end = p.op("add", state[1], p.const(state[1], blocks))
    over = p.convert(p.op("compare", end, state[1], direction="LT"), "u64")
    return [state[0], end, p.op("add", high, over)][: len(state)], bits


def _statistics(p: _Program, x: Instruction, feature: int) -> tuple[Instruction, Instruction]:
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
    p: _Program, i: Instruction, x: Instruction, mean: Instruction, variance: Instruction
) -> tuple[Instruction, Instruction]:
    """(x - mean) / sqrt(variance + epsilon), and the reciprocal root."""
    feature = i.attrs["feature_index"]
    root = p.op("rsqrt", p.op("add", variance, p.full(i.attrs["epsilon"], variance.shape)))
    centred = p.op("subtract", x, p.spread(mean, x.shape.dims, (feature,)))
    return p.op("multiply", centred, p.spread(root, x.shape.dims, (feature,))), root


def _in_f32(p: _Program) -> list[Instruction]:
    return [p.convert(x, "f32") if x.shape.dtype.bits < 32 else x for x in p.parameters]


def _out(p: _Program, shape: Shape, *values: Instruction) -> Computation:
    kinds = [s.dtype for s in shape.leaves()]
    return p.done(*(v if v.shape.dtype is k else p.convert(v, k.name) for v, k in zip(values, kinds, strict=True)))


def _batch_norm_inference(i: Instruction) -> Computation:
    p = _Program(i)
    x, scale, offset, mean, variance = _in_f32(p)
    return _out(p, i.shape, _scaled(p, i, _normalised(p, i, x, mean, variance)[0], scale, offset))


def _scaled(p: _Program, i: Instruction, y: Instruction, scale: Instruction, offset: Instruction) -> Instruction:
    at = (i.attrs["feature_index"],)
    return p.op("add", p.op("multiply", y, p.spread(scale, y.shape.dims, at)), p.spread(offset, y.shape.dims, at))


def _batch_norm_training(i: Instruction) -> Computation:
    p = _Program(i)
    x, scale, offset = _in_f32(p)
    mean, variance = _statistics(p, x, i.attrs["feature_index"])
    return _out(p, i.shape, _scaled(p, i, _normalised(p, i, x, mean, variance)[0], scale, offset), mean, variance)


def _batch_norm_grad(i: Instruction) -> Computation:
    p = _Program(i)
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
