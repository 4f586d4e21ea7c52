"""A jitted NumPy function: traced and compiled at its first call for each signature of its arguments, without JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import numpy as np

from shardc.hlo.ir.custom_calls import CustomCall
from shardc.hlo.numpy.tree import flatten
from shardc.launcher.arrays.array import Array
from shardc.stages.programs import trace
from shardc.stages.stages import Compiled, Program

__all__ = ["NumpyJit"]


@dataclass(eq=False)
class NumpyJit:
    """``function`` of NumPy arrays, with the options of `shardc.jit`; results are `shardc.Array`s.

    ``static`` and ``static_names`` are the arguments that are part of the program, by position and by name.
    """

    function: Callable[..., Any]
    mesh: Any = None
    in_shardings: Any = None
    out_shardings: Any = None
    donate: tuple[int, ...] = ()
    static: tuple[int, ...] = ()
    static_names: frozenset[str] = frozenset()
    target: str = "cpu"
    custom_calls: Mapping[str, CustomCall] = field(default_factory=dict)
    _compiled: dict[Any, Compiled] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self.compiled(*args, **kwargs)
        fixed, names = self.static, self.static_names
        dynamic = [a for n, a in enumerate(args) if n not in fixed] if fixed else args
        return found(*dynamic, **({k: v for k, v in kwargs.items() if k not in names} if names else kwargs))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: the function with its first argument."""
        return self if instance is None else MethodType(self, instance)

    def compiled(self, *args: Any, **kwargs: Any) -> Compiled:
        """The compiled program for arguments like these, from the cache when there was a call like this one."""
        leaves, tree = flatten(([a for n, a in enumerate(args) if n not in self.static], self._dynamic_names(kwargs)))
        fixed = tuple((n, type(args[n]), args[n]) for n in self.static if n < len(args))
        named = tuple((k, type(v), v) for k, v in sorted(kwargs.items()) if k in self.static_names)
        key = tree, tuple(map(_kind, leaves)), fixed, named
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = self.program(*args, **kwargs).compile(self.target)
        return found

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """The program for arguments like these, before propagation."""
        fixed = {n: args[n] for n in self.static if n < len(args)}
        named = {k: v for k, v in kwargs.items() if k in self.static_names}
        function = self.function
        if fixed or named:
            function = functools.wraps(function)(functools.partial(_with_static, function, fixed, named))
        numbers = [n for n in range(len(args)) if n not in fixed]
        donate = tuple(numbers.index(n) for n in self.donate if n in numbers)
        dynamic = [args[n] for n in numbers]
        options = {"in_shardings": self.in_shardings, "out_shardings": self.out_shardings, "donate_argnums": donate}
        made = trace(function, *dynamic, mesh=self.mesh, **options, **self._dynamic_names(kwargs))
        return made.with_custom_calls(self.custom_calls) if self.custom_calls else made

    def clear_cache(self) -> None:
        """Forget what was traced and compiled."""
        self._compiled.clear()

    def _dynamic_names(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in kwargs.items() if k not in self.static_names}


def _with_static(
    function: Callable[..., Any], fixed: Mapping[int, Any], named: Mapping[str, Any], *args: Any, **kwargs: Any
) -> Any:
    """The function with its static arguments put among the others."""
    given = list(args)
    for n, value in sorted(fixed.items()):
        given.insert(n, value)
    return function(*given, **named, **kwargs)


def _kind(x: Any) -> Any:
    if isinstance(x, Array):
        return x.shape, x.dtype, x.sharding
    if isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic):
        return type(x)
    return tuple(getattr(x, "shape", ())), getattr(x, "dtype", type(x))
