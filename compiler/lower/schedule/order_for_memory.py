"""Order: a schedule with few bytes alive at any time."""

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
    """A computation in its order, and the memory that it needs in this order."""

    computation: Computation
    part: ComputationSteps
    peak: Peak

    @staticmethod
    def of(computation: Computation, *, carried: bool = False) -> Judged:
        """``carried``: the computation is a loop's body, whose results use the buffers of its arguments."""
        part = linearise_part(computation, carried=carried)
        return Judged(computation, part, peak_of(part.linear))


@dataclass(frozen=True, slots=True)
class OrderForMemory:
    """Reorder each computation if another order needs less memory. The pass tries several orders, and compares the
    bytes in use after buffer assignment. For computations with more than ``limit`` instructions, it tries only the
    first.
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
    """Names of the computations that are bodies of loops."""
    return {i.attrs["body"].name for c in step_computations(module) for i in c if i.opcode == "while"}


def peak_bytes_of(computation: Computation, *, carried: bool = False) -> int:
    """The largest number of bytes alive while a computation runs in its order, without arguments and constants."""
    return Judged.of(computation, carried=carried).peak.nbytes
