"""Meshes and shardings, ours or JAX's, over whichever devices, as JAX's over the devices of shardc."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental.layout import Format
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding

from shardc.frontends.pjrt.jit.devices import devices_for, is_ours
from shardc.hlo.errors import AnnotationError, InputError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.units import kind_text
from shardc.launcher.arrays.meshes import as_mesh
from shardc.sharding.notations import partition_spec

__all__ = ["mesh_on_devices", "sharding_on_devices", "shardings_on_devices"]

_SPECS = (PartitionSpec, partition_spec.PartitionSpec)


def mesh_on_devices(mesh: Any) -> jax.sharding.Mesh:
    """``mesh`` over devices of shardc: JAX's own as it is where it lies on them, else one of the same names, sizes,
    types of axes and order of devices."""
    if isinstance(mesh, jax.sharding.Mesh) and is_ours(mesh.devices.flat[0]):
        return mesh
    if not isinstance(mesh, (Mesh, Mapping, jax.sharding.Mesh, AbstractMesh)):
        raise InputError(f"mesh is {kind_text(mesh)}", fix="pass shardc.Mesh, or JAX's Mesh or AbstractMesh")
    ours = as_mesh(mesh)
    devices = np.array(devices_for(ours.size)[: ours.size], dtype=object)
    if ours.device_ids is not None:
        devices = devices[list(ours.device_ids)]
    types = getattr(mesh, "axis_types", None) or (AxisType.Auto,) * len(ours.axes)
    return jax.sharding.Mesh(devices.reshape([s for _, s in ours.axes]), ours.axis_names, axis_types=types)


def shardings_on_devices(tree: Any, mesh: jax.sharding.Mesh | None, what: str) -> Any:
    """A pytree of shardings, as `jax.jit` takes it, over devices of shardc: specs over ``mesh``, as well as what names
    another mesh of its sizes."""

    def on_devices(leaf: Any) -> Any:
        if not isinstance(leaf, _SPECS):
            return sharding_on_devices(leaf, mesh)
        if mesh is None:
            raise AnnotationError(f"{leaf} in {what} needs a mesh", fix="pass mesh=shardc.Mesh({...}) too")
        return NamedSharding(mesh, _spec_for_jax(leaf, what))

    return jax.tree.map(on_devices, tree, is_leaf=lambda x: x is None or isinstance(x, (*_SPECS, Format)))


def sharding_on_devices(sharding: Any, mesh: jax.sharding.Mesh | None) -> Any:
    """``sharding`` (or a ``Format`` with one) over devices of shardc; what has no devices as it is."""
    if isinstance(sharding, Format):
        return Format(sharding.layout, sharding_on_devices(sharding.sharding, mesh))
    if isinstance(sharding, NamedSharding):
        return NamedSharding(_mesh_of(sharding, mesh), sharding.spec, memory_kind=sharding.memory_kind)
    if isinstance(sharding, SingleDeviceSharding) and not all(map(is_ours, sharding.device_set)):
        return SingleDeviceSharding(devices_for(1)[0], memory_kind=sharding.memory_kind)
    return sharding


def _spec_for_jax(spec: Any, what: str) -> PartitionSpec:
    """JAX's spec for one of either kind."""
    if isinstance(spec, PartitionSpec):
        return spec
    if partition_spec.UNCONSTRAINED in spec.entries:
        raise AnnotationError(
            f"{spec} in {what}: UNCONSTRAINED is for constraints inside the function",
            fix="give None instead of the spec to leave the whole value unspecified",
        )
    entries = (tuple(map(str, e)) if isinstance(e, tuple) else e for e in spec.entries)
    return PartitionSpec(*entries, unreduced=frozenset(spec.unreduced))


def _mesh_of(sharding: NamedSharding, mesh: jax.sharding.Mesh | None) -> jax.sharding.Mesh:
    given = sharding.mesh
    if isinstance(given, jax.sharding.Mesh) and is_ours(given.devices.flat[0]):
        return given
    same = mesh is not None and dict(given.shape) == dict(mesh.shape)
    return mesh if mesh is not None and same else mesh_on_devices(given)
