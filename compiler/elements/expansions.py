"""Ops that are short programs of simpler ops: expanded to a computation, which then compiles like a fusion.

Random bits by Threefry and Philox (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), exactly
XLA's; batch normalisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.operations import Operations
from shardc.hlo.ir.random_words import (
    advance_state,
    halved_dimension,
    high,
    join_halves,
    low,
    philox,
    state_words,
    threefry,
)
from shardc.hlo.ir.types import Shape, array_shape
from shardc.hlo.transforms.expand_batch_norm import expand_batch_norm

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
        raise UnsupportedError(
            f"random bits of type {shape.dtype} are not supported", where=f"%{i.name}", fix="draw u32 and convert"
        )
    words = state_words(p, p.parameters[0])
    bits = (_threefry_bits if i.attrs["algorithm"] == "rng_three_fry" else _philox_bits)(p, words, shape)
    return p.build(advance_state(p, i, words), p.convert(bits, shape.dtype.name))


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
        return join_halves(p, x, y)
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
    choices = [join_halves(p, words[0], words[1]), join_halves(p, words[2], words[3])] if wide else words
    bits = choices[-1]
    for k in range(len(choices) - 2, -1, -1):
        bits = p.op("select", p.compare("EQ", lane, p.full(k, lane.shape)), choices[k], bits)
    return bits


EXPANSIONS: Mapping[str, Callable[[Instruction], Computation]] = MappingProxyType(
    {
        "rng-bit-generator": _rng_bit_generator,
        **dict.fromkeys(("batch-norm-inference", "batch-norm-training", "batch-norm-grad"), expand_batch_norm),
    }
)
