"""What one core needs for the arithmetic of a kernel, by measured rates, and into how many pieces it is cut."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shardc.compiler.cpu.parallel import chunks
from shardc.compiler.cpu.products.contraction import product_pieces
from shardc.compiler.elements.dot_sides import DotSides
from shardc.costs.kernels.host_seconds import convolution_seconds, element_seconds, product_seconds
from shardc.costs.machines.measured import Rates
from shardc.costs.ops.table import instruction_flops, products_of
from shardc.hlo.ir.ir import Instruction
from shardc.native.llvm.target import host_target

__all__ = ["CutWork", "HostWork", "host_work", "inside"]


@dataclass(frozen=True, slots=True)
class CutWork:
    """Seconds of one core for a product or a convolution, which is cut into so many ``pieces``."""

    seconds: float
    pieces: int


@dataclass(frozen=True, slots=True)
class HostWork:
    """Seconds of one core for what is done element by element, and the products and convolutions."""

    elements: float = 0.0
    parts: tuple[CutWork, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.elements and not self.parts


def host_work(i: Instruction, rates: Rates) -> HostWork:
    """The work of a kernel for ``i``, an operation or a fusion, with the rates of one core."""
    elements = 0.0
    parts: list[CutWork] = []
    for op in inside(i):
        if op.opcode == "dot":
            parts.append(_product(op, rates))
        elif op.opcode == "convolution":
            pieces = chunks(products=instruction_flops(op) / 2)
            parts.append(CutWork(convolution_seconds(op, rates), pieces))
        else:
            elements += element_seconds(op, rates)
    return HostWork(elements, tuple(parts))


def inside(i: Instruction) -> Iterable[Instruction]:
    """The operations of a kernel."""
    return i.attrs["calls"] if i.opcode == "fusion" else (i,)


def _product(dot: Instruction, rates: Rates) -> CutWork:
    if not dot.shape.size:
        return CutWork(0.0, 1)
    seconds = sum(p.batch * p.terms * product_seconds(p, _layout(dot), rates) for p in products_of(dot))
    return CutWork(seconds, product_pieces(dot, host_target()))


def _layout(dot: Instruction) -> str:
    """Which side lies transposed, as the library sees it."""
    sides = DotSides(dot)
    left, right = sides.left.as_it_lies(), sides.right.as_it_lies()
    if right is not None and right.transposed:
        return " right"
    return " left" if left is not None and left.transposed else ""
