"""Decisions for the whole program, made before any part of it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shardc.hlo.ir.ir import Instruction, Module
from shardc.partitioner.emit.layout import AxisLayout, AxisTable
from shardc.partitioner.reshard.search import Resharder
from shardc.partitioner.strategy.cause import RegionDecision
from shardc.partitioner.strategy.choose import SplitChoice, SplitProblem
from shardc.partitioner.strategy.rule import Local
from shardc.partitioner.strategy.values import GlobalValue
from shardc.sharding.rules.factor_rule import FactorRule

__all__ = ["ChosenSplits", "LayoutPlan", "PlannedSplit"]


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """How an operation runs if its operands have the layouts ``sources`` (None: any layouts). ``row`` is its opcode's
    row in the rule table, ``strategy`` the chosen strategy.
    """

    row: Local
    sources: tuple[AxisLayout, ...] | None
    strategy: Local
    rule: FactorRule
    choice: SplitChoice

    def fits(self, operands: Sequence[GlobalValue]) -> bool:
        """Whether the operands have the planned layouts."""
        return self.sources is None or all(v.layout is x for v, x in zip(operands, self.sources, strict=True))


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """Decisions by operation. ``layouts`` has the layouts of border leaves that differ from the propagated ones:
    carries of loops, parameters and roots of called computations, conditionals. ``common`` has values, by operation and
    leaf, that are first moved to a form from which all readers take theirs. ``why`` has the decisions that differ from
    those that each operation would make alone.
    """

    decisions: Mapping[Instruction, PlannedSplit] = field(default_factory=dict)
    layouts: Mapping[Instruction, tuple[AxisLayout, ...]] = field(default_factory=dict)
    common: Mapping[Instruction, Mapping[int, AxisLayout]] = field(default_factory=dict)
    why: Mapping[Instruction, RegionDecision] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChosenSplits:
    """How operations run, by opcode and name, in layouts of ``resharder``: a choice for a program that is kept while
    the program is prepared. ``found`` caches the best choices of single operations. Without ``splits``, programs share
    only this cache and paths."""

    resharder: Resharder
    splits: Mapping[tuple[str, str], PlannedSplit] = field(default_factory=dict)
    found: dict[SplitProblem, SplitChoice] = field(default_factory=dict)

    def serves(self, table: AxisTable) -> bool:
        """Whether a program with this table can be partitioned with these atoms, which must include its own. Finer
        atoms are used only for a choice that has them."""
        own = self.resharder.table
        return own.includes(table) and (bool(self.splits) or table.includes(own))

    def plan_for(self, module: Module) -> LayoutPlan:
        """The decisions for the operations that are unchanged in the prepared program."""
        return LayoutPlan(
            {
                i: found
                for i in module.instructions()
                if (found := self.splits.get((i.opcode, i.name))) is not None and found.strategy.rule(i) is found.rule
            }
        )
