"""What moves cost: bytes and number of collectives, or seconds on a machine and number of collectives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from shardc.costs.machines.device import Device
from shardc.costs.machines.machine import Machine
from shardc.costs.network.collective_cost import CollectiveLaws, laws_of_extents
from shardc.costs.network.mapping import place
from shardc.costs.network.placement import GroupExtent, Placement
from shardc.costs.network.topology import Links
from shardc.hlo.ir.types import DType
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.reshard.lower_bound import Boundary
from shardc.partitioner.reshard.moves import (
    AllToAll,
    Cost,
    Gather,
    PadPart,
    ReduceScatter,
    ReshardStep,
    collectives_of,
    count_sent_bytes,
    move_cost,
)

__all__ = ["Bytes", "Price", "Seconds"]


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes that one device sends: the same answer on every machine."""

    table: AxisTable

    def step(self, dims: tuple[int, ...], nbytes: int, step: ReshardStep) -> Cost:
        """One move of an array of ``dims`` with elements of ``nbytes``."""
        return move_cost(self.table, dims, nbytes, step)

    def collective(self, opcode: str, nbytes: int, atoms: Atoms) -> float:
        """One collective over ``atoms`` with a local result of ``nbytes``."""
        return count_sent_bytes(opcode, nbytes, self.table.extent(atoms))

    def own(self, cost: Cost, opcode: str) -> Cost:
        """What an operation says that it sends: bytes and collectives."""
        return cost

    def busy(self, seconds: Callable[[Device], float]) -> float:
        """What an operation says that a device computes: no bytes."""
        return 0.0

    def boundaries(self) -> tuple[Boundary, ...]:
        """What a device holds is free for it, all else costs its bytes."""
        return (Boundary(frozenset(range(self.table.count)), 1, 0.0, 1.0),)

    def memory(self) -> float:
        """Bytes of a device; unknown."""
        return 0.0

    def rate(self, dtype: DType, product: str | None) -> float:
        """Arithmetic takes no bytes."""
        return 0.0


class Seconds:
    """Modelled time on a machine whose devices lie along the mesh as they do by default (`place`).

    Raises `InputError` where the mesh does not fit the machine.
    """

    def __init__(self, table: AxisTable, machine: Machine) -> None:
        self.table = table
        self.machine = machine
        self.placement: Placement = place(machine, table.mesh)
        self._known: dict[tuple[str, int, Atoms], float] = {}
        self._choices: dict[tuple[str, Atoms], CollectiveLaws] = {}
        self._parts: dict[Atoms, tuple[GroupExtent, ...]] = {}

    def step(self, dims: tuple[int, ...], nbytes: int, step: ReshardStep) -> Cost:
        """One move of an array of ``dims`` with elements of ``nbytes``, and what it takes to rearrange them."""
        total, count = self.travel(dims, nbytes, step)
        return (total + self.rearranged(dims, nbytes, step), count)

    def travel(self, dims: tuple[int, ...], nbytes: int, step: ReshardStep) -> Cost:
        """The collectives of one move, and what is written beside them."""
        total, count = 0.0, 0
        for t in collectives_of(self.table, dims, nbytes, step):
            total += t.times * self.collective(t.opcode, t.nbytes, t.atoms)
            count += t.times
        if isinstance(step.move, PadPart):  # sends nothing, and writes many times what it is made from
            padded = nbytes * math.prod(self.table.local_dims(step.after, dims))
            total += 2 * padded / self.machine.device.memory_bandwidth
        return (total, count)

    def rearranged(self, dims: tuple[int, ...], nbytes: int, step: ReshardStep) -> float:
        """What it takes to lay the parts of one move one beside the other; those of the first dimension lie so."""
        move, local = step.move, [self.table.local_dims(x, dims) for x in (step.before, step.after)]
        inner = isinstance(move, Gather | ReduceScatter) and math.prod(local[0][: move.dim]) > 1
        if not (inner or isinstance(move, AllToAll)):
            return 0.0
        return self.launch_seconds + 2 * nbytes * max(map(math.prod, local)) * self.second_per_byte

    def collective(self, opcode: str, nbytes: int, atoms: Atoms) -> float:
        """One collective over ``atoms`` with a local result of ``nbytes``."""
        key = (opcode, nbytes, atoms)
        seconds = self._known.get(key)
        if seconds is None:
            choice = self._choices.get((opcode, atoms))
            if choice is None:
                choice = laws_of_extents(self.placement, opcode, self._parts_of(atoms))
                self._choices[opcode, atoms] = choice
            seconds = self._known[key] = choice.seconds(nbytes)
        return seconds

    def links(self, atoms: Atoms) -> Links:
        """The outermost links that groups over ``atoms`` use."""
        parts = self._parts_of(atoms)
        return parts[-1].links if parts else self.placement.links[0]

    def own(self, cost: Cost, opcode: str) -> Cost:
        """Among all devices; what an all-to-all sends is written in one order, and read in another."""
        nbytes, count = cost
        if not count or not math.isfinite(nbytes):
            return cost
        sent = count * self.collective(opcode, math.ceil(nbytes / count), tuple(range(self.table.count)))
        if opcode == "all-to-all":
            sent += count * self.launch_seconds + 2 * nbytes * self.second_per_byte
        return (sent, count)

    def busy(self, seconds: Callable[[Device], float]) -> float:
        """What an operation says that a device computes."""
        return seconds(self.machine.device)

    def boundaries(self) -> tuple[Boundary, ...]:
        """Around each device, and around the devices that meet below each level; measured costs have no such bound."""
        table, links = self.table, self.placement.links
        every = range(table.count)
        if self.machine.measured is not None:
            return (Boundary(frozenset(every), 1, 0.0, 0.0),)
        levels = {a: min((p.links.level for p in self._parts_of((a,))), default=0) for a in every}
        out: list[Boundary] = []
        for n in sorted({x.level for x in links if x.size > 1} | {0}):
            outer = frozenset(a for a in every if levels[a] >= n)
            beyond = [x for x in links if x.level >= n and x.size > 1]
            rate = sum(x.bandwidth * len(x.resources) for x in beyond)
            if outer and beyond:
                inside = table.mesh.size // table.extent(sorted(outer))
                out.append(Boundary(outer, inside, min(x.latency for x in beyond), 1 / rate))
        return tuple(out)

    @property
    def second_per_byte(self) -> float:
        """What a long stream of bytes takes from or to a device's memory."""
        device = self.machine.device
        return 1 / (device.memory_bandwidth * device.memory_share)

    @property
    def launch_seconds(self) -> float:
        """What a kernel waits before its first operation."""
        device = self.machine.device
        return device.launch_seconds + device.memory_latency

    def memory(self) -> float:
        """Bytes of a device."""
        return float(self.machine.device.memory_bytes)

    def rate(self, dtype: DType, product: str | None) -> float:
        """Seconds per element that is read and written, or per multiplication and addition of a ``product`` of this
        rate (`product_rate`)."""
        device = self.machine.device
        if product is None:
            return 2 * dtype.nbytes / device.memory_bandwidth
        return 2 / (device.peak(product) * device.matrix.share or device.memory_bandwidth)

    def _parts_of(self, atoms: Atoms) -> tuple[GroupExtent, ...]:
        found = self._parts.get(atoms)
        if found is None:
            table = self.table
            strides = [(table.extent(range(a + 1, table.count)), table.extents[a]) for a in sorted(atoms, reverse=True)]
            found = self._parts[atoms] = self.placement.parts_along(tuple(strides))
        return found


Price = Bytes | Seconds
