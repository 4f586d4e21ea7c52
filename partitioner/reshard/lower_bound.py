"""What a reshard must cost at least, whatever moves it is made of: the admissible bound of the A* in `search`.

Devices lie in groups (single ones, those of one node, ...). What a group's devices need and none of them holds must
cross the group's *boundary*; how much that is follows from the axes that tell groups apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.partitioner.emit.layout import Atoms, AxisLayout, AxisTable

__all__ = ["Boundary", "at_least"]


@dataclass(frozen=True, slots=True)
class Boundary:
    """Groups of ``inside`` devices that the atoms ``outer`` tell apart.

    What crosses costs ``start`` once and ``per_byte`` for each byte of each device.
    """

    outer: frozenset[int]
    inside: int
    start: float
    per_byte: float


def at_least(
    table: AxisTable, boundaries: tuple[Boundary, ...], nbytes: tuple[int, int], ends: tuple[AxisLayout, AxisLayout]
) -> float:
    """The least cost from one layout to the other of an array with ``nbytes`` as a whole and per target shard."""
    state, target = ends
    whole, shard = nbytes
    most = 0.0
    for boundary in boundaries:
        # Of what is partial in the end, groups may need one share each.
        shared = [a for a in target.unreduced if a in boundary.outer]
        inner = table.extent(a for a in sorted(target.used) if a not in boundary.outer)
        needed = shard * inner / table.extent(shared)
        crossing = needed * (1 - _held(table, boundary.outer.difference(shared), state, target)) / boundary.inside
        if state.unreduced:
            crossing = max(crossing, _to_reduce(table, boundary, whole, ends) / boundary.inside)
        if crossing > 0:
            most = max(most, boundary.start + crossing * boundary.per_byte)
    return most


def _held(table: AxisTable, outer: frozenset[int], state: AxisLayout, target: AxisLayout) -> float:
    """The part of what its devices need that some group holds already."""
    held = 1
    for old, new in zip(state.dims, target.dims, strict=True):
        common = 0
        while common < min(len(old), len(new)) and old[common] == new[common]:
            common += 1
        if common == len(old):
            continue
        if common < len(new) and old[common] in outer and new[common] in outer:
            # Both go on with other axes: some group holds nothing of what it needs.
            return 0.0
        held *= table.extent(a for a in old[common:] if a in outer)
    return 1 / held


def _to_reduce(table: AxisTable, boundary: Boundary, whole: int, ends: tuple[AxisLayout, AxisLayout]) -> float:
    """Bytes that the average group must send to add partial values up and to bring sums to those that need them."""
    state, target = ends
    same = state.reduction == target.reduction
    kept = [a for a in state.unreduced if a in boundary.outer and same and a in target.unreduced]
    partial = table.extent(a for a in state.unreduced if a in boundary.outer and a not in kept)
    if partial == 1:
        return 0.0
    groups = table.mesh.size / boundary.inside
    copies = groups / table.extent(a for a in _all(target) if a in boundary.outer)
    # What stays partial is sent as it is, or added up first and made partial again in the end.
    members = table.extent(kept)
    return whole * min(members * (partial + copies - 2), members * partial + copies - 2) / groups


def _all(layout: AxisLayout) -> Atoms:
    return (*sorted(layout.used), *layout.unreduced)
