"""Which values are those of a manual computation (`shard_map`), and along which axes of the mesh."""

from __future__ import annotations

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sharding import Sharding

__all__ = ["is_manual", "manual_of"]


def manual_of(op: Instruction) -> tuple[str, ...]:
    """The manual axes of a value inside, where its own sharding names them."""
    sharding = op.sharding[0] if isinstance(op.sharding, tuple) and op.sharding else op.sharding
    return sharding.manual if isinstance(sharding, Sharding) else ()


def is_manual(op: Instruction) -> bool:
    """Whether any part of the value is one of a manual computation."""
    shardings = op.sharding if isinstance(op.sharding, tuple) else (op.sharding,)
    return any(isinstance(s, Sharding) and s.manual for s in shardings)
