"""`shardc.jit`: in place of ``jax.jit``, runs on virtual devices or MPI ranks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardc.compiler.targets import check_target
from shardc.frontends.jax.context import static_kind, trace_context
from shardc.hlo.errors import InputError
from shardc.hlo.ir.custom_calls import CustomCall
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.meshes import as_mesh
from shardc.stages.programs import compile_function, from_function
from shardc.stages.repeated_calls import Repeated, kinds_of
from shardc.stages.stages import Compiled, Program

__all__ = ["Jitted", "jit"]

#: How many kinds of calls a function remembers.
_RECENT = 4


def jit(
    function: Callable[..., Any] | None = None,
    *,
    mesh: Any = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: int | Iterable[int] = (),
    donate_argnames: str | Iterable[str] = (),
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    custom_calls: Mapping[str, CustomCall] | None = None,
    target: str = "cpu",
) -> Any:
    """Compile a JAX function for a device mesh; the result is called like the function.

    ``mesh`` is a `Mesh` (or JAX's), of any size; shardings are `P` (or JAX's), ``NamedSharding``, or pytrees of
    them that are prefixes of the arguments or results; None leaves the choice to propagation. Compiles whenever
    `jax.jit` would, by structure, shapes and types of the arguments, static values and JAX's settings, for ``target``
    (as `Partitioned.compile`: ``cpu``, ``cuda``, ``cuda-emulated``). Results are pytrees of `shardc.Array`.
    ``custom_calls`` says what the function's own `jax.ffi` targets mean, see `Program.with_custom_calls`. Also a
    decorator::

        @shardc.jit(mesh=Mesh({"data": 4}), in_shardings=(None, P("data")))
        def loss(w, x): ...
    """
    if function is None:
        return functools.partial(
            jit,
            mesh=mesh,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            custom_calls=custom_calls,
            target=target,
        )
    check_target(target)
    names = _parameter_names(function)
    options = _Options(
        mesh,
        as_mesh(mesh) if mesh is not None else None,
        in_shardings,
        out_shardings,
        _numbers(donate_argnums, donate_argnames, names, "donate_argnames"),
        _numbers(static_argnums, static_argnames, names, "static_argnames"),
        frozenset(_as_tuple(static_argnames)) | {names[n] for n in _as_tuple(static_argnums) if 0 <= n < len(names)},
        dict(custom_calls or {}),
        target,
    )
    return Jitted(function, options)


@dataclass(frozen=True)
class _Options:
    given_mesh: Any
    mesh: Mesh | None
    in_shardings: Any
    out_shardings: Any
    donate: tuple[int, ...]
    static: tuple[int, ...]
    static_names: frozenset[str]
    custom_calls: Mapping[str, CustomCall]
    target: str

    def abstract(self, x: Any, keep: bool) -> Any:
        """Our arrays as JAX's abstract ones, to ``keep`` their layout where it is one over the mesh."""
        if not isinstance(x, Array):
            return x
        import jax

        sharding = x.sharding
        if not keep or sharding is None or sharding.mesh != self.mesh or not _named(sharding, x.shape):
            return jax.ShapeDtypeStruct(x.shape, x.dtype)
        from shardc.frontends.jax.frontend import abstract_mesh

        spec = jax.sharding.PartitionSpec(*(tuple(a.name for a in axes) or None for axes in sharding.axes_by_dim))
        over = jax.sharding.NamedSharding(abstract_mesh(self.given_mesh), spec)
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=over)


