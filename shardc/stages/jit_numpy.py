"""A jitted NumPy function: traced and compiled at its first call for each signature of its arguments, without JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import numpy as np

from shardc.hlo.numpy.recorder import current_trace
from shardc.hlo.numpy.tree import flatten
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.placement import own_mesh
from shardc.stages.jit_options import JitOptions
from shardc.stages.last_compiled import remember
from shardc.stages.programs import trace
from shardc.stages.stages import Compiled, Program

__all__ = ["NumpyJit"]


@dataclass(eq=False)
class NumpyJit:
    """``function`` of NumPy arrays, with the options of `shardc.jit`; results are `shardc.Array`s.

    Where neither the options nor the arguments say over which mesh it runs, ``mesh_in_use`` does.
    """

    function: Callable[..., Any]
    options: JitOptions
    mesh_in_use: Callable[[], Any] = lambda: None
    _compiled: dict[Any, Compiled] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None and _has_traced(args, kwargs):
            return self.options.call_within(self.function, args, kwargs, _constrain)
        found, is_new = self._find(args, kwargs)
        if is_new:
            found.share()
            remember(found)
        return found(*self.options.dynamic(args), **self.options.dynamic_names(kwargs))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: the function with its first argument."""
        return self if instance is None else MethodType(self, instance)

    def compiled(self, *args: Any, **kwargs: Any) -> Compiled:
        """The compiled program for arguments like these, from the cache when there was a call like this one."""
        return self._find(args, kwargs)[0]

    def _find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Compiled, bool]:
        """The compiled program for arguments like these, and whether it is new."""
        options = self.options
        leaves, tree = flatten((list(options.dynamic(args)), options.dynamic_names(kwargs)))
        fixed = tuple((n, type(args[n]), args[n]) for n in sorted(options.static_positions(args)))
        named = tuple((k, type(v), v) for k, v in options.fixed_names(kwargs).items())
        key = tree, tuple(map(_kind, leaves)), fixed, named, self._mesh(leaves)
        found = self._compiled.get(key)
        if found is not None:
            return found, False
        made = self._compiled[key] = self.program(*args, **kwargs).compile(options.target)
        return made, True

    def _mesh(self, leaves: Sequence[Any]) -> Any:
        given = self.options.mesh
        return self.mesh_in_use() if given is None and not any(map(_brings_mesh, leaves)) else given

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """The program for arguments like these, before propagation."""
        options = self.options
        leaves, _ = flatten((list(options.dynamic(args)), options.dynamic_names(kwargs)))
        fixed = {n: args[n] for n in options.static_positions(args)}
        named = options.fixed_names(kwargs)
        function = self.function
        if fixed or named:
            function = functools.wraps(function)(functools.partial(_with_static, function, fixed, named))
        numbers = [n for n in range(len(args)) if n not in fixed]
        made = trace(
            function,
            *options.dynamic(args),
            mesh=self._mesh(leaves),
            in_shardings=options.in_shardings,
            out_shardings=options.out_shardings,
            donate_argnums=tuple(numbers.index(n) for n in options.donate if n in numbers),
            **options.dynamic_names(kwargs),
        )
        return made.with_custom_calls(options.custom_calls) if options.custom_calls else made

    def clear_cache(self) -> None:
        """Forget what was traced and compiled."""
        self._compiled.clear()


def _with_static(
    function: Callable[..., Any], fixed: Mapping[int, Any], named: Mapping[str, Any], *args: Any, **kwargs: Any
) -> Any:
    """The function with its static arguments put among the others."""
    given = list(args)
    for n, value in sorted(fixed.items()):
        given.insert(n, value)
    return function(*given, **named, **kwargs)


def _has_traced(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    from shardc.hlo.numpy.values import find_recorder

    return find_recorder([*args, *kwargs.values()]) is not None


def _constrain(leaf: Any, sharding: Any) -> Any:
    """A traced value with a constraint; what is not traced as it is."""
    from shardc.hlo.numpy.trace import constrain
    from shardc.hlo.numpy.tracer import Tracer

    return constrain(leaf, sharding) if isinstance(leaf, Tracer) else leaf


def _brings_mesh(x: Any) -> bool:
    """Whether an argument is an `Array`, or has a sharding with its mesh."""
    return isinstance(x, Array) or own_mesh(getattr(x, "sharding", None)) is not None


def _kind(x: Any) -> Any:
    if isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic):
        return type(x)
    return tuple(getattr(x, "shape", ())), getattr(x, "dtype", type(x)), getattr(x, "sharding", None)
