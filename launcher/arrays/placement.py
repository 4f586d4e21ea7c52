"""Shardings as users give them for arrays, and the layout that an array has under one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardc.hlo.errors import AnnotationError, InputError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import DType, dtype_of
from shardc.launcher.arrays.layout import ArrayLayout
from shardc.launcher.arrays.meshes import as_mesh
from shardc.sharding.axes.sub_axes import check_axes
from shardc.sharding.notations.partition_spec import PartitionSpec, as_spec, spec_to_sharding

__all__ = ["as_dtype", "as_sharding", "is_sharding", "is_spec", "layout_of", "own_mesh", "with_own_mesh"]

_FORMS = 'give (mesh, P("data")), P("data") with mesh=, a shardc Sharding such as x.sharding, or JAX\'s NamedSharding'


def is_sharding(value: Any) -> bool:
    """Whether ``value`` has one of the forms that `as_sharding` takes."""
    if isinstance(value, tuple):
        return len(value) == 2 and _is_mesh(value[0])
    return (
        isinstance(value, Sharding) or is_spec(value) or hasattr(value, "spec") or hasattr(value, "addressable_devices")
    )


def with_own_mesh(shardings: Any, mesh: Any, where: str) -> tuple[Any, Any]:
    """A pytree of shardings with specs in place of pairs of a mesh and a spec and of values of `Sharding`, and
    ``mesh``, which is theirs and that of JAX's shardings over abstract meshes where it is None.

    Raises `AnnotationError` for pairs over different meshes.
    """
    from shardc.launcher.arrays.trees import children

    found = mesh

    def look(given: Any, place: str) -> Any:
        nonlocal found
        if isinstance(given, Sharding):
            given = given.mesh, _spec_of(given)
        if isinstance(given, tuple) and is_sharding(given):
            _check_over(as_mesh(given[0]), None if found is None else as_mesh(found), place)
            found = given[0] if found is None else found
            return given[1]
        own = getattr(given, "mesh", None)
        if found is None and type(own).__name__ == "AbstractMesh":
            found = as_mesh(own)  # with automatic axes, whatever JAX's release gives it
        node = None if given is None or is_sharding(given) else children(given)
        if node is None:
            return given
        return node.rebuild([look(v, f"{place}[{k!r}]") for k, v in zip(node.keys, node.values, strict=True)])

    return look(shardings, where), found


def own_mesh(given: Any) -> Mesh | None:
    """The mesh that a sharding brings along: of a pair, of a `Sharding` or of JAX's NamedSharding; else None."""
    own = given[0] if isinstance(given, tuple) and len(given) == 2 else getattr(given, "mesh", None)
    return as_mesh(own) if _is_mesh(own) else None


def _spec_of(sharding: Sharding) -> Any:
    """The spec that says the same over the same mesh; the sharding itself where it is more than a layout."""
    if sharding.unreduced or sharding.manual or sharding.replicated:
        return sharding
    entries = (tuple(a.name if a.is_full else a for a in axes) or None for axes in sharding.axes_by_dim)
    return PartitionSpec(*entries)


def is_spec(value: Any) -> bool:
    """Whether it is a PartitionSpec, ours or JAX's: a sharding without its mesh."""
    return isinstance(value, PartitionSpec) or hasattr(type(value), "UNCONSTRAINED")


def as_sharding(given: Any, rank: int, mesh: Any = None, where: str = "") -> Sharding | None:
    """The sharding of an array of ``rank`` dimensions, closed; None for an array on one device.

    ``given`` is a `Sharding`, a pair of mesh and ``P``, a ``P`` over ``mesh``, JAX's PartitionSpec, NamedSharding or
    SingleDeviceSharding, or None: replicated over ``mesh`` if there is one. Raises `AnnotationError` for anything
    else, unknown axes, too many entries, and partial sums, which an array cannot be made with.
    """
    found = _read(given, rank, mesh, where)
    if found is None:
        return None
    if found.unreduced or found.manual:
        raise AnnotationError(
            f"an array cannot have the sharding {found}: its devices would hold partial values",
            where=where or None,
            fix="split dimensions over mesh axes, or omit the unreduced axes",
        )
    return found.as_layout


