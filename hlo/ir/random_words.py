"""ThreeFry and Philox in HLO: counters of 32-bit words become random words, element by element.

The generators are those of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11), with the numbers of
rounds that XLA uses. Words are u32 arrays of one shape, counters and states u64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.operations import Operations
from shardc.hlo.ir.types import array_shape

__all__ = ["advance_state", "halved_dimension", "high", "join_halves", "low", "philox", "state_words", "threefry"]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def low(p: Operations, x: Instruction) -> Instruction:
    """The lower 32 bits of u64 values."""
    return p.convert(x, "u32")


def high(p: Operations, x: Instruction) -> Instruction:
    """The upper 32 bits of u64 values."""
    return p.convert(p.op("shift-right-logical", x, p.full(32, x.shape)), "u32")


def join_halves(p: Operations, lower: Instruction, upper: Instruction) -> Instruction:
    """u64 values from their halves."""
    wide = p.convert(upper, "u64")
    return p.op("or", p.convert(lower, "u64"), p.op("shift-left", wide, p.full(32, wide.shape)))


def threefry(
    p: Operations, key: tuple[Instruction, Instruction], x: Instruction, y: Instruction
) -> tuple[Instruction, Instruction]:
    """Twenty rounds on pairs of words."""
    third = p.op("xor", p.op("xor", *key), p.full(0x1BD11BDA, key[0].shape))
    keys = (*key, third)
    x, y = p.op("add", x, keys[0]), p.op("add", y, keys[1])
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x = p.op("add", x, y)
            y = p.op("xor", _rotate(p, y, distance), x)
        x = p.op("add", x, keys[(group + 1) % 3])
        y = p.op("add", p.op("add", y, keys[(group + 2) % 3]), p.full(group + 1, y.shape))
    return x, y


def _rotate(p: Operations, x: Instruction, distance: int) -> Instruction:
    left = p.op("shift-left", x, p.full(distance, x.shape))
    return p.op("or", left, p.op("shift-right-logical", x, p.full(32 - distance, x.shape)))


def philox(
    p: Operations, key: tuple[Instruction, Instruction], counter: tuple[Instruction, Instruction]
) -> list[Instruction]:
    """Ten rounds on the four words of a counter of 128 bits, given as its lower and upper 64."""
    a, b, c, d = (half(p, x) for x in counter for half in (low, high))
    first, second = key
    for _ in range(10):
        x, y = _wide_product(p, a, 0xD2511F53), _wide_product(p, c, 0xCD9E8D57)
        a, b = p.op("xor", p.op("xor", high(p, y), b), first), low(p, y)
        c, d = p.op("xor", p.op("xor", high(p, x), d), second), low(p, x)
        first = p.op("add", first, p.full(0x9E3779B9, first.shape))
        second = p.op("add", second, p.full(0xBB67AE85, second.shape))
    return [a, b, c, d]


def _wide_product(p: Operations, x: Instruction, factor: int) -> Instruction:
    wide = p.convert(x, "u64")
    return p.op("multiply", wide, p.full(factor, wide.shape))


def halved_dimension(dims: Sequence[int]) -> int:
    """Along which dimension ThreeFry's two words alternate: the first even one, else the first longest."""
    even = [d for d, n in enumerate(dims) if n % 2 == 0]
    return even[0] if even else max(range(len(dims)), key=lambda d: (dims[d], -d))


def state_words(p: Operations, state: Instruction) -> list[Instruction]:
    """The state of ``rng-bit-generator`` as u64 scalars."""
    if state.shape.dtype.name != "u64":
        count = state.shape.nbytes // 8
        state = p.reshape(state, (count, state.shape.size // count))
        state = p.op("bitcast-convert", state, shape=array_shape("u64", count))
    parts = (p.op("slice", state, slice=((k, k + 1, 1),)) for k in range(state.shape.size))
    return [p.reshape(x, ()) for x in parts]


def advance_state(p: Operations, instruction: Instruction, words: Sequence[Instruction]) -> Instruction:
    """The state that an ``rng-bit-generator`` leaves: its counter goes on by what it has used up."""
    state, shape = instruction.shape.elements
    wide = shape.dtype.bits == 64
    if instruction.attrs["algorithm"] == "rng_three_fry":
        dims = list(shape.dims)
        if not wide and dims:
            split = halved_dimension(dims)
            dims[split] = -(-dims[split] // 2)
        after = [words[0], p.op("add", words[1], p.full(math.prod(dims), words[1].shape))]
    else:
        blocks = -(-shape.size * (2 if wide else 1) // 4)
        end = p.op("add", words[1], p.full(blocks, words[1].shape))
        over = p.convert(p.compare("LT", end, words[1]), "u64")
        after = [words[0], end, *(p.op("add", w, over) for w in words[2:])]
    vector = p.op("concatenate", *(p.reshape(w, (1,)) for w in after), dimensions=(0,))
    if state.dtype.name == "u64":
        return vector
    parts = array_shape(state.dtype, len(after), state.size // len(after))
    return p.reshape(p.op("bitcast-convert", vector, shape=parts), state.dims)
