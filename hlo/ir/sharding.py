"""Shardings as plain data: the axis-based form, and GSPMD's tile assignments as they were written.

`Sharding` is the form that the whole compiler works on (Shardy's representation). `TileSharding` is what an HLO
text without a named mesh says; `shardc.sharding` converts one into the other. Notations (text) live in
``hlo/text/notations/tiles.py``, the algebra (refine, intersect, merge sub-axes) in ``sharding/``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.mesh import Mesh

__all__ = ["AnySharding", "AxisRef", "DimSharding", "Sharding", "TileSharding"]


@dataclass(frozen=True, slots=True, order=True)
class AxisRef:
    """A mesh axis or a sub-axis of it, Shardy's ``"x":(pre)size``.

    A full axis has ``size`` 0. A sub-axis of an axis of size n splits it as (pre, size, n / (pre * size)) from
    major to minor and takes the middle part.
    """

    name: str
    pre: int = 1
    size: int = 0

    @property
    def is_full(self) -> bool:
        return self.size == 0

    def extent(self, mesh: Mesh) -> int:
        """Number of positions along this axis or sub-axis."""
        return self.size or mesh.axis_size(self.name)

    def __str__(self) -> str:
        return self.name if self.is_full else f"{self.name}:({self.pre}){self.size}"


@dataclass(frozen=True, slots=True)
class DimSharding:
    """How one dimension is split: ``axes`` from major to minor, open or closed to propagation, priority (0 first)."""

    axes: tuple[AxisRef, ...] = ()
    closed: bool = True
    priority: int = 0

    def extent(self, mesh: Mesh) -> int:
        """Number of shards along the dimension."""
        n = 1
        for a in self.axes:
            n *= a.extent(mesh)
        return n

    def __str__(self) -> str:
        items = [str(a) for a in self.axes] + ([] if self.closed else ["?"])
        return "{" + ", ".join(items) + "}" + (f"p{self.priority}" if self.priority else "")


@dataclass(frozen=True, slots=True)
class Sharding:
    """The layout of one array over a mesh.

    ``dims`` has one entry per dimension. ``replicated`` axes are explicitly replicated (propagation must not use
    them); axes named nowhere are replicated too, but free. Over ``unreduced`` axes each device holds a partial
    value; the global value is their ``reduction`` (sum, max or min). ``manual`` axes are handled by the program
    itself (inside a manual computation). A maximal mesh puts the array on its one device.
    """

    mesh: Mesh
    dims: tuple[DimSharding, ...]
    replicated: tuple[AxisRef, ...] = ()
    unreduced: tuple[AxisRef, ...] = ()
    reduction: str = "sum"
    manual: tuple[str, ...] = ()

    @staticmethod
    def replicate(mesh: Mesh, rank: int, *, closed: bool = True) -> Sharding:
        """Fully replicated; open dimensions (``closed=False``) may be sharded by propagation."""
        return Sharding(mesh, (DimSharding((), closed),) * rank)

    @staticmethod
    def of(mesh: Mesh, *dims: str | Iterable[str] | None) -> Sharding:
        """Closed sharding from axis names, one entry per dimension: ``Sharding.of(mesh, None, "x", ("y", "z"))``."""
        out = []
        for d in dims:
            names = () if d is None else (d,) if isinstance(d, str) else tuple(d)
            for n in names:
                mesh.axis_size(n)
            out.append(DimSharding(tuple(AxisRef(n) for n in names)))
        return Sharding(mesh, tuple(out))

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def axes_by_dim(self) -> tuple[tuple[AxisRef, ...], ...]:
        return tuple(d.axes for d in self.dims)

    @property
    def is_replicated(self) -> bool:
        """No dimension is split and nothing is unreduced."""
        return not self.unreduced and not any(d.axes for d in self.dims) and not self.mesh.is_maximal

    def used_axes(self) -> tuple[AxisRef, ...]:
        """Axes on dimensions, then unreduced ones."""
        return tuple(a for d in self.dims for a in d.axes) + self.unreduced

    def num_shards(self) -> tuple[int, ...]:
        """Shards along each dimension."""
        return tuple(d.extent(self.mesh) for d in self.dims)

    def local_dims(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Per-device dimensions of a global array: ceil(n / k) along each."""
        if len(dims) != len(self.dims):
            raise AnnotationError(f"sharding {self} has rank {self.rank}, but the value has rank {len(dims)}")
        return tuple(-(-n // k) for n, k in zip(dims, self.num_shards(), strict=True))

    def with_axes(self, axes: Iterable[tuple[AxisRef, ...]]) -> Sharding:
        """The same sharding with other axes on its dimensions."""
        dims = tuple(replace(d, axes=a) for d, a in zip(self.dims, axes, strict=True))
        return replace(self, dims=dims)

    @property
    def as_layout(self) -> Sharding:
        """Only what decides where data lies: closed dimensions, no priorities, no explicit replication."""
        return Sharding(
            self.mesh,
            tuple(DimSharding(d.axes) for d in self.dims),
            (),
            self.unreduced,
            self.reduction if self.unreduced else "sum",
            self.manual,
        )

    def __str__(self) -> str:
        text = "[" + ", ".join(map(str, self.dims)) + "]"
        if self.replicated:
            text += " replicated={" + ", ".join(map(str, self.replicated)) + "}"
        if self.unreduced:
            kind = "" if self.reduction == "sum" else f":{self.reduction}"
            text += f" unreduced{kind}={{" + ", ".join(map(str, self.unreduced)) + "}"
        if self.manual:
            text += " manual={" + ", ".join(self.manual) + "}"
        return text


@dataclass(frozen=True, slots=True)
class TileSharding:
    """A GSPMD sharding without named axes, as HLO text writes it.

    ``kind`` is ``tiled``, ``replicated``, ``maximal``, ``manual``, ``unreduced`` or ``unknown``. For ``tiled``:
    ``tile`` gives shards per dimension followed by one entry per subgroup in ``subgroups`` (``replicated``,
    ``manual``, ``unreduced``, one each); devices are the explicit list ``devices`` (V1), or the iota of
    ``reshape`` dimensions transposed by ``transpose`` (V2). ``last_tile_dim_replicate`` is stored as the single
    subgroup ``replicated``. ``suffix`` keeps ``shard_as``/``shard_like``/``metadata`` text verbatim.
    See Xu et al., GSPMD (arXiv 2105.04663).
    """

    kind: str
    tile: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    reshape: tuple[int, ...] = ()
    transpose: tuple[int, ...] = ()
    subgroups: tuple[str, ...] = ()
    last_tile_dim_replicate: bool = False
    suffix: str = ""

    @property
    def num_devices(self) -> int:
        """How many devices it names."""
        return len(self.devices) or math.prod(self.reshape)

    @property
    def is_permutation(self) -> bool:
        """Whether the devices are 0, 1, ..., each named once."""
        return bool(self.reshape) or sorted(self.devices) == list(range(len(self.devices)))


#: What an instruction can carry: nothing, one sharding, or one entry per leaf of a tuple.
AnySharding = Sharding | TileSharding | tuple["Sharding | TileSharding | None", ...] | None
