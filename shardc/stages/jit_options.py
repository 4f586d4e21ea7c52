"""The options of `shardc.jit` and `shardc.numpy.jit`, for one function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shardc.compiler.targets import check_target
from shardc.hlo.errors import InputError
from shardc.hlo.ir.custom_calls import CustomCall, as_custom_calls
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.known_keys import require_known
from shardc.launcher.arrays.meshes import as_mesh
from shardc.launcher.arrays.placement import is_sharding, is_spec
from shardc.launcher.arrays.trees import children, map_with_prefix
from shardc.sharding.notations.partition_spec import as_spec, spec_to_sharding

__all__ = ["JitOptions", "jit_options", "need_known"]

#: The options of `shardc.jit`, and further ones of `jax.jit`, to which they are passed on.
_OURS = ("mesh", "target", "custom_calls", "in_shardings", "out_shardings")
_COMMON = ("donate_argnums", "donate_argnames", "static_argnums", "static_argnames")
_OF_JAX = ("keep_unused", "inline", "compiler_options", "device", "backend", "abstracted_axes")


@dataclass(frozen=True)
class JitOptions:
    """``mesh`` and shardings as the user gave them; arguments that are donated or part of the program, by position.

    ``static_names`` are the static ones that may be given by name.
    """

    mesh: Any
    in_shardings: Any
    out_shardings: Any
    donate: tuple[int, ...]
    static: tuple[int, ...]
    static_names: frozenset[str]
    custom_calls: Mapping[str, CustomCall]
    target: str

    def static_positions(self, args: tuple[Any, ...]) -> frozenset[int]:
        """Static ones among the arguments that were given by position."""
        return frozenset(n for n in self.static if n < len(args))

    def dynamic(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call that are not static."""
        return tuple(a for n, a in enumerate(args) if n not in self.static) if self.static else args

    def dynamic_names(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call that are given by name and are not static."""
        return {k: v for k, v in kwargs.items() if k not in self.static_names}

    def fixed_names(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The static arguments of a call that are given by name, in the order of their names."""
        return {k: v for k, v in sorted(kwargs.items()) if k in self.static_names}

    def call_within(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        constrain: Callable[[Any, Any], Any],
    ) -> Any:
        """``function`` called as a part of another one that is being traced; shardings become what ``constrain`` makes
        of a value and its sharding."""

        def constrained(values: Any, shardings: Any) -> Any:
            def place(leaf: Any, given: Any) -> Any:
                return leaf if given is None else constrain(leaf, given)

            if shardings is None:
                return values
            return map_with_prefix(place, values, shardings, lambda s: is_spec(s) or is_sharding(s))

        fixed = self.static_positions(args)
        given = iter(constrained(self.dynamic(args), self.in_shardings))
        made = function(*(args[n] if n in fixed else next(given) for n in range(len(args))), **kwargs)
        return constrained(made, self.out_shardings)


def jit_options(
    function: Callable[..., Any],
    *,
    mesh: Any,
    in_shardings: Any,
    out_shardings: Any,
    donate_argnums: int | Iterable[int],
    donate_argnames: str | Iterable[str],
    static_argnums: int | Iterable[int],
    static_argnames: str | Iterable[str],
    target: str,
    custom_calls: Mapping[str, CustomCall] | None = None,
) -> JitOptions:
    """The options for ``function``. Raises `InputError` for an unknown target or name of a donated argument, and for
    what is no mesh, `AnnotationError` for a sharding over axes that ``mesh`` lacks."""
    check_target(target)
    names = _parameter_names(function)
    if mesh is not None:
        over = as_mesh(mesh)
        for where, given in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
            _need_axes(given, over, where)
    donate_names, static_names = as_tuple(donate_argnames), as_tuple(static_argnames)
    for name in donate_names:
        if name not in names:
            raise InputError(f"donate_argnames names {name!r}", fix=f"the function's parameters are {', '.join(names)}")
    static = _positions(as_tuple(static_argnums), static_names, names)
    return JitOptions(
        mesh=mesh,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        donate=_positions(as_tuple(donate_argnums), donate_names, names),
        static=static,
        static_names=frozenset(static_names) | {names[n] for n in static if n < len(names)},
        custom_calls=as_custom_calls(custom_calls or {}),
        target=target,
    )


def need_known(options: Mapping[str, Any]) -> None:
    """Raise `InputError` for the name of an option that neither `shardc.jit` nor the `jax.jit` here has."""
    require_known(options, (*_OURS, *_COMMON, *_OF_JAX), "shardc.jit", None, _has_option, "option")


def _has_option(name: str) -> bool:
    """Whether it is one of a newer JAX."""
    try:
        import jax
    except ImportError:
        return False
    return name in inspect.signature(jax.jit).parameters


def _need_axes(tree: Any, mesh: Mesh, where: str) -> None:
    """Raise `AnnotationError` for a PartitionSpec of ``tree`` that names an axis twice, or one that ``mesh`` lacks."""
    if is_spec(tree):
        spec = as_spec(tree)
        spec_to_sharding(spec, mesh, len(spec), where)
    elif not is_sharding(tree) and (node := children(tree)) is not None:
        for key, value in zip(node.keys, node.values, strict=True):
            _need_axes(value, mesh, f"{where}[{key!r}]")


def as_tuple(value: Any) -> tuple[Any, ...]:
    """What may be given as one number or name, or as several."""
    return (value,) if isinstance(value, int | str) else tuple(value)


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _positions(numbers: tuple[int, ...], wanted: tuple[str, ...], names: list[str]) -> tuple[int, ...]:
    """Positions of arguments, counted from the front, those given by name added."""
    found = [n + len(names) if n < 0 else n for n in numbers]
    return tuple(dict.fromkeys([*found, *(names.index(name) for name in wanted if name in names)]))
