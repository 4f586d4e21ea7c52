"""The options of `shardc.jit` and `shardc.numpy.jit`, for one function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shardc.compiler.targets import check_target
from shardc.hlo.errors import InputError
from shardc.hlo.ir.custom_calls import CustomCall
from shardc.launcher.arrays.meshes import as_mesh

__all__ = ["JitOptions", "jit_options"]


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
    """The options for ``function``. Raises InputError for an unknown target or name of a donated argument, and for what
    is no mesh."""
    check_target(target)
    if mesh is not None:
        as_mesh(mesh)
    names = _parameter_names(function)
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
        custom_calls=dict(custom_calls or {}),
        target=target,
    )


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
