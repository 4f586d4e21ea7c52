"""`PartitionSpec`: how people say which mesh axes split which dimension.

``P("data", None)`` splits dimension 0 over axis ``data`` and leaves dimension 1 whole; ``P(("data", "model"))`` puts
two axes on a dimension, ``data`` major; dimensions that are not mentioned are whole. ``P.UNCONSTRAINED`` leaves a
dimension to propagation. JAX's PartitionSpec and NamedSharding are accepted wherever ours is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

from shardc.hlo.errors import AnnotationError, UnsupportedError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.units import count_text
from shardc.sharding.axes.sub_axes import check_axes

__all__ = ["UNCONSTRAINED", "P", "PartitionSpec", "as_spec", "dims_text", "spec_text", "spec_to_sharding"]


class _Unconstrained(Enum):
    UNCONSTRAINED = "UNCONSTRAINED"

    def __repr__(self) -> str:
        return "UNCONSTRAINED"


#: A dimension that propagation may shard.
UNCONSTRAINED = _Unconstrained.UNCONSTRAINED

Axis = str | AxisRef
Entry = None | Axis | tuple[Axis, ...] | _Unconstrained


class PartitionSpec:
    """A sharding with one entry per dimension: None, an axis name, a tuple of axis names (major first) or
    UNCONSTRAINED.

    None keeps a dimension whole, UNCONSTRAINED leaves it to propagation. Dimensions beyond the last entry are whole.
    ``unreduced`` names axes over which each device holds a partial sum. ``P`` is a short name for it, and JAX's
    ``PartitionSpec`` is accepted in its place. Raises `AnnotationError` for entries of other types.

    >>> P("data", None, ("x", "y"))
    P('data', None, ('x', 'y'))
    """

    __slots__ = ("entries", "unreduced")
    UNCONSTRAINED = UNCONSTRAINED

    def __init__(self, *entries: Any, unreduced: Any = ()) -> None:
        self.entries: tuple[Entry, ...] = tuple(_entry(e, d) for d, e in enumerate(entries))
        self.unreduced: tuple[str, ...] = (unreduced,) if isinstance(unreduced, str) else tuple(sorted(unreduced))

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionSpec):
            return NotImplemented
        return (self.entries, self.unreduced) == (other.entries, other.unreduced)

    def __hash__(self) -> int:
        return hash((self.entries, self.unreduced))

    def __repr__(self) -> str:
        inner = [repr(e) for e in self.entries] + ([f"unreduced={self.unreduced!r}"] if self.unreduced else [])
        return f"P({', '.join(inner)})"


P = PartitionSpec


def _entry(entry: Any, dim: int) -> Entry:
    if entry is None or isinstance(entry, str | AxisRef | _Unconstrained):
        return entry
    if repr(entry) == "UNCONSTRAINED":
        return UNCONSTRAINED
    if isinstance(entry, tuple | list) and all(isinstance(a, str | AxisRef) for a in entry):
        return tuple(entry)
    raise AnnotationError(
        f"a PartitionSpec entry must be None, an axis name, a tuple of names or UNCONSTRAINED, not {entry!r}",
        where=f"dimension {dim}",
        fix='write P("data", None), or P(("data", "model")) for two axes on one dimension',
    )


def as_spec(value: Any, where: str = "") -> PartitionSpec:
    """Ours from ours, JAX's PartitionSpec or JAX's NamedSharding; raises `AnnotationError`, which says ``where``, for
    anything else."""
    if isinstance(value, PartitionSpec):
        return value
    inner = getattr(value, "spec", value)
    if hasattr(type(inner), "UNCONSTRAINED"):
        return PartitionSpec(*inner, unreduced=getattr(inner, "unreduced", None) or ())
    if isinstance(value, tuple | list):
        return PartitionSpec(*value)
    raise AnnotationError(f"{value!r} is not a PartitionSpec", where=where or None, fix='write P("data", None)')


def spec_text(spec: Any) -> str:
    """``spec`` as the command line has it: text as it is, ``P("data", None)`` as ``data,None``; a `Sharding` likewise,
    without its mesh.

    Raises `UnsupportedError` for what such text has no words for, `AnnotationError` for what is no spec.
    """
    if isinstance(spec, str):
        return spec
    given = spec if isinstance(spec, Sharding) else as_spec(spec)
    if given.unreduced:
        raise UnsupportedError(f"{spec} has unreduced axes, which text cannot express", fix="annotate its operands")
    if isinstance(given, Sharding):
        return dims_text(given.dims)
    entries = [e if isinstance(e, tuple) else (e,) for e in given]
    return ",".join(_dim_text([a for a in e if isinstance(a, str | AxisRef)], UNCONSTRAINED not in e) for e in entries)


def dims_text(dims: Iterable[DimSharding]) -> str:
    """The dimensions of a sharding as ``--annotate`` takes them: ``data+model,None,?``; empty for a scalar."""
    return ",".join(_dim_text(d.axes, d.closed) for d in dims)


def _dim_text(axes: Iterable[str | AxisRef], closed: bool) -> str:
    return "+".join([*map(str, axes), *([] if closed else ["?"])]) or "None"


def spec_to_sharding(spec: PartitionSpec, mesh: Mesh, rank: int, where: str = "") -> Sharding:
    """The sharding of a value of ``rank`` dimensions: named and None entries closed, UNCONSTRAINED ones open.

    Raises `AnnotationError` naming ``where`` and the dimension for an unknown or repeated axis or too many entries.
    """
    if len(spec) > rank:
        raise AnnotationError(
            f"{spec} has {count_text(len(spec), 'entry', 'entries')}, "
            f"but the value has {count_text(rank, 'dimension')}",
            where=where or None,
            fix="give at most one entry per dimension",
        )
    dims = [_dim(e) for e in spec] + [DimSharding()] * (rank - len(spec))
    sharding = Sharding(mesh, tuple(dims), unreduced=tuple(AxisRef(a) for a in spec.unreduced))
    check_axes(sharding, where)
    return sharding


def _dim(entry: Entry) -> DimSharding:
    if entry is None:
        return DimSharding()
    if isinstance(entry, _Unconstrained):
        return DimSharding((), closed=False)
    axes = entry if isinstance(entry, tuple) else (entry,)
    return DimSharding(tuple(a if isinstance(a, AxisRef) else AxisRef(a) for a in axes))
