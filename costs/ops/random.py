"""What random numbers cost."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.costs.ops.op_cost import OpCost
from shardc.hlo.ir.ir import Instruction

__all__ = ["COSTS"]

#: Operations on u32 per random number of 32 bits: 20 rounds for two words (Threefry), 10 rounds for four (Philox).
_ROUNDS: Mapping[str, int] = {"rng_three_fry": 55, "rng_philox": 25, "rng_default": 25}


def _bits(op: Instruction) -> int:
    bits = op.shape.elements[1]
    words = bits.size * (2 if bits.dtype.bits == 64 else 1)
    return words * _ROUNDS[op.attrs["algorithm"]]


def _drawn(op: Instruction) -> int:
    return op.shape.size * _ROUNDS["rng_three_fry"]


COSTS: Mapping[str, OpCost] = {
    "rng": OpCost(_drawn, like=("xor", 60.0)),
    "rng-bit-generator": OpCost(_bits, like=("xor", 40.0)),
    "rng-get-and-update-state": OpCost(),
}