def _read(given: Any, rank: int, mesh: Any, where: str) -> Sharding | None:
    wanted = None if mesh is None else as_mesh(mesh)
    if isinstance(given, tuple) and len(given) == 2 and _is_mesh(given[0]):
        _check_over(as_mesh(given[0]), wanted, where)
        wanted, given = as_mesh(given[0]), given[1]
    if isinstance(given, Sharding):
        _check_over(given.mesh, wanted, where)
        if given.rank != rank:
            raise AnnotationError(
                f"the sharding {given} has rank {given.rank}, but the array has rank {rank}", where=where or None
            )
        check_axes(given, where)
        return given
    if given is None:
        return None if wanted is None else Sharding(wanted, (DimSharding(),) * rank)
    if _is_single_device(given):
        return None
    own = getattr(given, "mesh", None)
    if _is_mesh(own):
        _check_over(as_mesh(own), wanted, where)
        wanted = wanted or as_mesh(own)
    if not is_sharding(given) or not (is_spec(given) or own):
        with_sizes = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], Mapping)
        fix = f"give the pair a Mesh: (Mesh({given[0]!r}), {given[1]!r})" if with_sizes else _FORMS
        raise AnnotationError(f"{given!r} is not a sharding", where=where or None, fix=fix)
    if wanted is None:
        raise AnnotationError(f"{given!r} has no mesh", where=where or None, fix=_FORMS)
    return spec_to_sharding(as_spec(given, where), wanted, rank, where)


def _check_over(own: Mesh, wanted: Mesh | None, where: str) -> None:
    if wanted is not None and own != wanted:
        raise AnnotationError(
            f"the sharding is over the mesh {own}, but mesh= is {wanted}", where=where or None, fix="omit mesh="
        )


def _is_mesh(value: Any) -> bool:
    return isinstance(value, Mesh) or (hasattr(value, "axis_names") and hasattr(value, "shape"))


def _is_single_device(value: Any) -> bool:
    """Whether it is JAX's sharding for an array on one device."""
    return not hasattr(value, "spec") and len(getattr(value, "device_set", ())) == 1


def as_dtype(given: Any, where: str = "") -> DType:
    """The element type that ``given`` (NumPy's, ml_dtypes', a name) means; `InputError` for what HLO has not."""
    try:
        import ml_dtypes

        named = isinstance(given, str) and hasattr(ml_dtypes, given)
        return dtype_of(np.dtype(getattr(ml_dtypes, given) if named else given).newbyteorder("="))
    except (KeyError, TypeError):
        pass
    if "key<" in str(given):
        raise InputError(
            "typed PRNG keys are not numbers",
            where=where or None,
            fix="pass jax.random.key_data(key), and jax.random.wrap_key_data in the function",
        )
    raise InputError(
        f"{given} is not an element type of arrays",
        where=where or None,
        fix="use bool, integers, floats or complex numbers of NumPy or ml_dtypes",
    )


def layout_of(dims: Sequence[int], dtype: DType, sharding: Sharding | None, name: str = "") -> ArrayLayout:
    """The layout of such an array's shards."""
    whole = tuple(int(n) for n in dims)
    if any(n < 0 for n in whole):
        raise InputError(f"{list(whole)} is not a shape", fix="dimensions are at least 0")
    if sharding is None:
        return ArrayLayout(name, whole, whole, dtype, None, 1)
    if sharding.mesh.is_maximal:
        raise InputError(
            f"{sharding} puts the array on one device of a mesh that it does not name",
            fix='replicate it: (mesh, P()), or name the mesh\'s axes: (mesh, P("data"))',
        )
    return ArrayLayout(name, whole, sharding.local_dims(whole), dtype, sharding, sharding.mesh.size)
