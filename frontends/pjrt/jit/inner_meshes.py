"""Functions that name devices inside: what they say of meshes of other platforms holds for shardc's devices.

A program that was written for `jax.jit` makes its meshes of the devices that JAX has by itself. As arguments of
`shardc.jit` they are replaced as they come; those inside of the function, of `jax.shard_map` and of constraints, are
only seen once it is traced.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jax.sharding import NamedSharding

from shardc.frontends.pjrt.jit.devices import devices_for, is_ours
from shardc.frontends.pjrt.jit.meshes import mesh_on_devices

__all__ = ["with_inner_meshes"]


def with_inner_meshes(
    function: Callable[..., Any], mesh: jax.sharding.Mesh | None, finish: Callable[[Any], Any]
) -> Callable[..., Any]:
    """``function`` with all meshes inside over devices of shardc: ``mesh`` for those of its names and sizes.

    ``finish`` is applied to each result where no mesh was replaced and, without ``mesh``, none of ours is inside.
    """

    @functools.wraps(function, updated=())
    def over_devices(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        dynamic = [n for n, x in enumerate(leaves) if hasattr(x, "aval") or hasattr(x, "dtype")]

        def of_leaves(*given: Any) -> Any:
            whole = list(leaves)
            for n, x in zip(dynamic, given, strict=True):
                whole[n] = x
            again, named = jax.tree.unflatten(tree, whole)
            return function(*again, **named)

        operands = [leaves[n] for n in dynamic]
        traced, shapes = jax.make_jaxpr(of_leaves, return_shape=True)(*operands)
        replacement = _Replacement(mesh)
        results = jaxpr_as_fun(replacement.value(traced))(*operands)
        if not (replacement.found or (mesh is None and replacement.names_ours)):
            results = map(finish, results)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return over_devices


@dataclass
class _Replacement:
    """Replaces meshes, also where types of values name them; ``found`` those that were. ``names_ours``: others are over
    shardc's devices already."""

    mesh: jax.sharding.Mesh | None
    found: dict[Any, Any] = field(default_factory=dict)
    names_ours: bool = False
    _variables: dict[Any, Any] = field(default_factory=dict)

    def value(self, value: Any) -> Any:
        """A parameter of an equation, or the same object where it names no such mesh."""
        match value:
            case jax.sharding.Mesh():
                return self._mesh(value)
            case jax.sharding.AbstractMesh():
                return self._abstract(value)
            case NamedSharding():
                over = self.value(value.mesh)
                return value if over is value.mesh else value.update(mesh=over)
            case jax.core.ShapedArray():
                sharding = self.value(value.sharding)
                return value if sharding is value.sharding else value.update(sharding=sharding)
            case ClosedJaxpr() if value.jaxpr is not value:  # from JAX 0.12 on the two are one class
                inner = self.value(value.jaxpr)
                return value if inner is value.jaxpr else value.replace(jaxpr=inner)
            case Jaxpr():
                return self._program(value)
            case tuple() | list() if type(value) in (tuple, list):
                items = [self.value(v) for v in value]
                return value if all(map(operator.is_, items, value)) else type(value)(items)
        return value

    def _program(self, program: Any) -> Any:
        equations = [self._equation(e) for e in program.eqns]
        parts = {k: [self._variable(v) for v in getattr(program, k)] for k in ("constvars", "invars", "outvars")}
        same = all(all(map(operator.is_, new, getattr(program, k))) for k, new in parts.items())
        if same and all(map(operator.is_, equations, program.eqns)):
            return program
        return program.replace(eqns=equations, **parts)

    def _equation(self, equation: Any) -> Any:
        params = {k: self.value(v) for k, v in equation.params.items()}
        operands, results = ([self._variable(v) for v in vs] for vs in (equation.invars, equation.outvars))
        new, old = (
            (*params.values(), *operands, *results),
            (*equation.params.values(), *equation.invars, *equation.outvars),
        )
        context = self._context(equation.ctx)
        if context is equation.ctx and all(map(operator.is_, new, old)):
            return equation
        return equation.replace(params=params, invars=operands, outvars=results, ctx=context)

    def _variable(self, variable: Any) -> Any:
        aval = self.value(variable.aval)
        if aval is variable.aval:
            return variable
        if isinstance(variable, Literal):
            value = variable.val
            return Literal(np.asarray(value) if hasattr(value, "aval") else value, aval)  # it may name the mesh, too
        if variable not in self._variables:
            self._variables[variable] = type(variable)(aval)
        return self._variables[variable]

    def _context(self, context: Any) -> Any:
        """What was around an equation when it was traced, with the mesh in it replaced."""
        mesh = self.value(context.cur_abstract_mesh)
        if mesh is context.cur_abstract_mesh:
            return context
        with context.manager, jax.sharding.use_abstract_mesh(mesh):
            return type(context)()

    def _mesh(self, mesh: jax.sharding.Mesh) -> jax.sharding.Mesh:
        if mesh.empty:
            return mesh
        if is_ours(mesh.devices.flat[0]) and not self._is_like(mesh):
            self.names_ours = True
            return mesh
        if mesh not in self.found:
            self.found[mesh] = self.mesh if self.mesh is not None and self._is_like(mesh) else mesh_on_devices(mesh)
        return self.found[mesh]

    def _abstract(self, mesh: Any) -> Any:
        """The abstract mesh of devices that are replaced: it names their kind."""
        if mesh.empty or mesh.abstract_device is None or is_ours(mesh.abstract_device):
            return mesh
        kind = devices_for(1)[0].device_kind
        return mesh.update(abstract_device=dataclasses.replace(mesh.abstract_device, device_kind=kind))

    def _is_like(self, mesh: jax.sharding.Mesh) -> bool:
        return self.mesh is not None and dict(mesh.shape) == dict(self.mesh.shape)
