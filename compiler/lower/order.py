"""Order: a schedule that keeps few bytes alive at a time."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.compiler.lower.assign_buffers import peak_of
from shardc.compiler.lower.linearise import linearise_part
from shardc.compiler.lower.orders import ORDERS
from shardc.hlo.ir import Computation, Module
from shardc.hlo.simplify.make import map_computations, step_computations

__all__ = ["Order", "loop_bodies", "peak_bytes_of"]


@dataclass(frozen=True, slots=True)
class Order:
    """Reorder each computation where another order needs less memory than the present one.

    Several orders are tried, and judged by the bytes that buffer assignment finds in use. Of computations with more
    than ``limit`` instructions only the first.
    """

    name: str = "order"
    why: str = "values are made late and freed early"
    limit: int = 20_000

    def run(self, module: Module) -> Module:
        bodies = loop_bodies(module)
        return map_computations(module, lambda c: self.ordered(c, c.name in bodies), only=step_computations(module))

    def ordered(self, computation: Computation, carried: bool) -> Computation:
        """The best order of one computation; ``carried`` as for `peak_bytes_of`."""
        if len(computation.instructions) < 3:
            return computation
        best = computation
        least = peak_bytes_of(best, carried=carried)
        seen = {best.instructions}
        for order in ORDERS if len(computation.instructions) <= self.limit else ORDERS[:1]:
            other = Computation(computation.name, order(computation), computation.root)
            if other.instructions in seen:
                continue
            seen.add(other.instructions)
            peak = peak_bytes_of(other, carried=carried)
            if peak < least:
                best, least = other, peak
        return best


def loop_bodies(module: Module) -> set[str]:
    """Names of the computations that loops repeat."""
    return {i.attrs["body"].name for c in step_computations(module) for i in c if i.opcode == "while"}


def peak_bytes_of(computation: Computation, *, carried: bool = False) -> int:
    """Most bytes alive at a time when a computation runs in its order, arguments and constants not counted.

    ``carried``: it is the body of a loop, whose results take the places of its arguments.
    """
    return peak_of(linearise_part(computation, carried=carried)).nbytes
