"""Op-priority propagation: the order in which kinds of operations take part, as in Shardy.

Operations that keep the order of elements go first, because a conflict there costs most; then pass-through factors of
all operations, then everything. Broadcasts give forward last, since what they add is cheap to make again. Each phase
allows what the ones before it did and more. The order is Shardy's.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import OPS
from shardc.sharding.rules.factor_rule import Direction, FactorKind, FactorRule

__all__ = ["PHASES", "OpClass", "classify", "directions"]

PHASES = 5


class OpClass(Enum):
    """How an equation behaves in the schedule."""

    ELEMENTWISE = "elementwise"
    LAYOUT = "layout"
    EDGE = "edge"
    BARRIER = "barrier"
    SLICE = "slice"
    BROADCAST = "broadcast"
    OTHER = "other"


_LAYOUT = frozenset(("reshape", "transpose", "bitcast"))
_SLICE = frozenset(("dynamic-slice", "dynamic-update-slice"))
_ELEMENTWISE_CALLS = frozenset(("Sharding", "LayoutConstraint"))
_LAYOUT_CALLS = frozenset(("MoveToHost", "MoveToDevice", "annotate_device_placement"))


def classify(i: Instruction) -> OpClass:
    """The class of an array operation."""
    if i.opcode == "custom-call":
        target = i.attrs.get("custom_call_target")
        if target in _ELEMENTWISE_CALLS:
            return OpClass.ELEMENTWISE
        return OpClass.LAYOUT if target in _LAYOUT_CALLS else OpClass.OTHER
    if i.opcode == "bitcast-convert" and i.operands[0].shape.rank != i.shape.rank:
        return OpClass.OTHER
    if OPS[i.opcode].family == "elementwise" and i.opcode != "map":
        return OpClass.ELEMENTWISE
    if i.opcode in _LAYOUT:
        return OpClass.LAYOUT
    if i.opcode in _SLICE:
        return OpClass.SLICE
    return OpClass.BROADCAST if i.opcode == "broadcast" else OpClass.OTHER


@lru_cache(maxsize=65536)
def directions(rule: FactorRule, op_class: OpClass, several_uses: bool, phase: int) -> tuple[Direction, ...]:
    """Per factor, where axes may spread in ``phase`` (0 first)."""
    early = Direction.NONE
    if op_class in (OpClass.ELEMENTWISE, OpClass.LAYOUT, OpClass.EDGE, OpClass.SLICE) and (
        phase >= 1 or not several_uses
    ):
        early = Direction.FORWARD if op_class is OpClass.SLICE else Direction.BOTH
    wide = Direction.BACKWARD if op_class is OpClass.BROADCAST else Direction.BOTH
    out = []
    for factor in rule.factors:
        d = early
        if phase >= 3 or (phase >= 2 and factor.kind is FactorKind.PASS_THROUGH):
            d |= wide
        out.append(Direction.BOTH if phase >= 4 else d)
    return tuple(out)
