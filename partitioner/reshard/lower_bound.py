"""What a reshard must cost at least, whatever moves it is made of: the admissible bound of the A* in `search`.

Devices lie in groups (single ones, those of one node, ...). What a group's devices need and none of them holds must
cross the group's *boundary*; how much that is follows from the axes that tell groups apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.partitioner.emit.layout import Atoms, AxisLayout, AxisTable

__all__ = ["Boundary", "LowerBounds"]

_Array = NDArray[np.float64]
#: What crosses a boundary, per byte of a target shard and per byte of the whole array; the larger one counts.
_Crossing = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Boundary:
    """Groups of ``inside`` devices that the atoms ``outer`` tell apart.

    What crosses costs ``start`` once and ``per_byte`` for each byte of each device.
    """

    outer: frozenset[int]
    inside: int
    start: float
    per_byte: float


class LowerBounds:
    """The bounds between layouts of one table: what of an array crosses each boundary depends on the layouts alone, and
    is remembered."""

    def __init__(self, table: AxisTable, boundaries: tuple[Boundary, ...]) -> None:
        self.table = table
        self.boundaries = boundaries
        self._crossings: dict[tuple[AxisLayout, AxisLayout], tuple[_Crossing, ...]] = {}
        self._arrays: dict[tuple[tuple[AxisLayout, ...], tuple[AxisLayout, ...]], _Array] = {}
        self._held: dict[tuple[frozenset[int], Atoms, Atoms], float] = {}

    def least(self, whole: float, shard: float, state: AxisLayout, target: AxisLayout) -> float:
        """The least cost from one layout to the other of an array of ``whole`` bytes, ``shard`` per target shard."""
        most = 0.0
        for boundary, (of_shard, of_whole) in zip(self.boundaries, self.crossings(state, target), strict=True):
            crossing = max(shard * of_shard, whole * of_whole)
            if crossing > 0:
                most = max(most, boundary.start + crossing * boundary.per_byte)
        return most

    def least_of_all(
        self, whole: float, shards: Sequence[float], states: tuple[AxisLayout, ...], targets: tuple[AxisLayout, ...]
    ) -> _Array:
        """`least` from each of ``states`` to each of ``targets``, whose ``shards`` have so many bytes."""
        key = (states, targets)
        parts = self._arrays.get(key)
        if parts is None:
            parts = self._arrays[key] = np.array([[self.crossings(a, b) for b in targets] for a in states])
        most = np.zeros(parts.shape[:2])
        for k, boundary in enumerate(self.boundaries):
            crossing = np.maximum(np.asarray(shards) * parts[:, :, k, 0], whole * parts[:, :, k, 1])
            most = np.maximum(most, np.where(crossing > 0, boundary.start + crossing * boundary.per_byte, 0.0))
        return most

    def crossings(self, state: AxisLayout, target: AxisLayout) -> tuple[_Crossing, ...]:
        """What each device must get across each boundary, at least: parts of a target shard, and of the whole array."""
        key = (state, target)
        found = self._crossings.get(key)
        if found is None:
            found = self._crossings[key] = tuple(self._cross(b, state, target) for b in self.boundaries)
        return found

    def _cross(self, boundary: Boundary, state: AxisLayout, target: AxisLayout) -> _Crossing:
        if state is target:
            return 0.0, 0.0
        table, outer = self.table, boundary.outer
        # Of what is partial in the end, groups may need one share each.
        shared = tuple(a for a in target.unreduced if a in outer)
        inner = table.extent(a for a in sorted(target.used) if a not in outer)
        apart = outer.difference(shared) if shared else outer
        held = math.prod(self._hold(apart, old, new) for old, new in zip(state.dims, target.dims, strict=True))
        needed = inner / table.extent(shared) * (1 - held) / boundary.inside
        return needed, self._reduce(boundary, state, target) / boundary.inside if state.unreduced else 0.0

    def _hold(self, outer: frozenset[int], old: Atoms, new: Atoms) -> float:
        """The part of what its devices need along a dimension that some group holds already."""
        if not old or old == new[: len(old)]:
            return 1.0
        key = (outer, old, new)
        found = self._held.get(key)
        if found is None:
            common = 0
            while common < min(len(old), len(new)) and old[common] == new[common]:
                common += 1
            if common < len(new) and old[common] in outer and new[common] in outer:
                found = 0.0  # both go on with other axes: some group holds nothing of what it needs
            else:
                found = 1 / self.table.extent(a for a in old[common:] if a in outer)
            self._held[key] = found
        return found

    def _reduce(self, boundary: Boundary, state: AxisLayout, target: AxisLayout) -> float:
        """The part of all bytes that the average group must send to add partial values up and to bring sums to those
        that need them."""
        table = self.table
        same = state.reduction == target.reduction
        kept = [a for a in state.unreduced if a in boundary.outer and same and a in target.unreduced]
        partial = table.extent(a for a in state.unreduced if a in boundary.outer and a not in kept)
        if partial == 1:
            return 0.0
        groups = table.mesh.size / boundary.inside
        copies = groups / table.extent(a for a in _all(target) if a in boundary.outer)
        # What stays partial is sent as it is, or added up first and made partial again in the end.
        members = table.extent(kept)
        return min(members * (partial + copies - 2), members * partial + copies - 2) / groups


def _all(layout: AxisLayout) -> Atoms:
    return (*sorted(layout.used), *layout.unreduced)
