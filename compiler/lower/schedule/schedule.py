"""Schedule: list schedules by modelled time put instructions between starts and dones, within a memory limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardc.hlo.ir.asynchronous import is_start
from shardc.hlo.ir.ir import Module

if TYPE_CHECKING:
    from shardc.compiler.lower.schedule.overlap import Overlap

__all__ = ["Schedule"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Order each computation that starts collectives: the fastest of several list schedules that fit in memory. A
    program that then exceeds the limit is scheduled again: with one transfer at a time, then in no more memory than
    before. If both fail, its collectives become one operation again. Pairs that hide nothing always do. A program that
    exceeds the machine's memory anyway is scheduled as if it fitted; callers report that. Without ``overlap``, and in
    computations with more than ``limit`` instructions, each done directly follows its start. With ``packed``, memory
    includes the gaps that buffers will leave, which takes longer to compute.
    """

    overlap: Overlap | None = None
    limit: int = 20_000
    packed: bool = True
    name: str = "schedule"
    why: str = "transfers begin early and are awaited late"

    def run(self, module: Module) -> Module:
        overlap = self.overlap
        if overlap is None or not any(is_start(i) for i in module.instructions()):
            return module
        # What orders by modelled time comes with the cost model, which a program that starts nothing never asks.
        from shardc.compiler.lower.schedule.order_transfers import order_transfers

        return order_transfers(module, overlap, self.limit, packed=self.packed)
