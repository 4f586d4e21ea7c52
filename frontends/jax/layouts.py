"""Layouts that JAX does not take: the function is traced without them, and the module that comes of it gets them.

JAX takes a sharding of an argument or a result only where its axes divide the dimension, and it has no parts of axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardc.hlo.errors import AnnotationError, UnsupportedError
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.launcher.arrays.meshes import as_mesh
from shardc.sharding.axes.sub_axes import check_axes
from shardc.sharding.notations.partition_spec import PartitionSpec, as_spec, spec_to_sharding

__all__ = [
    "UNEVEN_RESULT", "GivenLayout", "LaidOut", "Layouts", "is_uneven", "layouts_of", "layouts_of_arrays",
]  # fmt: skip

#: What the plug-in says of a result that the function itself constrains to parts of unequal sizes, if asked to.
UNEVEN_RESULT = "a result in parts of unequal sizes"


@dataclass(frozen=True, slots=True)
class LaidOut:
    """An abstract argument whose layout JAX cannot say."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sharding: Sharding


@dataclass(frozen=True, slots=True)
class GivenLayout:
    """``spec`` is a PartitionSpec, ours or JAX's, JAX's NamedSharding, or a `Sharding`; ``source`` says who gave it."""

    spec: Any
    source: str

    @property
    def mesh(self) -> Mesh | None:
        """The mesh that it brings along."""
        given = getattr(self.spec, "mesh", None)
        return None if given is None else as_mesh(given)

    def over(self, mesh: Mesh, rank: int, name: str) -> Sharding:
        """As the sharding of ``name``, of ``rank`` dimensions; `AnnotationError` where it does not fit."""
        spec, own, where = self.spec, self.mesh, f"{self.source}, {name}"
        if own is not None and own.axes != mesh.axes:
            raise AnnotationError(
                f"{spec} is over another mesh than {mesh}",
                where=where,
                fix="use one mesh for all arguments and results",
            )
        if getattr(spec, "memory_kind", None) == "pinned_host":
            raise UnsupportedError(
                f"{spec}: host memory needs equal parts", where=where, fix="omit memory_kind=, or pad the array"
            )
        if not isinstance(spec, Sharding):
            # The data of random keys has dimensions behind those of the keys: these are whole.
            return spec_to_sharding(as_spec(spec, where), mesh, rank, where)
        sharding = Sharding(mesh, spec.dims)
        check_axes(sharding, where)
        return sharding


@dataclass(frozen=True, slots=True)
class Layouts:
    """The layouts of a function's arguments and results, by leaf; None where nobody gives one. Empty: nowhere."""

    arguments: tuple[GivenLayout | None, ...] = ()
    results: tuple[GivenLayout | None, ...] = ()

    @property
    def mesh(self) -> Mesh | None:
        """The mesh of the first that brings one along."""
        given = [x for x in (*self.arguments, *self.results) if x is not None]
        return next((x.mesh for x in given if x.mesh is not None), None)

    def put_on(self, module: Module, kept: Sequence[int], constants: int) -> Module:
        """``module`` with them, over its mesh; its parameters are ``constants``, then the arguments ``kept``."""
        mesh = module.mesh
        if mesh is None or not (self.arguments or self.results):
            return module
        given = [*(None for _ in range(constants)), *(self.arguments[i] if self.arguments else None for i in kept)]
        arguments = {
            p: layout.over(mesh, p.shape.rank, name)
            for p, layout, name in zip(module.parameters, given, module.argument_names, strict=True)
            if layout is not None and p.sharding is None
        }
        results = (
            [
                None if layout is None else layout.over(mesh, shape.rank, name or f"result {n}")
                for n, (layout, shape, name) in enumerate(
                    zip(self.results, module.results, module.result_names or ("",) * len(module.results), strict=True)
                )
            ]
            if self.results
            else ()
        )
        from shardc.sharding.notations.annotate import with_shardings

        return with_shardings(module, arguments, results)


def is_uneven(error: Exception) -> bool:
    """Whether JAX, or the plug-in, refuses a sharding because its axes do not divide a dimension."""
    if UNEVEN_RESULT in str(error):
        return True
    # Releases differ in the type and in how early they look: a ValueError, or IndivisibleError.
    return type(error).__name__ == "IndivisibleError" or "was given the sharding" in str(error)


def layouts_of(prefix: Any, tree: Any, source: str) -> tuple[GivenLayout | None, ...]:
    """By leaf of the structure ``tree``, what ``prefix``, a pytree of shardings that may end earlier, gives."""
    import jax

    specs = (PartitionSpec, jax.sharding.PartitionSpec)
    given = jax.tree.map(
        lambda leaf: False if leaf is None else GivenLayout(leaf, source),
        prefix,
        is_leaf=lambda x: x is None or isinstance(x, specs),
    )
    spread = jax.tree.leaves(jax.tree.broadcast(given, jax.tree.unflatten(tree, range(tree.num_leaves))))
    return tuple(leaf or None for leaf in spread)


def layouts_of_arrays(leaves: Sequence[Any]) -> tuple[GivenLayout | None, ...]:
    """By leaf of the arguments, the layouts that `LaidOut` ones have."""
    return tuple(
        GivenLayout(x.sharding, "the argument's own layout") if isinstance(x, LaidOut) else None for x in leaves
    )
