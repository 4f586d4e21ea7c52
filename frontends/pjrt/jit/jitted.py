"""`JitOnDevices`: `jax.jit` on the devices of shardc."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from shardc.frontends.jax.context import static_kind
from shardc.frontends.jax.layouts import is_uneven
from shardc.frontends.pjrt.compile_options import EVEN_CONSTRAINTS
from shardc.frontends.pjrt.jit.arguments import Arguments, brought_to, mesh_of_arrays, uncommitted
from shardc.frontends.pjrt.jit.devices import by_default, devices_for
from shardc.frontends.pjrt.jit.inner_meshes import with_inner_meshes
from shardc.frontends.pjrt.jit.meshes import mesh_on_devices, shardings_on_devices

__all__ = ["JitOnDevices"]

#: What JAX says of another mesh inside of a function than the one around it, and of devices inside that are others.
_INNER_MESHES = ("should match the mesh passed to shard_map", " inside jit with device ids")


class JitOnDevices:
    """A function that JAX jits for devices of shardc, whichever devices JAX takes by itself.

    ``mesh`` is around the function as under `jax.set_mesh`; without one it is the mesh of the caller's `jax.set_mesh`,
    if there is one, else that of arguments on several devices, where there are no shardings. ``options`` are those of
    `jax.jit`, with shardings over any devices, or over none.
    ``static_positions`` and ``static_names`` are all static arguments, however they were named.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        mesh: Any,
        options: Mapping[str, Any],
        static_positions: frozenset[int] = frozenset(),
        static_names: frozenset[str] = frozenset(),
    ) -> None:
        self._has_statics = bool(static_positions or static_names)
        self._function = _taking_statics(function) if self._has_statics else function
        self._mesh = None if mesh is None else mesh_on_devices(mesh)
        self._options = options
        self._follows_arguments = not {"in_shardings", "out_shardings"} & options.keys()
        self._positions, self._names = static_positions, static_names
        self._places: dict[jax.sharding.Mesh | None, _JittedForMesh] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._has_statics:
            args, kwargs = self._marked(args, kwargs)
        place, tracing = self._place((args, kwargs))
        return place.trace_into(args, kwargs) if tracing else place(args, kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """`jax.jit`'s: a ``jax.stages.Traced`` for arguments like these, which may be abstract."""
        marked = self._marked(args, kwargs)
        place, tracing = self._place(marked)
        return place.trace(marked, tracing)

    def clear_cache(self) -> None:
        """Forget what was compiled."""
        for place in self._places.values():
            place.clear_cache()
        self._places.clear()

    def _place(self, arguments: Arguments) -> tuple[_JittedForMesh, bool]:
        """Where the function runs on these arguments, and whether JAX is tracing."""
        around, tracing = _surroundings()
        mesh = self._mesh or around
        if mesh is None and self._follows_arguments and not tracing and not by_default():
            mesh = mesh_of_arrays(arguments)
        place = self._places.get(mesh)
        if place is None:
            over = None if mesh is None else mesh_on_devices(mesh)
            place = self._places[mesh] = _JittedForMesh.of(self._function, over, self._options)
        return place, tracing

    def _marked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """Static arguments as JAX is to tell them apart."""
        positional = (_Static.of(str(i), x) if i in self._positions else x for i, x in enumerate(args))
        return tuple(positional), {k: _Static.of(k, x) if k in self._names else x for k, x in kwargs.items()}


@dataclass(frozen=True, slots=True)
class _Static:
    """A static argument, which is equal to others of the same type and value; of JAX's own 0.0 and -0.0 are one."""

    kind: Hashable
    value: Any

    @staticmethod
    def of(name: str, value: Any) -> _Static:
        return _Static(static_kind(name, value), value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and self.kind == other.kind

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return repr(self.value)


def _taking_statics(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function, updated=())
    def taking_statics(*args: Any, **kwargs: Any) -> Any:
        return function(*map(_value_of, args), **{k: _value_of(v) for k, v in kwargs.items()})

    return taking_statics


def _value_of(x: Any) -> Any:
    return x.value if isinstance(x, _Static) else x


def _among_statics(args: tuple[Any, ...], others: tuple[Any, ...]) -> tuple[Any, ...]:
    """The static ones of ``args``, with ``others`` in place of those that are not."""
    rest = iter(others)
    return tuple(x if isinstance(x, _Static) else next(rest) for x in args)


def _surroundings() -> tuple[jax.sharding.Mesh | None, bool]:
    """The mesh of `jax.set_mesh` that is around the caller, if there is one, and whether JAX is tracing."""
    try:
        mesh = jax.sharding.get_mesh()
    except ValueError:
        return None, True
    return (None if mesh.empty else mesh), False


@dataclass(eq=False)
class _JittedForMesh:
    """The function jitted for a mesh, or for the devices of its arguments: ours by default.

    ``called`` is ``jitted`` for calls: compiling it fails where a constraint leaves a result in parts of unequal sizes.
    ``nested`` names devices among the shardings inside of it: where it is called from a function that JAX traces, or
    lowered later, nobody else does. ``constrained`` has constraints inside for shardings, which may then leave parts of
    unequal sizes. ``has_own_meshes``: it gives `jax.shard_map` another mesh object, beside which JAX
    wants none around it.
    """

    mesh: jax.sharding.Mesh | None
    in_shardings: Any
    called: Any
    jitted: Any
    nested: Any
    constrained: Any
    has_own_meshes: bool = False

    @staticmethod
    def of(function: Callable[..., Any], mesh: jax.sharding.Mesh | None, options: Mapping[str, Any]) -> _JittedForMesh:
        chosen = dict(options)
        for name in ("in_shardings", "out_shardings"):
            if name in chosen:
                chosen[name] = shardings_on_devices(chosen[name], mesh, name)
        ends = chosen.get("in_shardings"), chosen.get("out_shardings")
        others = {k: v for k, v in chosen.items() if k not in ("in_shardings", "out_shardings")}
        even = {**(chosen.get("compiler_options") or {}), EVEN_CONSTRAINTS: True}
        called = jax.jit(function, **{**chosen, "compiler_options": even})
        jitted, nested = jax.jit(function, **chosen), jax.jit(_naming_devices(function, mesh), **chosen)
        constrained = jax.jit(_naming_devices(_constraining(function, *ends), mesh), **others)
        return _JittedForMesh(mesh, ends[0], called, jitted, nested, constrained)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.mesh is None:
            if by_default():
                return self.called(*args, **kwargs)
            args, kwargs = uncommitted((args, kwargs))
        try:
            return self._in_mesh(lambda jitted: jitted(*args, **kwargs))
        except (TypeError, ValueError) as e:
            if is_uneven(e):
                raise
            arguments = args, kwargs
            brought = self._brought(arguments)
            if brought is arguments:
                raise
        # JAX says of arguments that lie elsewhere that it does not take them.
        return self._in_mesh(lambda jitted: jitted(*brought[0], **brought[1]))

    def trace_into(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call in the function that JAX is tracing."""
        return self._even_or_not(lambda jitted: jitted(*args, **kwargs), tracing=True)

    def trace(self, arguments: Arguments, tracing: bool) -> Any:
        """See `JitOnDevices.trace`."""
        args, kwargs = self._brought(arguments)
        return self._even_or_not(lambda jitted: jitted.trace(*args, **kwargs), tracing=tracing, later=True)

    def clear_cache(self) -> None:
        self.called.clear_cache()
        self.jitted.clear_cache()
        self.nested.clear_cache()
        self.constrained.clear_cache()

    def _brought(self, arguments: Arguments) -> Arguments:
        if self.mesh is None:
            return uncommitted(arguments)
        args, kwargs = arguments
        given = tuple(x for x in args if not isinstance(x, _Static)), kwargs
        brought = brought_to(self.mesh, given, self.in_shardings)
        return arguments if brought is given else (_among_statics(args, brought[0]), brought[1])

    def _even_or_not(self, use: Callable[[Any], Any], **how: bool) -> Any:
        """`_in_mesh`, with constraints instead of shardings that JAX refuses since they leave unequal parts."""
        try:
            return self._in_mesh(use, **how)
        except ValueError as e:
            if not is_uneven(e):
                raise
        return self._in_mesh(use, **how, uneven=True)

    def _in_mesh(
        self, use: Callable[[Any], Any], *, tracing: bool = False, later: bool = False, uneven: bool = False
    ) -> Any:
        """What ``use`` makes of the jitted function, with the mesh around it if the function bears that."""
        nested = self.constrained if uneven else self.nested
        if not self.has_own_meshes:
            named = uneven or tracing or (self.mesh is None and (later or not by_default()))
            try:
                with self._inside() if tracing else self._around():
                    return use(nested if named else self.jitted if later else self.called)
            except ValueError as e:
                if self.mesh is None or not any(words in str(e) for words in _INNER_MESHES):
                    raise
            self.has_own_meshes = True
        return use(nested)

    def _around(self) -> AbstractContextManager[Any]:
        if self.mesh is not None:
            context: AbstractContextManager[Any] = jax.set_mesh(self.mesh)
            return context
        return nullcontext() if by_default() else jax.default_device(devices_for(1)[0])

    def _inside(self) -> AbstractContextManager[Any]:
        mesh = self.mesh
        return nullcontext() if mesh is None else jax.sharding.use_abstract_mesh(mesh.abstract_mesh)


def _constraining(function: Callable[..., Any], in_shardings: Any, out_shardings: Any) -> Callable[..., Any]:
    """``function`` with constraints on its arguments and results: these may leave parts of unequal sizes."""

    def constrained(tree: Any, shardings: Any) -> Any:
        given = jax.tree.map(lambda s: s if isinstance(s, Sharding) else False, shardings, is_leaf=lambda s: s is None)
        leaves, structure = jax.tree.flatten(tree)
        spread = jax.tree.leaves(jax.tree.broadcast(given, tree))
        pairs = zip(leaves, spread, strict=True)
        return structure.unflatten([jax.lax.with_sharding_constraint(x, s) if s else x for x, s in pairs])

    @functools.wraps(function, updated=())
    def constraining(*args: Any, **kwargs: Any) -> Any:
        dynamic = constrained(tuple(x for x in args if not isinstance(x, _Static)), in_shardings)
        return constrained(function(*_among_statics(args, dynamic), **kwargs), out_shardings)

    return constraining


def _naming_devices(function: Callable[..., Any], mesh: jax.sharding.Mesh | None) -> Callable[..., Any]:
    """``function`` with results that say which devices they lie on, and not how, if nothing inside does."""
    if mesh is None and by_default():
        return function

    def named(x: Any) -> Any:
        if mesh is not None and AxisType.Explicit in mesh.axis_types:
            return x
        if mesh is not None:
            over: Any = NamedSharding(mesh, PartitionSpec(*[PartitionSpec.UNCONSTRAINED] * np.ndim(x)))
        elif jax.sharding.get_abstract_mesh().empty:
            over = SingleDeviceSharding(devices_for(1)[0])
        else:
            return x
        return jax.lax.with_sharding_constraint(x, over)

    return with_inner_meshes(function, mesh, named)
