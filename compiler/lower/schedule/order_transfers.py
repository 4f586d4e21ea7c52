"""Ordering transfers: the fastest of several list schedules of a computation that fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from shardc.compiler.lower.buffers.assign_buffers import Peak, assign_buffers, peak_of
from shardc.compiler.lower.buffers.linearise import linearise, linearise_part
from shardc.compiler.lower.schedule.kernel_costs import CalledComputation, KernelCosts
from shardc.compiler.lower.schedule.order_for_memory import loop_bodies
from shardc.compiler.lower.schedule.overlap import Overlap
from shardc.costs.kernels.kernel_model import KernelWork, kernel_seconds
from shardc.hlo.ir.asynchronous import is_done, is_start, join_pair, was_asynchronous
from shardc.hlo.ir.host_memory.host_moves import host_move_bytes, is_host_move, moves_to_host
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.make import map_computations, step_computations
from shardc.hlo.transforms.memory_limit import memory_limit
from shardc.partitioner.schedule import ScheduledOrder, Timeline, list_schedules, timeline

__all__ = ["model_timeline", "order_transfers"]


#: What is hidden by rounding.
_NOTHING = 1e-9
#: Seconds that are equal but for rounding: of those orders the one with fewest transfers begun is taken.
_DIGITS = 12
#: Of the memory that computations may take more: all, then less and less of it where that is more than there is.
_LESS_MEMORY = (1.0, 0.25, 0.05, 0.0)
#: Then fewer transfers on one kind of links may have begun: one that waits behind another may take less memory than
#: what is computed before the links are free.
_SCARCE = (1, 2)


def order_transfers(module: Module, overlap: Overlap, limit: int, *, packed: bool) -> Module:
    """Schedule ``module`` with the options of `Schedule`. The memory that the program was planned for is a limit,
    including gaps between buffers, so buffers are packed first.
    """
    plain = _without_pairs(module, lambda computation: {i for i in computation if is_start(i)})
    limits = [n for n in (overlap.memory_bytes, memory_limit(module)) if n is not None]
    packed = packed or memory_limit(module) is not None
    before = _written_bytes(plain, packed)
    most = before * overlap.memory + _on_the_way(module)
    if limits:
        room = min(limits) - _kept_bytes(plain)
        most = max(before, min(most, room)) if before <= room else most
    many = max(1, overlap.transfers, overlap.queued)
    less = [1 + (overlap.memory - 1) * share for share in _LESS_MEMORY]
    tries = [(widths, overlap.memory) for widths in (_halves(many), _SCARCE, (1,))] + [(_SCARCE, x) for x in less]
    for widths, memory in dict.fromkeys(tries):
        made = _Scheduling(overlap, widths, memory, limit).of(module)
        if _written_bytes(made, packed) <= most:
            return made
    return plain


def model_timeline(module: Module, overlap: Overlap) -> Timeline:
    """The modelled timeline of a lowered module's entry in its present order; loops are counted with their trip
    counts."""
    steps = step_computations(module)
    placement = overlap.place_devices(module)
    called: dict[Computation, CalledComputation] = {}
    found = Timeline(0.0, {}, {})
    for c in module.computations:
        if c in steps:
            costs = KernelCosts(linearise_part(c), overlap, called, placement)
            found = timeline(c.instructions, costs)
            called[c] = CalledComputation.of(c, costs)
    return found


def _on_the_way(module: Module) -> int:
    """The size of the buffers for values that arrive from the host during computation."""
    return max(map(_buffers, module.computations), default=0)


def _buffers(c: Computation) -> int:
    """The size of the largest value from the host: the next value may arrive while one is read."""
    moves = (join_pair(i) for i in c if is_start(i))
    return max((host_move_bytes(i) for i in moves if is_host_move(i) and not moves_to_host(i)), default=0)


def _halves(limit: int) -> tuple[int, ...]:
    out = [limit]
    while out[-1] > 1:
        out.append(out[-1] // 2)
    return tuple(reversed(out))


def _written_bytes(module: Module, packed: bool) -> int:
    """The bytes of the arena and the results: packed, or as if there were no gaps between buffers."""
    linear = linearise(module)
    if not packed:
        return peak_of(linear).nbytes
    return assign_buffers(linear).arena_bytes + sum(b.nbytes for b in linear.results)


def _kept_bytes(module: Module) -> int:
    """The bytes of the arguments whose memory no result uses."""
    linear = linearise(module)
    given = {a for _, a in linear.aliases}
    return sum(b.nbytes for n, b in enumerate(linear.parameters) if n not in given)


@dataclass(frozen=True, slots=True)
class _Scheduling:
    """One attempt; ``memory`` limits the memory of each computation, relative to its memory without overlap."""

    overlap: Overlap
    limits: tuple[int, ...]
    memory: float
    limit: int

    def of(self, module: Module) -> Module:
        bodies = loop_bodies(module)
        placement = self.overlap.place_devices(module)
        called: dict[Computation, CalledComputation] = {}

        def schedule(c: Computation) -> Computation:
            part = linearise_part(c, carried=c.name in bodies)
            costs = KernelCosts(part, self.overlap, called, placement)
            if len(c.instructions) <= self.limit and any(is_start(i) for i in c):
                c = self._best(c, costs, lambda order: peak_of(part.reorder(order).linear))
                costs = KernelCosts(linearise_part(c, carried=c.name in bodies), self.overlap, called, placement)
            called[c] = CalledComputation.of(c, costs)
            return c

        return map_computations(module, schedule, only=step_computations(module))

    def _best(self, c: Computation, costs: KernelCosts, peak: Callable[[tuple[Instruction, ...]], Peak]) -> Computation:
        """The fastest order that fits in memory, or else the given order. Pairs that hide too little become one
        operation again. Orders are compared as they are after that, with the copies that they need. A pair that may
        hide any amount saves nothing as one operation."""
        plans = [(plan, self._idle(plan)) for plan in list_schedules(c, costs, self.limits)]
        paid = [{i for i in idle if self._least_seconds(i)} for _, idle in plans]
        seconds = [timeline(plan.order, costs, p).seconds for (plan, _), p in zip(plans, paid, strict=True)]
        given = peak(plans[0][0].order)
        most = given.nbytes * max(self.memory, 1.0) + _buffers(c)
        best, least = 0, seconds[0] + self._copying(given)
        for n in sorted(range(1, len(plans)), key=lambda n: round(seconds[n], _DIGITS)):
            if seconds[n] >= least:
                break
            found = peak(plans[n][0].order)
            total = seconds[n] + self._copying(found)
            if found.nbytes <= most and total < least:
                best, least = n, total
        plan, idle = plans[best]
        return _joined(Computation(c.name, plan.order, c.root), idle)

    def _copying(self, peak: Peak) -> float:
        """The time of the copies that an order needs, in seconds."""
        device = self.overlap.machine.device
        return sum(kernel_seconds(device, KernelWork(read=n, written=n)).seconds for n in peak.copied)

    def _idle(self, plan: ScheduledOrder) -> set[Instruction]:
        """Starts of transfers that overlap with too little."""
        hidden = plan.timeline.hidden
        return {i for i in plan.order if is_start(i) and hidden[i] < max(self._least_seconds(i), _NOTHING)}

    def _least_seconds(self, start: Instruction) -> float:
        """The time that a pair must hide to stay a pair; for pairs of the input program any amount is enough."""
        return 0.0 if self.overlap.everything or was_asynchronous(join_pair(start)) else self.overlap.least_seconds


def _without_pairs(module: Module, chosen: Callable[[Computation], Set[Instruction]]) -> Module:
    return map_computations(module, lambda c: _joined(c, chosen(c)), only=step_computations(module))


def _joined(computation: Computation, starts: Set[Instruction]) -> Computation:
    """Join these starts and their dones into one operation, at the place of the start."""
    if not starts:
        return computation
    new: dict[Instruction, Instruction] = {}
    order: list[Instruction] = []
    for old in computation:
        if is_done(old) and old.operands[0] in starts:
            whole = new[old.operands[0]]
            whole.sharding = old.sharding
            new[old] = whole
            continue
        operands = tuple(new[o] for o in old.operands)
        if old in starts:
            new[old] = join_pair(old, operands)
        else:
            same = all(a is b for a, b in zip(operands, old.operands, strict=True))
            new[old] = old if same else old.replace(operands=operands)
        order.append(new[old])
    return Computation(computation.name, order, new[computation.root])
