"""Meshes as users give them, and the devices that they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardc.hlo.errors import AnnotationError, EnvironmentProblem
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.units import count_text, kind_text

__all__ = ["as_mesh", "require_devices", "several_meshes"]


def as_mesh(mesh: Any) -> Mesh:
    """Ours from ours, a mapping of axis sizes, or JAX's Mesh or AbstractMesh."""
    if isinstance(mesh, Mesh):
        return mesh
    if isinstance(mesh, Mapping):
        for axis, size in mesh.items():
            if isinstance(size, bool) or not isinstance(size, int | np.integer):
                fix = 'write {"data": 2, "model": 4}; annotations are another argument'
                raise AnnotationError(f"the mesh axis {axis!r} has {kind_text(size)} as its size", fix=fix)
        return Mesh({str(k): int(v) for k, v in mesh.items()})
    shape = getattr(mesh, "shape", None)
    if isinstance(shape, Mapping) and hasattr(mesh, "axis_names"):
        try:
            ids: tuple[int, ...] | None = tuple(int(d.id) for d in mesh.devices.flat)
        except (AttributeError, ValueError):  # abstract meshes have no devices
            ids = None
        if ids is not None and sorted(ids) != list(range(len(ids))):
            ids = None
        return Mesh({str(n): int(shape[n]) for n in mesh.axis_names}, ids)
    raise AnnotationError(
        f"{type(mesh).__name__} is not a mesh", fix='pass shardc.Mesh({"data": 2, "model": 4}) or a JAX mesh'
    )


def several_meshes(first: Mesh, other: Mesh, where: str | None = None) -> AnnotationError:
    """The error for arguments of one call that are sharded over two meshes."""
    return AnnotationError(
        f"the arguments are sharded over several meshes: {first} and {other}",
        where=where,
        fix="give mesh=, or move one argument by shardc.reshard",
    )


def require_devices(num_devices: int, ranks: int, devices_per_rank: int) -> None:
    """Raise `EnvironmentProblem` when a job has not room for a mesh."""
    if ranks * devices_per_rank < num_devices:
        raise EnvironmentProblem(
            f"the mesh has {count_text(num_devices, 'device')}, but the job has only "
            f"{count_text(ranks, 'rank')} x {count_text(devices_per_rank, 'device')} per rank",
            fix=f"use --ranks {-(-num_devices // devices_per_rank)} or "
            f"--devices-per-rank {-(-num_devices // max(ranks, 1))}, or a smaller --mesh",
        )
