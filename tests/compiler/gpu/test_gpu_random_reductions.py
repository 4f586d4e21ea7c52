"""Random kernels that reduce: any dimensions, arrays read in any order, work before and after, in place or not."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from shardc.compiler.lower.buffers.in_place import in_place_pairs
from tests.compiler.gpu.gpu_runner import ORDERS, as_instruction, check_gpu
from tests.compiler.kernel_runner import random as elements

_SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 20, 33, 64, 100)
#: Element types, the ops that reduce them with an initial value each, and what else is done to an element.
_KINDS = {
    "f32": ({"add": "0", "maximum": "-3", "minimum": "5"}, "negate"),
    "bf16": ({"add": "0", "maximum": "0"}, "negate"),
    "f64": ({"add": "1", "minimum": "5"}, "abs"),
    "s32": ({"add": "0", "maximum": "0"}, "negate"),
    "u8": ({"add": "7", "maximum": "0"}, "not"),
    "c64": ({"add": "(1,0)"}, "negate"),
    "pred": ({"or": "false", "and": "true"}, "not"),
}


def _dims(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))


def kernel(rng: random.Random) -> str:
    """A fusion around a reduction."""
    rank = rng.randint(1, 4)
    dims = [rng.choice(_SIZES) for _ in range(rank)]
    while math.prod(dims) > 30000:
        dims[rng.randrange(rank)] = rng.choice((1, 2, 3))
    over = sorted(rng.sample(range(rank), rng.randint(1, rank)))
    kept = [d for d in range(rank) if d not in over]
    dtype = rng.choice(list(_KINDS))
    reducers, unary = _KINDS[dtype]
    opcode, init = rng.choice(list(reducers.items()))
    full, small = f"{dtype}[{_dims(dims)}]", f"{dtype}[{_dims([dims[d] for d in kept])}]"
    order = rng.sample(range(rank), rank) if rng.random() < 0.3 else list(range(rank))
    stored = [dims[order.index(d)] for d in range(rank)]
    lines = [
        f"x = {dtype}[{_dims(stored)}] parameter(0)",
        f"z = {dtype}[] constant({init})",
        f"t = {full} transpose(x), dimensions={{{_dims(order)}}}",
        f"u = {full} {unary}(t)",
        f"s = {small} reduce({rng.choice('tu')}, z), dimensions={{{_dims(over)}}}, to_apply=r",
    ]
    match rng.randrange(4):
        case 0:
            lines.append(f"ROOT y = {small} {unary}(s)")
        case 1:
            lines.append(f"other = {small} reduce(u, z), dimensions={{{_dims(over)}}}, to_apply=r")
            lines.append(f"ROOT y = ({small}, {small}) tuple(s, other)")
        case 2:
            lines.append(f"ROOT y = {dtype}[{_dims([1, *(dims[d] for d in kept)])}] reshape(s)")
        case _:
            both = "xor" if dtype == "pred" else "add"
            lines.append(f"sb = {full} broadcast(s), dimensions={{{_dims(kept)}}}")
            lines.append(f"a = {full} {both}(sb, u)")
            lines.append(f"ROOT y = ({full}, {small}) tuple(a, s)")
    reducer = f"r {{ a = {dtype}[] parameter(0)\nb = {dtype}[] parameter(1)\nROOT c = {dtype}[] {opcode}(a, b) }}"
    return "\n".join(["HloModule m", reducer, "ENTRY main {", *lines, "}", ""])


@pytest.mark.parametrize("seed", [*range(24), *(pytest.param(s, marks=pytest.mark.full) for s in range(24, 200))])
def test_random_reduction(seed: int) -> None:
    rng = random.Random(seed)
    i = as_instruction(kernel(rng))
    pairs = in_place_pairs(i)
    in_place = {}
    if pairs and rng.random() < 0.5:
        result, operand = rng.choice(pairs)
        in_place[operand] = result
    given = [elements(o.shape, n) for n, o in enumerate(i.operands)]
    check_gpu(i, given, ulp=64, in_place=in_place, orders=ORDERS[1:3])
