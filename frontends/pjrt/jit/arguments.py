"""Arguments that lie elsewhere, brought to the devices that a function runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from shardc.frontends.pjrt.jit.devices import is_ours
from shardc.frontends.pjrt.jit.meshes import sharding_on_devices

__all__ = ["Arguments", "brought_to", "mesh_of_arrays", "uncommitted"]

Tree = TypeVar("Tree")
#: Arguments by position and by name.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def brought_to(mesh: jax.sharding.Mesh, arguments: Arguments, in_shardings: Any) -> Arguments:
    """``arguments``, where what is committed to other devices than those of ``mesh``, or lies in another way than
    ``in_shardings`` says, comes to where it should be; the same object where there is nothing like that."""
    args, kwargs = arguments
    devices = frozenset(mesh.devices.flat)

    def bring(x: Any, wanted: Any = None) -> Any:
        if isinstance(x, jax.ShapeDtypeStruct) and x.sharding is not None:
            return x.update(sharding=sharding_on_devices(x.sharding, mesh))
        if isinstance(x, np.ndarray) and isinstance(wanted, Sharding) and not wanted.is_fully_addressable:
            # The global value, the same on every process: JAX wants it said which parts are this one's.
            return jax.make_array_from_callback(x.shape, wanted, lambda at: x[at], dtype=x.dtype)
        if not _is_committed(x):
            return x
        if isinstance(wanted, Sharding):
            return x if x.sharding.is_equivalent_to(wanted, x.ndim) else jax.device_put(x, wanted)
        if x.sharding.device_set == devices:
            return x
        if isinstance(x.sharding, NamedSharding) and dict(x.sharding.mesh.shape) == dict(mesh.shape):
            return jax.device_put(x, NamedSharding(mesh, x.sharding.spec))
        return jax.device_put(x, NamedSharding(mesh, PartitionSpec()))

    if in_shardings is None:
        return _mapped(bring, arguments)
    wanted = jax.tree.broadcast(in_shardings, args, is_leaf=lambda x: x is None)
    flat = jax.tree.leaves(wanted, is_leaf=lambda x: x is None)
    given = iter(flat)
    (args,) = _mapped(lambda x: bring(x, next(given)), (args,))
    return args, _mapped(bring, kwargs)


def uncommitted(arguments: Arguments) -> Arguments:
    """``arguments``, where what is committed to other devices than ours is free to be used anywhere."""

    def bring(x: Any) -> Any:
        foreign = _is_committed(x) and not is_ours(next(iter(x.sharding.device_set)))
        return _free(x) if foreign else x

    return _mapped(bring, arguments) if any(map(_is_committed, jax.tree.leaves(arguments))) else arguments


def mesh_of_arrays(arguments: Arguments) -> Any:
    """The mesh of the first argument that JAX's NamedSharding puts on several devices; None where there is none."""
    given = (getattr(x, "sharding", None) for x in jax.tree.leaves(arguments))
    return next((s.mesh for s in given if isinstance(s, NamedSharding) and s.mesh.size > 1), None)


def _mapped(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """``tree`` with other leaves, itself where they are the same objects."""
    leaves, structure = jax.tree.flatten(tree)
    new = [function(x) for x in leaves]
    if all(a is b for a, b in zip(new, leaves, strict=True)):
        return tree
    changed: Tree = jax.tree.unflatten(structure, new)
    return changed


def _is_committed(x: Any) -> bool:
    return getattr(x, "committed", False) is True and isinstance(x, jax.Array)


def _free(x: jax.Array) -> Any:
    """The same value, not committed to a device."""
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(np.asarray(jax.random.key_data(x)), impl=jax.random.key_impl(x))
    return np.asarray(x).item() if x.weak_type and not x.ndim else np.asarray(x)
