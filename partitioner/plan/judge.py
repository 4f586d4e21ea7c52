"""What a per-device program costs, by the models that partitioning goes by: seconds on a machine, else bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardc.costs.kernels.kernel_model import busy_seconds
from shardc.costs.kernels.peak_memory import estimate_peak
from shardc.costs.kernels.traffic import instruction_traffic
from shardc.costs.kernels.trips import count_executions
from shardc.costs.kernels.work import instruction_work
from shardc.costs.machines.machine import Machine
from shardc.costs.ops.table import OP_COSTS, instruction_flops
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.rewrite.local_cost import collectives_cost

__all__ = ["Judge", "Judgement", "judge_by_models"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """``cost`` of a step, most important first; ``peak`` bytes of memory; ``flops`` where they may not grow."""

    cost: tuple[float, ...]
    peak: float
    flops: float = 0.0


#: What a per-device program costs.
Judge = Callable[[Module], Judgement]


def judge_by_models(context: Context, machine: Machine | None) -> Judge:
    """Collectives one after the other, on a machine with what is computed between them; without one, computing may not
    become more. ``context`` is one of the program before it was partitioned."""

    def judge(module: Module) -> Judgement:
        sent, count = collectives_cost(context, module.entry)
        computed = 0.0
        for computation, times in count_executions(module).count.items():
            for i in computation:
                if machine is None:
                    computed += times * instruction_flops(i)
                elif not (OP_COSTS[i.opcode].free or i.opcode in COLLECTIVES or i.shape.is_tuple):
                    new = i.operands[1] if i.opcode == "dynamic-update-slice" else None
                    work = instruction_work(i, instruction_traffic(i, new))
                    computed += times * busy_seconds(machine.device, work)
        peak = float(estimate_peak(module))
        if machine is None:
            return Judgement((sent, count), peak, computed)
        return Judgement((sent + computed, count), peak)

    return judge
