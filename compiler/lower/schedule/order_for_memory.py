"""Order: a schedule that keeps few bytes alive at a time."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.compiler.lower.buffers.assign_buffers import Peak, peak_of
from shardc.compiler.lower.buffers.linearise import ComputationSteps, linearise_part
from shardc.compiler.lower.schedule.orders import ORDERS, Facts
from shardc.hlo.ir.ir import Computation, Module
from shardc.hlo.ir.make import map_computations, step_computations

__all__ = ["Judged", "OrderForMemory", "loop_bodies", "peak_bytes_of"]

#: What is there before a program runs, and what gathers its results: of one operation besides there is one order.
_AT_REST = frozenset({"parameter", "constant", "tuple"})


@dataclass(frozen=True, slots=True)
class Judged:
    """A computation in its order, and the memory that it then needs."""

    computation: Computation
    part: ComputationSteps
    peak: Peak

    @staticmethod
    def of(computation: Computation, *, carried: bool = False) -> Judged:
        """``carried``: it is the body of a loop, whose results take the places of its arguments."""
        part = linearise_part(computation, carried=carried)
        return Judged(computation, part, peak_of(part.linear))


@dataclass(frozen=True, slots=True)
class OrderForMemory:
    """Reorder each computation where another order needs less memory than the present one.

    Several orders are tried, and judged by the bytes that buffer assignment finds in use. Of computations with more
    than ``limit`` instructions only the first.
    """

    name: str = "order-for-memory"
    why: str = "values are made late and freed early"
    limit: int = 20_000

    def run(self, module: Module) -> Module:
        bodies = loop_bodies(module)
        return map_computations(module, lambda c: self._best(c, c.name in bodies), only=step_computations(module))

    def _best(self, computation: Computation, carried: bool) -> Computation:
        if sum(i.opcode not in _AT_REST for i in computation) < 2:
            return computation
        return self.reorder(Judged.of(computation, carried=carried)).computation

    def reorder(self, best: Judged) -> Judged:
        """The same computation in its best order."""
        computation = best.computation
        facts = Facts(computation)
        seen = {computation.instructions}
        for order in ORDERS if len(computation.instructions) <= self.limit else ORDERS[:1]:
            instructions = tuple(order(facts))
            if instructions in seen:
                continue
            seen.add(instructions)
            part = best.part.reorder(instructions)
            peak = peak_of(part.linear)
            if peak.nbytes < best.peak.nbytes:
                best = Judged(Computation(computation.name, instructions, computation.root), part, peak)
        return best


def loop_bodies(module: Module) -> set[str]:
    """Names of the computations that loops repeat."""
    return {i.attrs["body"].name for c in step_computations(module) for i in c if i.opcode == "while"}


def peak_bytes_of(computation: Computation, *, carried: bool = False) -> int:
    """Most bytes alive at a time when a computation runs in its order, arguments and constants not counted."""
    return Judged.of(computation, carried=carried).peak.nbytes
