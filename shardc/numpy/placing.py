"""Where new arrays lie: what is asked for, else the mesh in use, else all devices of the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.variables import read_variable
from shardc.launcher.arrays.meshes import as_mesh
from shardc.launcher.arrays.placement import as_sharding
from shardc.launcher.jobs.job import process_count
from shardc.sharding.notations.partition_spec import PartitionSpec, as_spec

__all__ = ["mesh_in_use", "new_sharding", "use_mesh"]

#: A dimension is split if it has at least so many positions per device: a table of 9 directions is whole everywhere.
_LEAST = 16


@dataclass(frozen=True, slots=True)
class _Placing:
    """A mesh, and how arrays lie over it that are not told otherwise."""

    mesh: Mesh
    spec: PartitionSpec | None = None


_IN_USE: ContextVar[_Placing | None] = ContextVar("shardc_mesh", default=None)


@contextmanager
def use_mesh(mesh: Any, sharding: Any = None) -> Iterator[Mesh]:
    """A context in which new arrays are over ``mesh``: a `Mesh`, JAX's, or a dict of sizes.

    ``sharding`` is a `P` for new arrays; arrays of fewer dimensions take its first entries. Without it, dimension k is
    split over mesh axis k where it has at least 16 positions for each device of the axis.

    >>> with np.use_mesh({"x": 2, "y": 2}):
    ...     u = np.zeros((1024, 1024))
    >>> u
    shardc.Array(f64[1024,1024], [{x}, {y}])
    """
    over = as_mesh(mesh)
    token = _IN_USE.set(_Placing(over, None if sharding is None else as_spec(sharding)))
    try:
        yield over
    finally:
        _IN_USE.reset(token)


def mesh_in_use() -> Mesh | None:
    """The mesh of `use_mesh`, else all devices of the job; None where that is one device."""
    placing = _IN_USE.get()
    mesh = _mesh_of_job() if placing is None else placing.mesh
    return mesh if mesh.size > 1 or placing is not None else None


def new_sharding(dims: Sequence[int], sharding: Any = None, mesh: Any = None) -> Sharding:
    """How a new array lies that is asked for with these options."""
    placing = _IN_USE.get() or _Placing(_mesh_of_job())
    if mesh is not None:
        placing = _Placing(as_mesh(mesh))
    if sharding is None and placing.spec is not None:
        sharding = PartitionSpec(*tuple(placing.spec)[: len(dims)])
    if sharding is not None:
        own = mesh is None and (isinstance(sharding, Sharding | tuple) or hasattr(sharding, "mesh"))
        found = as_sharding(sharding, len(dims), None if own else placing.mesh)
        if found is not None:
            return found
    axes = list(placing.mesh.shape.items())
    split = {d: name for d, (n, (name, k)) in enumerate(zip(dims, axes, strict=False)) if n >= _LEAST * k > _LEAST}
    return Sharding(
        placing.mesh, tuple(DimSharding((AxisRef(split[d]),) if d in split else ()) for d in range(len(dims)))
    )


def _mesh_of_job() -> Mesh:
    """One axis of all ranks; without ranks, of SHARDC_NUM_DEVICES virtual devices."""
    count = process_count()
    if count == 1:
        count = int(read_variable("SHARDC_NUM_DEVICES") or 1)
    return Mesh({"devices": count})
