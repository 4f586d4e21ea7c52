"""What is known of one computation before it is rewritten: its layouts, who reads what, and what readers require."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.hlo.ir.ir import Computation, Instruction, has_side_effect
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.strategy.rule import PartitionRow
from shardc.partitioner.unreduced.linear import Spread

__all__ = ["ComputationScope"]


class ComputationScope:
    """One computation to be rewritten with its parameters' leaves in ``parameter_layouts``.

    ``uses`` counts the operand slots that read a value. ``required`` are the layouts of values that are aimed at in
    place of the propagated ones.
    """

    def __init__(
        self,
        context: Context,
        rules: Mapping[str, PartitionRow],
        computation: Computation,
        parameters: Sequence[tuple[AxisLayout, ...]],
    ) -> None:
        self.context = context
        self.rules = rules
        self.computation = computation
        self.parameter_layouts = parameters
        self.uses: dict[Instruction, int] = {}
        self.required: Mapping[Instruction, AxisLayout] = {}

    def live(self) -> list[Instruction]:
        """Parameters, side effects and what the root needs, in program order; counts uses on the way."""
        keep = {
            i for i in self.computation if i.opcode == "parameter" or has_side_effect(i) or i is self.computation.root
        }
        for i in reversed(self.computation.instructions):
            if i in keep:
                for o in i.operands:
                    keep.add(o)
                    self.uses[o] = self.uses.get(o, 0) + 1
        return [i for i in self.computation if i in keep]

    def readers(self, op: Instruction) -> int:
        """How many may want the value of an array reduced: one in name where all want it partial."""
        return 1 if op in self.required and self.required[op].unreduced else self.uses.get(op, 1)

    def wanted(self, op: Instruction) -> tuple[AxisLayout, ...]:
        """The propagated layouts of an instruction's leaves, or the planned ones; partial values reduced."""
        planned = self.context.plan.layouts.get(op)
        return self.context.layouts(op) if planned is None else tuple(map(self.context.table.reduced, planned))

    def spread(self) -> Spread:
        """How partial values spread as far as the program is partitioned."""
        return Spread(self.rules, self.context.partial, self.context.layouts, self.context.linear)
