"""Which values are those of a manual computation (`shard_map`), and along which axes of the mesh."""

from __future__ import annotations

from shardc.hlo.ir.custom_calls import ENTER_MANUAL, LEAVE_MANUAL
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.sharding import Sharding

__all__ = ["has_manual", "is_manual", "manual_of"]


def has_manual(module: Module) -> bool:
    """Is a part of the global program written for the devices along some axes?"""
    return any(i.attrs.get("custom_call_target") in ENTER_MANUAL | LEAVE_MANUAL for i in module.instructions())


def manual_of(op: Instruction) -> tuple[str, ...]:
    """The manual axes of a value inside, where its own sharding names them."""
    sharding = op.sharding[0] if isinstance(op.sharding, tuple) and op.sharding else op.sharding
    return sharding.manual if isinstance(sharding, Sharding) else ()


def is_manual(op: Instruction) -> bool:
    """Is any part of the value one of a manual computation?"""
    shardings = op.sharding if isinstance(op.sharding, tuple) else (op.sharding,)
    return any(isinstance(s, Sharding) and s.manual for s in shardings)
