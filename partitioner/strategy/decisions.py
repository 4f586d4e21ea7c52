"""What was decided for the whole program before any of it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shardc.hlo.ir.ir import Instruction
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.strategy.cause import RegionDecision
from shardc.partitioner.strategy.choose import SplitChoice
from shardc.partitioner.strategy.rule import Local
from shardc.partitioner.strategy.values import GlobalValue
from shardc.sharding.rules.factor_rule import FactorRule

__all__ = ["LayoutPlan", "PlannedSplit"]


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """How an operation is done where its operands lie in ``sources``.

    ``row`` is what its opcode's row was, ``strategy`` the one of its strategies that is taken.
    """

    row: Local
    sources: tuple[AxisLayout, ...]
    strategy: Local
    rule: FactorRule
    choice: SplitChoice

    def fits(self, operands: Sequence[GlobalValue]) -> bool:
        """Do the operands lie as the plan has them?"""
        return all(v.layout is x for v, x in zip(operands, self.sources, strict=True))


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """Decisions by operation; ``layouts`` of leaves at borders, where they are not the propagated ones.

    ``layouts`` has loops (what they carry), parameters and roots of called computations, and conditionals. ``why`` has
    all that is decided otherwise than each operation would by itself.
    """

    decisions: Mapping[Instruction, PlannedSplit] = field(default_factory=dict)
    layouts: Mapping[Instruction, tuple[AxisLayout, ...]] = field(default_factory=dict)
    why: Mapping[Instruction, RegionDecision] = field(default_factory=dict)