class Jitted:
    """A function compiled at its first call for each signature of its arguments."""

    def __init__(self, function: Callable[..., Any], options: _Options) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._compiled: dict[Any, Compiled] = {}
        self._recent: list[Repeated] = []

    def lower(self, *args: Any, **kwargs: Any) -> Program:
        """The program for arguments like these, before propagation."""
        program: Program = self._made(from_function, args, kwargs)
        return program.with_custom_calls(self._options.custom_calls) if self._options.custom_calls else program

    def compiled(self, *args: Any, **kwargs: Any) -> Compiled:
        """The compiled program for arguments like these, from the cache when there was a call like this one."""
        key = self._signature(args, kwargs)
        found = self._compiled.get(key)
        if found is None:
            # Which custom calls there are shows when the program is read.
            options = self._options
            if options.custom_calls:
                found = self.lower(*args, **kwargs).compile(options.target)
            else:
                found = self._made(functools.partial(compile_function, options.target), args, kwargs)
            self._compiled[key] = found
        return found

    def _made(self, make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What ``make`` (of `shardc.stages.programs`) makes of the function for arguments like these."""
        import jax

        options = self._options
        fixed = {k: v for k, v in kwargs.items() if k in options.static_names}
        keep = options.in_shardings is None
        args, named = jax.tree.map(lambda x: options.abstract(x, keep), (args, self._dynamic_names(kwargs)))
        static = tuple(sorted(self._static_positions(args)))
        return make(
            # A new object with static arguments: JAX takes those of calls before for the same if they are equal.
            functools.partial(self._function, **fixed) if fixed or static else self._function,
            args,
            named,
            mesh=options.given_mesh,
            in_shardings=options.in_shardings,
            out_shardings=options.out_shardings,
            donate_argnums=options.donate or None,
            static_argnums=static or None,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        dynamic, named, static = args, kwargs, None
        if self._options.static or self._options.static_names:
            dynamic, named, static = tuple(self._dynamic(args)), self._dynamic_names(kwargs), self._fixed(args, kwargs)
        leaves, tree = _tree_util().tree_flatten((dynamic, named))
        kinds, fixed = kinds_of(leaves), (static, trace_context())
        for call in self._recent:
            if call.fits(tree, kinds, fixed):
                return call(leaves)
        call = Repeated.of(self.compiled(*args, **kwargs), tree, leaves, fixed)
        self._recent = [call, *self._recent[: _RECENT - 1]]
        return call(leaves)

    def _static_positions(self, args: tuple[Any, ...]) -> frozenset[int]:
        """Static ones among the arguments that were given by position."""
        return frozenset(n for n in self._options.static if n < len(args))

    def _dynamic(self, args: tuple[Any, ...]) -> list[Any]:
        if not self._options.static:
            return list(args)
        fixed = self._static_positions(args)
        return [a for i, a in enumerate(args) if i not in fixed]

    def _dynamic_names(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in kwargs.items() if k not in self._options.static_names}

    def _fixed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The static arguments, types included."""
        static = tuple(static_kind(str(i), args[i]) for i in sorted(self._static_positions(args)))
        named = ((k, static_kind(k, v)) for k, v in sorted(kwargs.items()) if k in self._options.static_names)
        return static, tuple(named)

    def _signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, tree = _tree_util().tree_flatten((self._dynamic(args), self._dynamic_names(kwargs)))
        layouts = self._options.in_shardings is None
        kinds = tuple(_leaf_signature(x, layouts) for x in leaves)
        return tree, kinds, self._fixed(args, kwargs), trace_context()


@functools.cache
def _tree_util() -> Any:
    """JAX's pytrees, imported when a function is called."""
    import jax.tree_util

    return jax.tree_util


def _leaf_signature(x: Any, layouts: bool) -> Any:
    if type(x) is np.ndarray:
        return x.shape, x.dtype, False, None
    if isinstance(x, bool | int | float | complex):
        return type(x)
    layout = getattr(x, "sharding", None) if layouts else None
    return tuple(getattr(x, "shape", ())), getattr(x, "dtype", type(x)), getattr(x, "weak_type", False), layout


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _numbers(numbers: Any, wanted: Any, names: list[str], option: str) -> tuple[int, ...]:
    """Argument numbers, counted from the front, those given by name added."""
    found = [n + len(names) if n < 0 else n for n in _as_tuple(numbers)]
    for name in _as_tuple(wanted):
        if name in names:
            found.append(names.index(name))
        elif option == "donate_argnames":
            raise InputError(f"{option} names {name!r}", fix=f"the function's parameters are {', '.join(names)}")
    return tuple(dict.fromkeys(found))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, int | str) else tuple(value)


def _named(sharding: Sharding, dims: Sequence[int]) -> bool:
    """Can JAX say it? Sub-axes it cannot, nor uneven parts."""
    even = all(n % k == 0 for n, k in zip(dims, sharding.num_shards(), strict=True))
    return even and not sharding.unreduced and all(a.is_full for axes in sharding.axes_by_dim for a in axes)
