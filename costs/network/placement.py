"""Where a mesh lies on a machine: each axis on links, and where the groups of a collective then meet.

A *piece* is a part of a mesh axis along one dimension of the grid of devices (`Links`): an axis of 64 over nodes of
eight has a piece of eight between nodes and one of eight within. Groups over mesh axes, and listed groups that are as
regular, are products of parts of pieces; nothing here lists devices unless a group is neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from shardc.costs.machines.machine import Machine
from shardc.costs.network.topology import Links
from shardc.hlo.ir.groups import AxisGroups, AxisPairs, IotaGroups, ListGroups, ListPairs
from shardc.hlo.ir.mesh import Mesh, check_listable
from shardc.hlo.ir.sharding import AxisRef

__all__ = ["AxisPiece", "GroupExtent", "Groups", "Placement", "Strides"]

#: Who takes part: groups or pairs as in the program, listed, or everybody.
Groups = AxisGroups | AxisPairs | IotaGroups | ListGroups | ListPairs | tuple[tuple[int, ...], ...] | None

#: (distance between positions in the mesh, members) of the axes of a group.
Strides = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class AxisPiece:
    """``size`` positions of a mesh axis: ``apart`` in the mesh, ``stride`` along ``links`` (their number)."""

    axis: str
    links: int
    size: int
    apart: int
    stride: int


@dataclass(frozen=True, slots=True)
class GroupExtent:
    """What a group does along one dimension of the grid: ``members`` of it meet there.

    Of a torus: every link is shared by as many groups as lie between one another (``shared``), a step to the next
    member passes that many links, and the group goes ``around`` the whole dimension or lies along a piece of it.
    """

    links: Links
    members: int
    around: bool = False
    shared: int = 1


@dataclass(frozen=True)
class Placement:
    """A machine of the mesh's size and where each axis of the mesh lies on it; see
    `shardc.costs.network.mapping.place`.

    ``links`` come innermost first; ``pieces`` in the order of the mesh's axes, major to minor.
    """

    machine: Machine
    mesh: Mesh
    links: tuple[Links, ...]
    pieces: tuple[AxisPiece, ...]
    _known: dict[object, tuple[GroupExtent, ...]] = field(default_factory=dict, compare=False, repr=False)
    #: What whoever asks for costs remembers here.
    memory: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def devices(self) -> int:
        return self.mesh.size

    @property
    def title(self) -> str:
        """The machine with its size. Example: ``tpu-v5p:64 (4x4x4)``."""
        names = [f"{n.size}" for n in reversed(self.links) if n.torus]
        slices = math.prod(n.size for n in self.links if not n.torus)
        inside = self.devices // slices if names else self.devices
        count = f"{slices}x{inside}" if names and slices > 1 else str(self.devices)
        return f"{self.machine.name}:{count}" + (f" ({'x'.join(names)})" if len(names) > 1 else "")

    def describe(self) -> dict[str, str]:
        """By axis the links it lies on, outermost first. Example: ``{"data": "dcn", "tensor": "torus y,z"}``."""
        out: dict[str, str] = {}
        for axis, size in self.mesh.axes:
            found: dict[str, list[str]] = {}
            for piece in self.pieces:
                if piece.axis != axis:
                    continue
                links = self.links[piece.links]
                level, _, dim = links.name.partition(" ") if links.torus else (links.name, "", "")
                part = f" ({piece.size} of {links.size})" if piece.size < links.size else ""
                found.setdefault(level, []).append(dim + part)
            texts = [f"{level} {','.join(dims)}".replace("  ", " ").strip() for level, dims in found.items()]
            out[axis] = " + ".join(texts) if size > 1 else "-"
        return out

    def strides(self, axes: Iterable[AxisRef]) -> Strides:
        """Distances between positions of the mesh along axes and sub-axes of it."""
        inner, left = {}, self.mesh.size
        for name, size in self.mesh.axes:
            left //= size
            inner[name] = (left, size)
        out = []
        for axis in axes:
            apart, size = inner[axis.name]
            extent = axis.extent(self.mesh)
            out.append((apart * (size // (axis.pre * extent) if not axis.is_full else 1), extent))
        return tuple(out)

    def parts(self, groups: Groups) -> tuple[GroupExtent, ...]:
        """Where the members of a group meet, innermost first. Of groups that lie differently, those of the first."""
        key = groups if not isinstance(groups, AxisGroups | AxisPairs) else (groups.axes, groups.mesh)
        found = self._known.get(key)
        if found is None:
            if isinstance(groups, AxisGroups | AxisPairs) and groups.mesh.axes == self.mesh.axes:
                found = self.parts_along(self.strides(groups.axes))
            else:
                listed = () if groups is None else groups if isinstance(groups, tuple) else groups.expand()
                found = self.parts_of(listed[0] if listed else range(self.devices))
            self._known[key] = found
        return found

    def parts_along(self, strides: Strides) -> tuple[GroupExtent, ...]:
        """`parts` of a group whose positions in the mesh are sums of multiples of ``strides``."""
        covered: dict[int, list[tuple[int, int]]] = {}
        for apart, extent in strides:
            for piece in self.pieces:
                low, high = max(piece.apart, apart), min(piece.apart * piece.size, apart * extent)
                if low >= high:
                    continue
                if high % low or low % piece.apart or (apart * extent) % high or low % apart:
                    check_listable(math.prod(n for _, n in strides), "a group that lies unevenly on the machine")
                    positions = [0]
                    for a, n in strides:
                        positions = [p + k * a for k in range(n) for p in positions]
                    return self._parts_at(positions)
                step = piece.stride * (low // piece.apart)
                covered.setdefault(piece.links, []).append((step, high // low))
        return tuple(self._part(n, covered[n]) for n in sorted(covered))

    def parts_of(self, devices: Sequence[int]) -> tuple[GroupExtent, ...]:
        """`parts` of a group that is given as device numbers."""
        if len(devices) < 2:
            return ()
        positions = sorted(self._positions(devices))
        strides = _strides(positions)
        return self._parts_at(positions) if strides is None else self.parts_along(strides)

    def coordinates(self, devices: Iterable[int]) -> list[tuple[int, ...]]:
        """Where devices are in the grid, one number for each of ``links``."""
        return [self.at(p) for p in self._positions(devices)]

    def _positions(self, devices: Iterable[int]) -> list[int]:
        """Places in the mesh of device numbers."""
        ids = self.mesh.device_ids
        if ids is None:
            return list(devices)
        place = {d: p for p, d in enumerate(ids)}
        return [place[d] for d in devices]

    def at(self, position: int) -> tuple[int, ...]:
        """Where a position of the mesh is in the grid."""
        out = [0] * len(self.links)
        for piece in self.pieces:
            out[piece.links] += position // piece.apart % piece.size * piece.stride
        return tuple(out)

    def _part(self, number: int, steps: Sequence[tuple[int, int]]) -> GroupExtent:
        links = self.links[number]
        members = math.prod(n for _, n in steps)
        if not links.torus:
            return GroupExtent(links, members)
        span = max(step * n for step, n in steps)
        return GroupExtent(links, members, links.around and span == links.size, span // members)

    def _parts_at(self, positions: Sequence[int]) -> tuple[GroupExtent, ...]:
        """Counts of a group that lies unevenly: along each dimension as many as meet at most."""
        at = [self.at(p) for p in positions]
        out = []
        for n, links in enumerate(self.links):
            met: dict[tuple[int, ...], set[int]] = {}
            for place in at:
                met.setdefault(place[n + 1 :], set()).add(place[n])
            most = max(met.values(), key=len)
            if len(most) < 2:
                continue
            span = max(most) - min(most) + 1
            shared = max(1, span // len(most)) if links.torus else 1
            out.append(GroupExtent(links, len(most), links.around and len(most) == links.size, shared))
        return tuple(out)


def _strides(positions: Sequence[int]) -> Strides | None:
    """Ascending positions as sums of multiples of strides; None where they are no such grid."""
    out: list[tuple[int, int]] = []
    low, count = positions[0], 1
    while count < len(positions):
        apart = positions[count] - low
        n = 1
        while n * count < len(positions) and positions[n * count] - low == n * apart:
            n += 1
        out.append((apart, n))
        count *= n
    if count != len(positions):
        return None
    made = sorted(low + sum(m) for m in product(*(range(0, a * n, a) for a, n in out)))
    return tuple(reversed(out)) if made == list(positions) else None
