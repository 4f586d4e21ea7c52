"""Simplification rules by op family: opcode to the rules tried on it, in order.

Start with `elementwise`; `shardc.hlo.simplify.simplify` applies the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.simplify.rules import (
    arithmetic,
    comparison,
    contraction,
    control,
    counting,
    elementwise,
    indexing,
    reduction,
    shape,
    slicing,
)

__all__ = ["RULES"]


def _merge() -> dict[str, tuple[Callable[[Instruction], Instruction | None], ...]]:
    merged: dict[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {}
    for family in (
        elementwise, arithmetic, comparison, contraction, shape, counting, slicing, indexing, reduction, control
    ):  # fmt: skip
        for opcode, rules in family.RULES.items():
            merged[opcode] = merged.get(opcode, ()) + rules
    return merged


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = MappingProxyType(_merge())
