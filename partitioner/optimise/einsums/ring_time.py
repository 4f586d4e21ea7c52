"""Modelled time of a collective and its products, one after the other or overlapped in a ring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardc.costs.kernels.kernel_model import kernel_seconds
from shardc.costs.kernels.traffic import instruction_traffic
from shardc.costs.kernels.work import instruction_work
from shardc.costs.machines.machine import Machine
from shardc.costs.ops.op_cost import MatrixProduct
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.ir import Instruction
from shardc.partitioner.emit.layout import AxisTable
from shardc.partitioner.optimise.einsums.product import EinsumIndex, cut_of_operand, cut_of_result
from shardc.partitioner.optimise.einsums.ring import Ring
from shardc.partitioner.options import Choice
from shardc.partitioner.reshard.price import Seconds

__all__ = ["ring_of_gather", "ring_of_scatter"]


#: The part of its time without a ring that a ring has to save.
_WORTH = 0.05


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds of one hop of a part, of two in opposite directions, of the collective, of computing with a part, and of
    computing everything at once. ``beside``: parts travel while the device computes; else it does both in turn."""

    hop: float
    hops: float
    collective: float
    part: float
    whole: float
    beside: bool

    def _together(self, hop: float, part: float) -> float:
        return max(hop, part) if self.beside else hop + part

    def one_way(self, n: int, part: float) -> float:
        """A ring whose members take ``part`` seconds for one part."""
        return (n - 1) * self._together(self.hop, part) + part

    def two_ways(self, n: int, part: float) -> float:
        if n < 3:
            return self.one_way(n, part)
        half = (n - 1) // 2
        total = self._together(self.hops, part) + (half - 1) * self._together(self.hops, 2 * part)
        if n % 2 == 0:
            return total + self._together(self.hop, 2 * part) + part
        return total + 2 * part

    def one_after_the_other(self, n: int) -> float:
        """First the collective, which may use both directions as well, then the product."""
        return min(self.collective, self.one_way(n, 0.0), self.two_ways(n, 0.0)) + self.whole


def ring_of_gather(
    table: AxisTable,
    machine: Machine | None,
    choice: Choice,
    gather: Instruction,
    groups: AxisGroups,
    dots: Sequence[Instruction],
) -> Ring | None:
    """The ring that an all-gather read by ``dots`` becomes; None where it stays."""
    (dim,) = gather.attrs["dimensions"]
    size, n = gather.operands[0].shape.dims[dim], groups.group_size
    if machine is None:
        return _least(choice, None, Ring(groups, size))
    part = _carried_seconds(machine, gather.operands[0].shape.nbytes)
    for dot in dots:
        part += _part_seconds(machine, dot, cut_of_operand(dot, dot.operands.index(gather), dim), n)
    whole = sum(_whole_seconds(machine, dot) for dot in dots)
    return _least(choice, _times(table, machine, gather, groups, part, whole), Ring(groups, size))


def ring_of_scatter(
    table: AxisTable,
    machine: Machine | None,
    choice: Choice,
    scatter: Instruction,
    groups: AxisGroups,
    dot: Instruction,
    along: int,
) -> Ring | None:
    """The ring that a reduce-scatter of a product, ``along`` a dimension of it, becomes; None where it stays."""
    (dim,) = scatter.attrs["dimensions"]
    ring = Ring(groups, scatter.shape.dims[dim])
    if machine is None:
        return _least(choice, None, ring)
    part = _part_seconds(machine, dot, cut_of_result(dot, along), groups.group_size)
    part += _carried_seconds(machine, scatter.shape.nbytes)
    whole = _whole_seconds(machine, dot)
    return _least(choice, _times(table, machine, scatter, groups, part, whole), ring)


def _times(
    table: AxisTable, machine: Machine, collective: Instruction, groups: AxisGroups, part: float, whole: float
) -> _Times:
    price = Seconds(table, machine)
    atoms = table.atoms(groups.axes)
    nbytes = min(collective.shape.nbytes, collective.operands[0].shape.nbytes)
    hop = price.collective("collective-permute", nbytes, atoms)
    # Along a torus there are links in both directions; at a switch both share one.
    torus = price.links(atoms).torus
    both = hop if torus else price.collective("collective-permute", 2 * nbytes, atoms)
    seconds = price.collective(collective.opcode, collective.shape.nbytes, atoms)
    return _Times(hop, both, seconds, part, whole, machine.device.transfers > 0)


def _whole_seconds(machine: Machine, dot: Instruction) -> float:
    """The product at once."""
    return kernel_seconds(machine.device, instruction_work(dot, instruction_traffic(dot))).seconds


def _part_seconds(machine: Machine, dot: Instruction, cut: EinsumIndex, parts: int) -> float:
    """One of ``parts`` products along the index that is ``cut``, its result written or added where it belongs."""
    read = sum(o.shape.nbytes // (parts if d is not None else 1) for o, d in zip(dot.operands, cut.dims, strict=True))
    if cut.result is None:
        total = dot.shape.size * dot.shape.dtype.accumulator.nbytes
        read, written = read + total, total
    else:
        written = dot.shape.nbytes // parts
    work = instruction_work(dot, instruction_traffic(dot))
    products = tuple(_part_of(p, cut, parts) for p in work.products)
    return kernel_seconds(machine.device, replace(work, products=products, read=read, written=written)).seconds


def _part_of(product: MatrixProduct, cut: EinsumIndex, parts: int) -> MatrixProduct:
    """A product whose index ``cut`` runs over one of ``parts``."""
    left, right = cut.dims
    if cut.result is None:
        return replace(product, k=-(-product.k // parts))
    if left is not None and right is not None:
        return replace(product, batch=-(-product.batch // parts))
    if left is not None:
        return replace(product, m=-(-product.m // parts))
    return replace(product, n=-(-product.n // parts))


def _carried_seconds(machine: Machine, nbytes: int) -> float:
    """A part that has come is put where the next step of the loop looks for it."""
    device = machine.device
    return 2 * nbytes / (device.memory_bandwidth * device.memory_share)


def _least(choice: Choice, times: _Times | None, ring: Ring) -> Ring | None:
    """The fastest form; ``always`` leaves only the question of directions."""
    n = ring.members
    both = Ring(ring.groups, ring.size, both=True)
    if times is None:
        if choice != "always":
            return None
        return both if n > 3 else ring
    rows = [(times.one_way(n, times.part), ring)]
    if n > 2:
        rows.append((times.two_ways(n, times.part), both))
    seconds, best = min(rows, key=lambda row: row[0])
    limit = math.inf if choice == "always" else (1 - _WORTH) * times.one_after_the_other(n)
    return best if seconds < limit else None
