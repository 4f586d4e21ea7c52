"""Why data moves, as data: the value, its layouts, the operation that needs it, and the alternatives. A `Cause` is
attached to the collectives that it leads to (`shardc.hlo.ir.ir.Origin`); costs of alternatives are computed on request.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction, Metadata, Origin
from shardc.hlo.ir.types import Shape
from shardc.hlo.units import bytes_text, count_text, seconds_text
from shardc.partitioner.emit.layout import AxisLayout, AxisTable
from shardc.partitioner.reshard.price import Bytes
from shardc.partitioner.reshard.search import Resharder
from shardc.partitioner.strategy.choose import SplitChoice, SplitProblem, cost_of, rank_splits

__all__ = ["Cause", "RegionDecision", "SplitDecision", "causes_of"]


@dataclass(frozen=True, slots=True)
class RegionDecision:
    """A joint decision for several operations: their cost together, and the cost if each decided alone.

    ``unit`` is ``B`` (bytes per device) or ``s``.
    """

    operations: int
    cost: float
    alone: float
    unit: str

    def __str__(self) -> str:
        text = bytes_text if self.unit == "B" else seconds_text
        sent = f"{text(self.cost)} instead of {text(self.alone)}"
        return f"decided for {count_text(self.operations, 'operation')} at once: {sent}"


@dataclass(frozen=True, slots=True, eq=False)
class SplitDecision:
    """How one operation is split: the ``choice`` for its ``problem`` (the present layouts of its operands, the wanted
    layouts of its results). ``regional`` is set if it was decided together with others.
    """

    op: Instruction
    problem: SplitProblem
    choice: SplitChoice
    resharder: Resharder
    regional: RegionDecision | None = None

    @property
    def unit(self) -> str:
        """The unit of costs: ``B`` or ``s``."""
        return "B" if isinstance(self.resharder.price, Bytes) else "s"

    def cost(self) -> tuple[float, int]:
        """The cost of the choice for this operation alone (bytes or seconds), and its number of collectives."""
        made = self.choice
        ends = (made.operands, made.results)
        return cost_of(self.resharder.table, self.resharder, self.problem, made.factors, ends)

    def others(self) -> list[SplitChoice]:
        """The alternatives, the cheapest first."""
        taken = (self.choice.factors, self.choice.carried)
        found = rank_splits(self.resharder.table, self.resharder, self.problem)
        return [c for c in found if (c.factors, c.carried) != taken]


@dataclass(frozen=True, slots=True, eq=False)
class Cause:
    """The move of a global value from one layout to another. ``reader`` is the operation that needs it as its
    ``operand``; ``asked`` is how that operation is split, if it runs on shards. ``made`` is the split of the operation
    that computed a partial value.
    """

    value: str
    shape: Shape
    metadata: Metadata | None
    before: AxisLayout
    after: AxisLayout
    table: AxisTable
    reader: Instruction | None = None
    asked: SplitDecision | None = None
    made: SplitDecision | None = None
    operand: Instruction | None = None


def causes_of(origin: Origin | None) -> tuple[Cause, ...]:
    """The causes attached to an origin."""
    return () if origin is None else tuple(c for c in origin.causes if isinstance(c, Cause))
