"""What a collective costs where a mesh lies on a machine: the fastest algorithm, and the links it keeps busy.

Every algorithm is a law ``start + bytes * per_byte`` (`shardc.costs.network.algorithms`), found once per group and
opcode; a cost is then a minimum over a handful of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from shardc.costs.machines.measured import Measured
from shardc.costs.network.algorithms import Law, laws
from shardc.costs.network.measured_collectives import measured_collective
from shardc.costs.network.placement import GroupExtent, Groups, Placement
from shardc.costs.network.routes import neighbour_law, permute_law
from shardc.hlo.ir.groups import AxisGroups, AxisPairs

__all__ = ["CollectiveLaws", "Estimate", "Load", "collective_cost", "laws_of_extents"]


@dataclass(frozen=True, slots=True, order=True)
class Load:
    """A resource (one kind of links, along a torus in one direction) that works for ``seconds``."""

    resource: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a collective takes that has its links for itself.

    ``seconds`` with latencies; each of ``loads`` is what some links work at their full rate, never more than that.
    ``link_bytes``: by links what one device sends over them, on average.
    """

    seconds: float
    algorithm: str
    loads: tuple[Load, ...] = ()
    link_bytes: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), hash=False)


_NOTHING = Estimate(0.0, "none")


def collective_cost(placement: Placement, opcode: str, nbytes: float, groups: Groups = None) -> Estimate:
    """The fastest way for a collective with a local result of ``nbytes``; groups of one cost nothing.

    ``groups`` are the program's replica groups or source-target pairs, or listed ones; None is everybody.

    Example: ``collective_cost(place(load_machine("h100-dgx"), mesh), "all-gather", 1e9, groups).seconds``.
    """
    opcode = opcode.removesuffix("-start")
    key = (opcode, groups)
    found: CollectiveLaws | None = placement.memory.get(key)
    if found is None:
        found = placement.memory[key] = _choice(placement, opcode, groups)
    return found.cost(nbytes)


def laws_of_extents(placement: Placement, opcode: str, parts: tuple[GroupExtent, ...]) -> CollectiveLaws:
    """What `collective_cost` chooses from for a group that meets at ``parts``, for those who ask for many sizes.

    Of a permute that is all that is known: it may go from one neighbour to the next along the outermost links.
    """
    opcode = opcode.removesuffix("-start")
    key = (opcode, parts)
    found: CollectiveLaws | None = placement.memory.get(key)
    if found is None:
        found = placement.memory[key] = _choice_of_parts(placement, opcode, parts)
    return found


@dataclass(frozen=True, slots=True)
class CollectiveLaws:
    """The laws of one collective of one group; on a calibrated computer what was measured counts instead."""

    opcode: str
    members: int
    laws: tuple[Law, ...]
    devices: int
    measured: Measured | None = None

    def seconds(self, nbytes: float) -> float:
        """Those of `cost`."""
        if self.measured is not None:
            return self.cost(nbytes).seconds
        return min((law.start + nbytes * law.per_byte for law in self.laws), default=0.0)

    def cost(self, nbytes: float) -> Estimate:
        """The fastest law, the first of equals."""
        if not self.laws:
            return _NOTHING
        law = min(self.laws, key=lambda law: law.start + nbytes * law.per_byte)
        sent = MappingProxyType({k: float(nbytes * v) for k, v in law.sent.items()})
        if self.measured is not None:
            seconds = measured_collective(self.measured, self.opcode, nbytes, self.members, self.devices)
            loads = tuple(Load(r, seconds) for r in law.busy)
            return Estimate(seconds, "measured", loads, sent)
        loads = tuple(Load(r, nbytes * s) for r, s in law.busy.items())
        return Estimate(law.start + nbytes * law.per_byte, law.algorithm, loads, sent)


def _choice(placement: Placement, opcode: str, groups: Groups) -> CollectiveLaws:
    if opcode != "collective-permute" or isinstance(groups, AxisGroups):
        return _choice_of_parts(placement, opcode, placement.parts(groups))
    law = permute_law(placement, groups)
    members = groups.group_size if isinstance(groups, AxisPairs) else placement.devices
    made = _with_start(placement, (law,)) if law.busy else ()
    return CollectiveLaws(opcode, members, made, placement.devices, placement.machine.measured)


def _choice_of_parts(placement: Placement, opcode: str, parts: tuple[GroupExtent, ...]) -> CollectiveLaws:
    members = math.prod(p.members for p in parts)
    made: tuple[Law, ...] = ()
    if parts and opcode == "collective-permute":
        made = (neighbour_law(parts[-1]),)
    elif parts:
        made = laws(opcode, parts)
    return CollectiveLaws(opcode, members, _with_start(placement, made), placement.devices, placement.machine.measured)


def _with_start(placement: Placement, made: tuple[Law, ...]) -> tuple[Law, ...]:
    """With what it takes to start a collective on the links that it uses."""
    links = placement.links
    return tuple(replace(law, start=law.start + max(x.start for x in links if x.name in law.sent)) for law in made)
