"""Arguments of shardc's own kinds, `Array` and `ShapeDtype`, for functions that JAX traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardc.frontends.jax.layouts import LaidOut
from shardc.hlo.errors import AnnotationError, InputError, UnsupportedError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.numpy.trace import ShapeDtype
from shardc.hlo.units import kind_text
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.meshes import as_mesh, several_meshes
from shardc.launcher.arrays.placement import as_sharding

__all__ = ["abstract_argument", "abstract_mesh", "laid_out", "mesh_of_arguments"]


def laid_out(x: Any, mesh: Mesh | None = None) -> Any:
    """An `Array` or `ShapeDtype` that has a sharding as `LaidOut`, without one as `ShapeDtype`; other arguments as they
    are. An `Array` over another mesh than ``mesh`` has none. Raises `AnnotationError` for a `ShapeDtype` over another
    one, or whose sharding is none."""
    if isinstance(x, ShapeDtype):
        where = f"ShapeDtype({list(x.shape)})"
        sharding = None if x.sharding is None else as_sharding(x.sharding, len(x.shape), mesh, where)
    elif isinstance(x, Array):
        other = x.sharding is None or x.sharding.unreduced or (mesh is not None and x.sharding.mesh != mesh)
        sharding = None if other else x.sharding
    else:
        return x
    return ShapeDtype(x.shape, x.dtype) if sharding is None else LaidOut(x.shape, x.dtype, sharding)


def mesh_of_arguments(leaves: Iterable[Any]) -> Mesh | None:
    """The mesh of the arguments of our own kinds that have a sharding; None where none has. Raises `AnnotationError`
    for several meshes, those of JAX's arrays included."""
    leaves = list(leaves)
    ours = [x.sharding.mesh for x in map(laid_out, leaves) if isinstance(x, LaidOut)]
    if not ours:
        return None
    theirs = [as_mesh(s.mesh) for s in map(_named_sharding, leaves) if s is not None and s.mesh.size > 1]
    other = next((m for m in (*ours, *theirs) if m.axes != ours[0].axes), None)
    other = other or next((m for m in ours if m != ours[0]), None)
    if other is not None:
        raise several_meshes(ours[0], other)
    return ours[0]


def abstract_argument(x: Any, mesh: Any) -> Any:
    """An argument as JAX takes it: with its layout over ``mesh`` where JAX can say it, else as `laid_out`. Without a
    mesh, what JAX makes has its own sharding, and nothing else has one."""
    named = _named_sharding(x)
    if named is not None:
        return x if mesh is None else _over(x, named, mesh)
    if not isinstance(x, Array | ShapeDtype):
        return x
    import jax

    found = laid_out(x, as_mesh(mesh)) if mesh is not None else x
    if not isinstance(found, LaidOut):
        return jax.ShapeDtypeStruct(x.shape, x.dtype)
    if not _can_name(found.sharding, found.shape):
        return found
    axes = found.sharding.axes_by_dim
    spec = jax.sharding.PartitionSpec(*(tuple(a.name for a in d) or None for d in axes))
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=jax.sharding.NamedSharding(abstract_mesh(mesh), spec))


def _over(x: Any, given: Any, mesh: Any) -> Any:
    """What has a sharding of JAX's, for a function over ``mesh``: arrays over another mesh will be moved."""
    import jax

    if as_mesh(given.mesh).axes == as_mesh(mesh).axes:
        sharding = given.update(mesh=abstract_mesh(mesh))
    elif isinstance(x, jax.Array):
        sharding = None
    else:
        what = f"the sharding {given.spec} is over the mesh {as_mesh(given.mesh)}, but mesh= is {as_mesh(mesh)}"
        raise AnnotationError(what, where=f"ShapeDtypeStruct({list(x.shape)})", fix="omit mesh=")
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding, weak_type=bool(getattr(x, "weak_type", False)))


def _named_sharding(x: Any) -> Any:
    """JAX's NamedSharding of an argument, if it has one."""
    if isinstance(x, Array | ShapeDtype):
        return None
    given = getattr(x, "sharding", None)
    return given if hasattr(given, "spec") and hasattr(given, "mesh") and hasattr(x, "dtype") else None


def abstract_mesh(mesh: Any) -> Any:
    """The ``AbstractMesh`` of JAX that a function is traced under for ``mesh``: ours, or JAX's own as it is, with its
    kind of devices and its types of axes."""
    from jax import sharding

    if isinstance(mesh, sharding.AbstractMesh):
        return mesh
    if not isinstance(mesh, (Mesh, Mapping, sharding.Mesh)):
        raise InputError(f"mesh is {kind_text(mesh)}", fix="pass shardc.Mesh, or JAX's Mesh or AbstractMesh")
    ours = as_mesh(mesh)
    if ours.device_ids is not None:
        raise UnsupportedError(
            "the mesh of a JAX function cannot have its own device order",
            fix="omit device_ids: JAX's abstract meshes have none",
        )
    return mesh.abstract_mesh if isinstance(mesh, sharding.Mesh) else ours.to_jax()


def _can_name(sharding: Sharding, dims: Sequence[int]) -> bool:
    """Whether JAX can express the sharding. It cannot express sub-axes, nor uneven parts."""
    even = all(n % k == 0 for n, k in zip(dims, sharding.num_shards(), strict=True))
    return even and all(a.is_full for axes in sharding.axes_by_dim for a in axes)
