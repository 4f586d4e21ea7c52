"""What moves cost: bytes and number of collectives, or seconds on a machine and number of collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shardc.collectives.cost import collective_cost, members_by_level
from shardc.collectives.machine import Level, Machine
from shardc.hlo.types import DType
from shardc.partitioner.layout import Atoms, AxisTable
from shardc.partitioner.lower_bound import Boundary
from shardc.partitioner.moves import Cost, Step, move_cost, sent, transfers

__all__ = ["Bytes", "Price", "Seconds"]


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes that one device sends: the same answer on every machine."""

    table: AxisTable

    def step(self, dims: tuple[int, ...], nbytes: int, step: Step) -> Cost:
        """One move of an array of ``dims`` with elements of ``nbytes``."""
        return move_cost(self.table, dims, nbytes, step)

    def collective(self, opcode: str, nbytes: int, atoms: Atoms) -> float:
        """One collective over ``atoms`` with a local result of ``nbytes``."""
        return sent(opcode, nbytes, self.table.extent(atoms))

    def own(self, cost: Cost) -> Cost:
        """What an operation says that it sends: bytes and collectives."""
        return cost

    def boundaries(self) -> tuple[Boundary, ...]:
        """What a device holds is free for it, all else costs its bytes."""
        return (Boundary(frozenset(range(self.table.count)), 1, 0.0, 1.0),)

    def memory(self) -> float:
        """Bytes of a device; unknown."""
        return 0.0

    def rate(self, dtype: DType, *, products: bool) -> float:
        """Arithmetic takes no bytes."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Seconds:
    """Modelled time on a machine whose devices lie along the mesh, row-major."""

    table: AxisTable
    machine: Machine
    _known: dict[tuple[str, int, Atoms], float] = field(default_factory=dict, compare=False, repr=False)

    def step(self, dims: tuple[int, ...], nbytes: int, step: Step) -> Cost:
        total, count = 0.0, 0
        for t in transfers(self.table, dims, nbytes, step):
            total += t.times * self.collective(t.opcode, t.nbytes, t.atoms)
            count += t.times
        return (total, count)

    def collective(self, opcode: str, nbytes: int, atoms: Atoms) -> float:
        """One collective over ``atoms`` with a local result of ``nbytes``."""
        key = (opcode, nbytes, atoms)
        seconds = self._known.get(key)
        if seconds is None:
            members = self._members(atoms)
            seconds = self._known[key] = collective_cost(self.machine, opcode, nbytes, members).seconds
        return seconds

    def links(self, atoms: Atoms) -> Level:
        """The outermost links that groups over ``atoms`` use."""
        met = [level for level, g in zip(self.machine.levels, self._members(atoms), strict=True) if g > 1]
        return met[-1] if met else self.machine.levels[0]

    def own(self, cost: Cost) -> Cost:
        """Between neighbours that may be as far apart as the mesh allows."""
        nbytes, count = cost
        around = self._members(range(self.table.count))
        level = max((n for n, g in enumerate(around) if g > 1), default=0)
        links = self.machine.levels[level]
        return (nbytes / links.bandwidth + count * links.latency, count)

    def boundaries(self) -> tuple[Boundary, ...]:
        """Around each device, and around the devices that meet below each level."""
        table, levels = self.table, self.machine.levels
        out: list[Boundary] = []
        inside = 1
        for n, level in enumerate(levels):
            outer = frozenset(a for a in range(table.count) if table.extent(range(a + 1, table.count)) >= inside)
            start, fastest = min(x.latency for x in levels[n:]), max(x.bandwidth for x in levels[n:])
            if outer:
                out.append(Boundary(outer, inside, start, 1 / fastest))
            inside *= max(level.size, 1)
        return tuple(out)

    def memory(self) -> float:
        """Bytes of a device."""
        return float(self.machine.device.memory_bytes)

    def rate(self, dtype: DType, *, products: bool) -> float:
        """Seconds per element that is read and written, or per multiplication and addition of ``products``."""
        device = self.machine.device
        if not products:
            return 2 * dtype.nbytes / device.memory_bandwidth
        return 2 / device.flops.get(dtype.name, min(device.flops.values(), default=device.memory_bandwidth))

    def _members(self, atoms: Sequence[int] | Atoms) -> tuple[int, ...]:
        table = self.table
        strides = [(table.extent(range(a + 1, table.count)), table.extents[a]) for a in sorted(atoms, reverse=True)]
        return members_by_level(self.machine, strides)


Price = Bytes | Seconds
