"""Layouts: shardings in the form in which the partitioner computes.

Every mesh axis is cut into *atoms*, its smallest parts (prime factors that respect every sub-axis the program
uses), numbered major to minor over the whole mesh. A layout is then tuples of small integers, and refinement,
overlap and suffixes of sub-axes are plain tuple operations. `AxisTable` makes atoms, interns layouts (equal
layouts are the same object) and converts both ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import DTYPES, DType

__all__ = ["Atoms", "AxisLayout", "AxisTable"]

#: Numbers of atoms, major to minor.
Atoms = tuple[int, ...]


class AxisLayout:
    """Where one array lies: atoms per dimension, and atoms over which devices hold partial values.

    Interned by `AxisTable.layout`: compare with ``is``. ``reduction`` (sum, max, min) combines the partial values
    and is ``sum`` when there are none. ``used`` are the atoms that split a dimension.
    """

    __slots__ = ("dims", "reduction", "unreduced", "used")

    def __init__(self, dims: tuple[Atoms, ...], unreduced: Atoms, reduction: str) -> None:
        self.dims = dims
        self.unreduced = unreduced
        self.reduction = reduction
        self.used = frozenset(chain.from_iterable(dims))

    def __repr__(self) -> str:
        return f"Layout({self.dims}, unreduced={self.unreduced}:{self.reduction})"


class AxisTable:
    """The atoms of one mesh and the layouts over them.

    ``shardings`` are those of the program: their sub-axes decide where axes are cut. ``index`` is the type of
    positions: one that holds those in the program's longest dimension.
    """

    def __init__(self, mesh: Mesh, shardings: Iterable[Sharding] = (), index: DType = DTYPES["s32"]) -> None:
        self.mesh = mesh
        self.index = index
        self.extents: list[int] = []
        self.names: list[str] = []
        self._pre: list[int] = []
        self._of_axis: dict[str, Atoms] = {}
        self._positions: dict[Atoms, int] = {}
        self._layouts: dict[tuple[tuple[Atoms, ...], Atoms, str], AxisLayout] = {}
        self._local_dims: dict[tuple[AxisLayout, tuple[int, ...]], tuple[int, ...]] = {}
        self._converted: dict[Sharding, AxisLayout] = {}
        self._by_id: dict[int, tuple[Sharding, AxisLayout]] = {}
        cuts = _sub_axis_cuts(shardings)
        for name, size in mesh.axes:
            start = len(self.extents)
            for pre, extent in _atoms_of_axis(name, size, cuts.get(name, set())):
                self.extents.append(extent)
                self.names.append(name)
                self._pre.append(pre)
            self._of_axis[name] = tuple(range(start, len(self.extents)))

    @property
    def count(self) -> int:
        return len(self.extents)

    def includes(self, other: AxisTable) -> bool:
        """Whether the atoms of ``other`` are made of this table's own."""
        borders = set(zip(self.names, self._pre, strict=True))
        same = self.mesh == other.mesh and self.index == other.index
        return same and borders.issuperset(zip(other.names, other._pre, strict=True))

    def extent(self, atoms: Iterable[int]) -> int:
        """Number of positions over ``atoms`` together."""
        key = atoms if type(atoms) is tuple else tuple(atoms)
        found = self._positions.get(key)
        if found is None:
            found = self._positions[key] = math.prod(map(self.extents.__getitem__, key))
        return found

    def atoms(self, axes: Iterable[AxisRef]) -> Atoms:
        """The atoms of axes and sub-axes, in their order."""
        out: list[int] = []
        for axis in axes:
            own = self._of_axis[axis.name]
            if axis.is_full:
                out.extend(own)
            else:
                out.extend(a for a in own if axis.pre <= self._pre[a] < axis.pre * axis.size)
        return tuple(out)

    def axes(self, atoms: Sequence[int]) -> tuple[AxisRef, ...]:
        """Axes and sub-axes for ``atoms``, neighbours merged."""
        out: list[AxisRef] = []
        i = 0
        while i < len(atoms):
            j = i + 1
            while j < len(atoms) and atoms[j] == atoms[j - 1] + 1 and self.names[atoms[j]] == self.names[atoms[i]]:
                j += 1
            name, pre, size = self.names[atoms[i]], self._pre[atoms[i]], self.extent(atoms[i:j])
            full = size == self.mesh.axis_size(name)
            out.append(AxisRef(name) if full else AxisRef(name, pre, size))
            i = j
        return tuple(out)

    def axis_names(self, atoms: Sequence[int]) -> tuple[str, ...]:
        """Axes for ``atoms`` as text, for reasons and reports."""
        return tuple(str(a) for a in self.axes(atoms))

    def layout(self, dims: Iterable[Atoms], unreduced: Iterable[int] = (), reduction: str = "sum") -> AxisLayout:
        """The one layout object with these parts."""
        partial = tuple(sorted(unreduced))
        key = (tuple(dims), partial, reduction if partial else "sum")
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = AxisLayout(*key)
        return found

    def replicated(self, rank: int) -> AxisLayout:
        return self.layout(((),) * rank)

    def reduced(self, layout: AxisLayout) -> AxisLayout:
        """``layout`` without its partial values."""
        return self.layout(layout.dims) if layout.unreduced else layout

    def from_sharding(self, sharding: Sharding, where: str = "") -> AxisLayout:
        """The layout of a propagated sharding along its free axes; meshes other than this table's are unsupported."""
        known = self._by_id.get(id(sharding))
        if known is not None:
            return known[1]
        found = self._converted.get(sharding)
        if found is None:
            found = self._converted[sharding] = self._convert(sharding, where)
        self._by_id[id(sharding)] = (sharding, found)
        return found

    def _convert(self, sharding: Sharding, where: str) -> AxisLayout:
        if sharding.mesh.is_maximal:
            raise UnsupportedError(
                "a value is placed on one device (maximal sharding)",
                where=where,
                fix="replicate it or shard it over the mesh",
            )
        if sharding.mesh != self.mesh and sharding.used_axes():
            raise UnsupportedError(
                f"a value is sharded over mesh [{sharding.mesh}], but the program over mesh [{self.mesh}]",
                where=where,
                fix="use one mesh for the whole program",
            )
        return self.layout(
            (self.atoms(d.axes) for d in sharding.dims), self.atoms(sharding.unreduced), sharding.reduction
        )

    def to_sharding(self, layout: AxisLayout) -> Sharding:
        dims = tuple(DimSharding(self.axes(d)) for d in layout.dims)
        return Sharding(self.mesh, dims, (), self.axes(layout.unreduced), layout.reduction)

    def local_dims(self, layout: AxisLayout, dims: Sequence[int]) -> tuple[int, ...]:
        """Per-device dimensions of a global array: ceil(n / k) along each."""
        key = (layout, tuple(dims))
        found = self._local_dims.get(key)
        if found is None:
            parts = zip(dims, layout.dims, strict=True)
            found = self._local_dims[key] = tuple(-(-n // self.extent(atoms)) if atoms else n for n, atoms in parts)
        return found

    def is_uneven(self, atoms: Atoms, n: int) -> bool:
        """Whether some devices hold padding when ``n`` elements are split over ``atoms``."""
        return bool(atoms) and n % self.extent(atoms) != 0


def _sub_axis_cuts(shardings: Iterable[Sharding]) -> dict[str, set[int]]:
    cuts: dict[str, set[int]] = {}
    for sharding in shardings:
        for axis in sharding.used_axes():
            if not axis.is_full:
                cuts.setdefault(axis.name, set()).update((axis.pre, axis.pre * axis.size))
    return cuts


def _atoms_of_axis(name: str, size: int, cuts: set[int]) -> list[tuple[int, int]]:
    """(pre, extent) of each atom of an axis; the cuts must form a chain of divisors."""
    marks = sorted({1, size} | cuts)
    out: list[tuple[int, int]] = []
    for low, high in pairwise(marks):
        if high % low:
            raise UnsupportedError(
                f"sub-axes split axis {name!r} of size {size} at both {low} and {high}, which do not nest",
                where=f"axis {name}",
                fix="use sub-axes whose sizes divide one another",
            )
        pre = low
        for p in _primes(high // low):
            out.append((pre, p))
            pre *= p
    return out


def _primes(n: int) -> list[int]:
    out: list[int] = []
    p = 2
    while p * p <= n:
        while n % p == 0:
            out.append(p)
            n //= p
        p += 1
    return [*out, n] if n > 1 else out
