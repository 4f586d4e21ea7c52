"""`shardc.jit`: in place of ``jax.jit``, runs on virtual devices or MPI ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

from shardc.hlo.errors import AnnotationError, EnvironmentProblem
from shardc.hlo.mesh import Mesh
from shardc.hlo.sharding import Sharding
from shardc.launcher.array import Array
from shardc.launcher.stages import Compiled, Program, as_mesh, from_jax

__all__ = ["Jitted", "jit"]

_UNSET: Any = object()


def jit(
    function: Callable[..., Any] | None = None,
    *,
    mesh: Any = None,
    in_shardings: Any = _UNSET,
    out_shardings: Any = _UNSET,
    donate_argnums: int | Iterable[int] = (),
    donate_argnames: str | Iterable[str] = (),
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Any:
    """Compile a JAX function for a device mesh; the result is called like the function.

    ``mesh`` is a `Mesh` (or JAX's), of any size; shardings are `P` (or JAX's), `NamedSharding`, or pytrees of
    them that are prefixes of the arguments or results. Compiles once per structure, shapes and types of the
    arguments. Results are pytrees of `shardc.Array`. Also a decorator::

        @shardc.jit(mesh=Mesh({"data": 4}), in_shardings=(None, P("data")))
        def loss(w, x): ...
    """
    options = {
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
    }
    given = {k: v for k, v in options.items() if v is not _UNSET and v != ()}
    if function is None:
        return functools.partial(_jitted, mesh=mesh, options=given)
    return _jitted(function, mesh=mesh, options=given)


def _jitted(function: Callable[..., Any], *, mesh: Any, options: dict[str, Any]) -> Jitted:
    return Jitted(function, as_mesh(mesh) if mesh is not None else None, options)


class Jitted:
    """A function compiled at its first call for each signature of its arguments."""

    def __init__(self, function: Callable[..., Any], mesh: Mesh | None, options: dict[str, Any]) -> None:
        try:
            import jax
        except ImportError:
            raise EnvironmentProblem("shardc.jit needs JAX", fix="pip install 'shardc[jax]'") from None
        functools.update_wrapper(self, function)
        self.mesh = mesh
        self._static_numbers = frozenset(_as_tuple(options.get("static_argnums", ()), int))
        self._static_names = frozenset(_as_tuple(options.get("static_argnames", ()), str))
        converted = {k: _to_jax(v, mesh) if k.endswith("shardings") else v for k, v in options.items()}
        self._keeps_layouts = "in_shardings" not in options
        self._jitted = jax.jit(function, **converted)
        self._compiled: dict[Any, Compiled] = {}

    def lower(self, *args: Any, **kwargs: Any) -> Program:
        """The program for arguments like these, before propagation."""
        import jax

        keep = self.mesh if self._keeps_layouts else None
        args, kwargs = jax.tree.map(lambda x: _abstract(x, keep), (args, kwargs), is_leaf=lambda x: x is None)
        with _ambient(self.mesh):
            program = from_jax(self._jitted, *args, **kwargs)
        return program if self.mesh is None or program.mesh is not None else program.annotate(mesh=self.mesh)

    def compiled(self, *args: Any, **kwargs: Any) -> Compiled:
        """The compiled program for arguments like these, from the cache when there was a call like this one."""
        key = self._signature(args, kwargs)
        if key not in self._compiled:
            self._compiled[key] = self.lower(*args, **kwargs).compile()
        return self._compiled[key]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        compiled = self.compiled(*args, **kwargs)
        dynamic = [a for i, a in enumerate(args) if i not in self._static_positions(len(args))]
        return compiled(*dynamic, **{k: v for k, v in kwargs.items() if k not in self._static_names})

    def _static_positions(self, count: int) -> frozenset[int]:
        return frozenset(i % count for i in self._static_numbers if -count <= i < count)

    def _signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import jax

        fixed = self._static_positions(len(args))
        static = (
            tuple(a for i, a in enumerate(args) if i in fixed),
            tuple((k, v) for k, v in sorted(kwargs.items()) if k in self._static_names),
        )
        dynamic = (
            [a for i, a in enumerate(args) if i not in fixed],
            {k: v for k, v in kwargs.items() if k not in self._static_names},
        )
        leaves, tree = jax.tree.flatten(dynamic)
        return tree, tuple(_leaf_signature(x, self._keeps_layouts) for x in leaves), static


def _leaf_signature(x: Any, layouts: bool) -> Any:
    if isinstance(x, bool | int | float | complex):
        return type(x)
    layout = getattr(x, "sharding", None) if layouts else None
    return tuple(getattr(x, "shape", ())), str(getattr(x, "dtype", type(x))), layout


def _as_tuple(value: Any, kind: type) -> tuple[Any, ...]:
    return (value,) if isinstance(value, kind) else tuple(value)


def _abstract(x: Any, mesh: Mesh | None) -> Any:
    """Our arrays as JAX's abstract ones, with their layout where it is one over ``mesh``."""
    if not isinstance(x, Array):
        return x
    import jax

    sharding = x.sharding
    if mesh is None or sharding is None or sharding.mesh != mesh or not _named(sharding):
        return jax.ShapeDtypeStruct(x.shape, x.dtype)
    spec = jax.sharding.PartitionSpec(*(tuple(a.name for a in axes) or None for axes in sharding.axes_by_dim))
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=jax.sharding.NamedSharding(mesh.to_jax(), spec))


def _named(sharding: Sharding) -> bool:
    """Can a PartitionSpec say it? Sub-axes cannot."""
    return not sharding.unreduced and all(a.is_full for axes in sharding.axes_by_dim for a in axes)


def _to_jax(shardings: Any, mesh: Mesh | None) -> Any:
    """Shardings of ours in a pytree as JAX's NamedSharding over the abstract mesh; JAX's own stay."""
    import jax

    from shardc.sharding.spec import UNCONSTRAINED, PartitionSpec

    theirs = jax.sharding.PartitionSpec

    def convert(x: Any) -> Any:
        if not isinstance(x, PartitionSpec | theirs):
            return x
        if mesh is None:
            raise AnnotationError(f"{x} needs a mesh", fix="pass mesh=Mesh({...}) to shardc.jit")
        entries = [theirs.UNCONSTRAINED if e is UNCONSTRAINED else e for e in x]
        return jax.sharding.NamedSharding(mesh.to_jax(), theirs(*entries))

    return jax.tree.map(convert, shardings, is_leaf=lambda x: isinstance(x, PartitionSpec | theirs))


def _ambient(mesh: Mesh | None) -> Any:
    """The mesh as JAX's context, so that bare PartitionSpecs inside the function find it."""
    import jax

    use = getattr(jax.sharding, "use_abstract_mesh", None)
    return nullcontext() if mesh is None or use is None else use(mesh.to_jax())
