"""Data travels in the narrower of the types that it has before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, rebuild_computations, users_of
from shardc.hlo.ir.types import DType
from shardc.partitioner.optimise.keep_root import with_root_sharding

__all__ = ["VIEWS", "MoveConverts"]

#: Collectives that only move elements: converting commutes with them.
_MOVERS = frozenset(("all-gather", "all-to-all", "collective-permute"))
#: Local movement of the elements of one operand.
VIEWS = frozenset(("reshape", "transpose", "copy", "bitcast"))


@dataclass(frozen=True, slots=True)
class MoveConverts:
    """A widening conversion before a gather, exchange or permute moves behind it, a narrowing one before it."""

    name: str = "move-converts"
    why: str = "bf16 is half the bytes of f32"

    def run(self, module: Module) -> Module:
        after = rebuild_computations(module, lambda c, called: _later(_earlier(c, called)))
        return with_root_sharding(after, module.entry.root.sharding)


def _later(computation: Computation) -> Computation:
    """Widening conversions go behind what moves their result."""

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old.opcode not in _MOVERS or old.shape.is_tuple or len(operands) != 1:
            return None
        narrow = _before_widening(operands[0])
        if narrow is None:
            return None
        moved = old.replace(operands=(narrow,), shape=old.shape.with_dtype(narrow.shape.dtype))
        return Instruction("convert", old.shape, (moved,), metadata=old.metadata)

    if not any(i.opcode in _MOVERS for i in computation):
        return computation
    return rebuild_computation(computation, change)


def _before_widening(x: Instruction) -> Instruction | None:
    """``x`` before the conversion that made it wider, local movement in between done to the narrow value."""
    views: list[Instruction] = []
    while x.opcode in VIEWS:
        views.append(x)
        x = x.operands[0]
    if x.opcode != "convert" or not _narrower(x.operands[0].shape.dtype, x.shape.dtype):
        return None
    x = x.operands[0]
    for view in reversed(views):
        x = view.replace(operands=(x,), shape=view.shape.with_dtype(x.shape.dtype))
    return x


def _earlier(computation: Computation, called: Mapping[Computation, Computation]) -> Computation:
    """Narrowing conversions that all readers of a moved value make go before the movement."""
    if not any(i.opcode in _MOVERS for i in computation):
        return rebuild_computation(computation, None, called)
    users = users_of(computation)
    wanted: dict[Instruction, DType] = {}
    for i in reversed(computation.instructions):
        if (i.opcode in VIEWS or i.opcode in _MOVERS) and i is not computation.root and not i.shape.is_tuple:
            asked = {wanted.get(u) or _narrowed_to(u) for u in users[i]}
            dtype = asked.pop() if len(asked) == 1 else None
            if dtype is not None and _narrower(dtype, i.shape.dtype):
                wanted[i] = dtype
    seen: set[Instruction] = set()
    for i in computation:
        moves = i.opcode in _MOVERS or any(o in seen for o in i.operands)
        if i in wanted and moves:
            seen.add(i)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old in seen:
            (x,) = operands
            if old.operands[0] not in seen:
                x = Instruction("convert", x.shape.with_dtype(wanted[old]), (x,), metadata=old.metadata)
            return old.replace(operands=(x,), shape=old.shape.with_dtype(wanted[old]))
        if old.opcode == "convert" and old.operands[0] in seen:
            return operands[0]
        return None

    return rebuild_computation(computation, change, called)


def _narrowed_to(user: Instruction) -> DType | None:
    """The type that ``user`` converts to, if it is a conversion."""
    return user.shape.dtype if user.opcode == "convert" else None


def _narrower(a: DType, b: DType) -> bool:
    """Whether ``a`` takes fewer bytes than ``b``. Types below a byte stay: transports pack whole bytes."""
    return 8 <= a.bits < b.bits
