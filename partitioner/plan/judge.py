"""The cost of a per-device program: the bytes that it sends, or seconds by the models of partitioning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardc.costs.kernels.kernel_model import busy_seconds
from shardc.costs.kernels.peak_memory import estimate_peak
from shardc.costs.kernels.traffic import instruction_traffic
from shardc.costs.kernels.trips import count_executions
from shardc.costs.kernels.work import instruction_work
from shardc.costs.machines.machine import Machine
from shardc.costs.network.wire_bytes import wire_bytes
from shardc.costs.ops.table import OP_COSTS, instruction_flops
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.rewrite.local_cost import SOME_TRIPS, collectives_cost

__all__ = ["MORE_FLOPS", "Judge", "Judgement", "is_better", "judge_by_bytes", "judge_by_models"]

#: By how much arithmetic may grow where bytes count: plans know it no finer.
MORE_FLOPS = 1.01


@dataclass(frozen=True, slots=True)
class Judgement:
    """``cost`` of a step, most important first; ``peak`` bytes of memory; ``flops`` where they may not grow."""

    cost: tuple[float, ...]
    peak: float
    flops: float = 0.0


#: What a per-device program costs.
Judge = Callable[[Module], Judgement]


def judge_by_bytes(peak: Callable[[Module], float] = estimate_peak) -> Judge:
    """The bytes that one device sends in a step, as reports count them, then the number of collectives; ``peak``
    returns the memory."""

    def judge(module: Module) -> Judgement:
        sent = count = computed = 0.0
        for computation, times in count_executions(module, SOME_TRIPS).count.items():
            for i in computation:
                computed += times * instruction_flops(i)
                if i.opcode in COLLECTIVES:
                    sent += times * wire_bytes(i, module.num_partitions)
                    count += times
        return Judgement((sent, count), float(peak(module)), computed)

    return judge


def judge_by_models(context: Context, machine: Machine) -> Judge:
    """Modelled seconds: collectives one after the other, and the computation between them; ``context`` belongs to the
    program before partitioning."""

    def judge(module: Module) -> Judgement:
        sent, count = collectives_cost(context, module.entry)
        computed = 0.0
        for computation, times in count_executions(module).count.items():
            for i in computation:
                if not (OP_COSTS[i.opcode].free or i.opcode in COLLECTIVES or i.shape.is_tuple):
                    new = i.operands[1] if i.opcode == "dynamic-update-slice" else None
                    work = instruction_work(i, instruction_traffic(i, new))
                    computed += times * busy_seconds(machine.device, work)
        return Judgement((sent + computed, count), float(estimate_peak(module)))

    return judge


def is_better(found: Judgement, least: Judgement, before: Judgement | None, room: float) -> bool:
    """Whether a plan costs less than the best one so far, within the memory. A plan that fits is better than one that
    does not. Of those that fit, one that computes no more than the program ``before`` is better than one that does."""
    if least.peak > room or found.peak > room:
        return found.peak < least.peak and least.peak > room
    found_more, least_more = (before is not None and j.flops > before.flops * MORE_FLOPS for j in (found, least))
    if found_more != least_more:
        return least_more
    return found.cost < least.cost
