"""What was decided for the whole program before any of it is written."""

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
    """How an operation is done where its operands lie in ``sources`` (None: wherever they lie).

    ``row`` is what its opcode's row was, ``strategy`` the one of its strategies that is taken.
    """

    row: Local
    sources: tuple[AxisLayout, ...] | None
    strategy: Local
    rule: FactorRule
    choice: SplitChoice

    def fits(self, operands: Sequence[GlobalValue]) -> bool:
        """Do the operands lie as the plan has them?"""
        return self.sources is None or all(v.layout is x for v, x in zip(operands, self.sources, strict=True))


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """Decisions by operation; ``layouts`` of leaves at borders, where they are not the propagated ones.

    ``layouts`` has loops (what they carry), parameters and roots of called computations, and conditionals. ``common``
    has values, by operation and leaf, that are brought into a form first from which other readers take theirs. ``why``
    has all that is decided otherwise than each operation would by itself.
    """

    decisions: Mapping[Instruction, PlannedSplit] = field(default_factory=dict)
    layouts: Mapping[Instruction, tuple[AxisLayout, ...]] = field(default_factory=dict)
    common: Mapping[Instruction, Mapping[int, AxisLayout]] = field(default_factory=dict)
    why: Mapping[Instruction, RegionDecision] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChosenSplits:
    """How operations are done, by opcode and name, in layouts of ``resharder``: a choice for a program, kept while it
    is prepared. ``found`` remembers the best choices of operations alone; without ``splits`` it and paths are all that
    programs share."""

    resharder: Resharder
    splits: Mapping[tuple[str, str], PlannedSplit] = field(default_factory=dict)
    found: dict[SplitProblem, SplitChoice] = field(default_factory=dict)

    def serves(self, table: AxisTable) -> bool:
        """May a program of that table be partitioned in these terms? Finer ones are for a choice that has them."""
        own = self.resharder.table
        return own.includes(table) and (bool(self.splits) or table.includes(own))

    def plan_for(self, module: Module) -> LayoutPlan:
        """The decisions for what is left of the program: operations that are as they were."""
        return LayoutPlan(
            {
                i: found
                for i in module.instructions()
                if (found := self.splits.get((i.opcode, i.name))) is not None and found.strategy.rule(i) is found.rule
            }
        )
