"""Who talks to whom in a collective: replica groups and permutation pairs as plain data.

Groups over mesh axes stay symbolic (`AxisGroups`, `AxisPairs`), so their size in the program does not depend on
the number of devices; `expand` is for run time and for notations that need explicit lists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.ir.mesh import Mesh, check_listable
from shardc.hlo.ir.sharding import AxisRef

__all__ = [
    "AxisGroups",
    "AxisPairs",
    "IotaGroups",
    "ListGroups",
    "ListPairs",
    "Pairs",
    "ReplicaGroups",
    "groups_grid",
]


def groups_grid(mesh: Mesh, axes: Sequence[AxisRef]) -> NDArray[np.int64]:
    """Device ids as (groups, members): members vary over ``axes`` (major to minor), groups over the rest."""
    dims: list[int] = []
    refs: list[AxisRef] = []
    for name, size in mesh.axes:
        cuts = {1, size}
        for a in axes:
            if a.name == name and not a.is_full:
                cuts |= {a.pre, a.pre * a.size}
        marks = sorted(cuts)
        for lo, hi in pairwise(marks):
            dims.append(hi // lo)
            refs.append(AxisRef(name, lo, hi // lo))
    members: list[int] = []
    for a in axes:
        pre, extent = (1, mesh.axis_size(a.name)) if a.is_full else (a.pre, a.size)
        members += [i for i, r in enumerate(refs) if r.name == a.name and pre <= r.pre < pre * extent]
    others = [i for i in range(len(dims)) if i not in members]
    grid = mesh.grid().reshape(dims).transpose(others + members)
    return grid.reshape(-1, math.prod(dims[i] for i in members))


@dataclass(frozen=True, slots=True)
class AxisGroups:
    """Devices that differ only along ``axes``; the position in a group counts over ``axes`` from major to minor."""

    mesh: Mesh
    axes: tuple[AxisRef, ...]

    @property
    def group_size(self) -> int:
        return math.prod(a.extent(self.mesh) for a in self.axes)

    @property
    def num_groups(self) -> int:
        return self.mesh.size // self.group_size

    def expand(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(int(d) for d in row) for row in groups_grid(self.mesh, self.axes))


@dataclass(frozen=True, slots=True)
class IotaGroups:
    """HLO's V2 form ``[groups,size]<=[reshape]T(transpose)``."""

    num_groups: int
    group_size: int
    reshape: tuple[int, ...]
    transpose: tuple[int, ...] = ()

    @property
    def num_devices(self) -> int:
        return self.num_groups * self.group_size

    def expand(self) -> tuple[tuple[int, ...], ...]:
        check_listable(self.num_devices, "groups")
        ids = np.arange(self.num_devices).reshape(self.reshape)
        if self.transpose:
            ids = ids.transpose(self.transpose)
        return tuple(tuple(int(d) for d in row) for row in ids.reshape(self.num_groups, self.group_size))


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Explicit groups ``{{0,1},{2,3}}``; no groups means one group of everybody."""

    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def num_groups(self) -> int:
        return len(self.groups)

    @property
    def group_size(self) -> int:
        """Size of the first group, 0 when the group is everybody."""
        return len(self.groups[0]) if self.groups else 0

    def expand(self) -> tuple[tuple[int, ...], ...]:
        return self.groups


ReplicaGroups = AxisGroups | IotaGroups | ListGroups


@dataclass(frozen=True, slots=True)
class AxisPairs:
    """The same permutation in every group over ``axes``: member ``s`` sends to member ``t`` for (s, t) in ``pairs``."""

    mesh: Mesh
    axes: tuple[AxisRef, ...]
    pairs: tuple[tuple[int, int], ...]

    @property
    def group_size(self) -> int:
        return math.prod(a.extent(self.mesh) for a in self.axes)

    def expand(self) -> tuple[tuple[int, int], ...]:
        grid = groups_grid(self.mesh, self.axes)
        return tuple((int(row[s]), int(row[t])) for row in grid for s, t in self.pairs)


@dataclass(frozen=True, slots=True)
class ListPairs:
    """Explicit ``source_target_pairs={{0,1},{1,2}}`` over device ids."""

    pairs: tuple[tuple[int, int], ...]

    def expand(self) -> tuple[tuple[int, int], ...]:
        return self.pairs


Pairs = AxisPairs | ListPairs
