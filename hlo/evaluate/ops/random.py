"""NumPy meaning: random numbers. The bits of ThreeFry and Philox, and the state they leave, are exactly XLA's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.evaluate.interpreter import Interpreter, OpMeaning
from shardc.hlo.evaluate.values import Array, Value, wrap_bits
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.random_words import halved_dimension
from shardc.hlo.transforms.expand_random import expand_rng, expand_state

__all__ = ["ROWS", "philox4x32", "threefry2x32"]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def _halves(x: Array) -> tuple[Array, Array]:
    """Low and high 32 bits of u64 values."""
    return (x & _LOW).astype(np.uint32), (x >> _HALF).astype(np.uint32)


def _join_words(low: Array, high: Array) -> Array:
    return np.asarray(low.astype(np.uint64) | (high.astype(np.uint64) << _HALF))


def threefry2x32(key: tuple[Array, Array], counter: tuple[Array, Array]) -> tuple[Array, Array]:
    """Twenty rounds of ThreeFry on pairs of u32."""
    keys = (*key, key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << np.uint32(distance)) | (y >> np.uint32(32 - distance))) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def philox4x32(key: tuple[Array, Array], counter: Sequence[Array]) -> tuple[Array, Array, Array, Array]:
    """Ten rounds of Philox on quadruples of u32."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        first_low, first_high = _halves(a.astype(np.uint64) * np.uint64(0xD2511F53))
        second_low, second_high = _halves(c.astype(np.uint64) * np.uint64(0xCD9E8D57))
        a, b, c, d = second_high ^ b ^ k0, second_low, first_high ^ d ^ k1, first_low
        k0, k1 = k0 + np.uint32(0x9E3779B9), k1 + np.uint32(0xBB67AE85)
    return a, b, c, d


def _threefry_bits(state: Array, dims: tuple[int, ...], wide: bool) -> tuple[Array, Array]:
    """(new state, bits): u64 when ``wide``, else u32 values whose two words lie next to each other."""
    key, start = _halves(state[0]), state[1]
    half = list(dims)
    if not wide:
        half = half or [1]
        split = halved_dimension(half)
        half[split] = -(-half[split] // 2)
    count = math.prod(half)
    counter = _halves(np.arange(count, dtype=np.uint64).reshape(half) + start)
    words = threefry2x32(key, counter)
    after = np.array([state[0], start + np.uint64(count)], np.uint64)
    if wide:
        return after, _join_words(*words)
    if not dims:
        return after, words[0].reshape(())
    both = np.stack(words, axis=split + 1)
    both = both.reshape([2 * n if d == split else n for d, n in enumerate(half)])
    return after, both[tuple(slice(0, n) for n in dims)]


def _philox_bits(state: Array, dims: tuple[int, ...], wide: bool) -> tuple[Array, Array]:
    """(new state, bits): a 128-bit counter makes four words at a time; two words are one u64."""
    key, low = _halves(state[0]), state[1]
    # A state of two words has no room for the counter's upper half: the key stands in for it.
    high = state[2] if len(state) > 2 else state[0]
    count = math.prod(dims) * (2 if wide else 1)
    blocks = -(-count // 4)
    lows = np.arange(blocks, dtype=np.uint64) + low
    highs = high + (lows < low).astype(np.uint64)
    words = philox4x32(key, (*_halves(lows), *_halves(highs)))
    flat = np.stack(words, axis=1).reshape(-1)[:count]
    end = low + np.uint64(blocks)
    after = np.array([state[0], end, high + np.uint64(end < low)][: len(state)], np.uint64)
    if wide:
        flat = _join_words(flat[0::2], flat[1::2])
    return after, flat.reshape(dims)


def _rng_bit_generator(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    state_shape, shape = i.shape.elements
    state = np.ascontiguousarray(operands[0]).view(np.uint64)
    if shape.dtype.is_float:
        raise UnsupportedError(
            "random bits cannot have a float type", where=f"%{i.name}", fix="draw integers and convert"
        )
    wide = shape.dtype.bits == 64
    generate = _threefry_bits if i.attrs["algorithm"] == "rng_three_fry" else _philox_bits
    after, bits = generate(state, shape.dims, wide)
    if not wide:
        bits = bits.astype(f"u{shape.dtype.numpy.itemsize}")
    values = wrap_bits(bits, shape.dtype) if shape.dtype.bits < 8 else bits.view(shape.dtype.numpy)
    return after.view(state_shape.dtype.numpy), values


def _evaluate_expansion(
    expand: Callable[[Instruction], Computation],
) -> Callable[[Interpreter, Instruction, Sequence[Value]], Value]:
    """The meaning of an op that is a program of others."""

    def meaning(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
        key = ("expanded", i)
        if key not in m.memo:
            m.memo[key] = expand(i)
        return m.run_one(m.memo[key], operands)

    return meaning


ROWS: Mapping[str, OpMeaning] = {
    "rng": OpMeaning(_evaluate_expansion(expand_rng)),
    "rng-bit-generator": OpMeaning(_rng_bit_generator),
    "rng-get-and-update-state": OpMeaning(_evaluate_expansion(expand_state)),
}
