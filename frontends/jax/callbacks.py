"""Calls of Python in traced functions, so that JAX lowers them for any number of devices, none of which need exist.

JAX wants devices at hand for a program that calls Python, and has ordered effects on one device only. A step of ours
keeps every call in its order and needs to be told neither; so before it is lowered, a traced function is written with
the same calls, of primitives of our own that JAX's rules lower as they lower its own, and without order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from shardc.frontends.jax.memory_kinds import placement_rules
from shardc.hlo.errors import UnsupportedError

__all__ = ["Lower", "with_callbacks"]

#: ``lower()`` of a traced function for CPU.
Lower = Callable[[], Any]

_CALLS = frozenset(("debug_callback", "debug_print", "io_callback", "pure_callback"))


def with_callbacks(traced: Any) -> Lower:
    """How to lower ``traced``, whatever Python it calls and in whatever memory it puts values."""
    platforms = ("cpu",)
    rules = placement_rules(traced.jaxpr)
    calls = _calls_python(traced.jaxpr)
    if not calls and not rules:
        return lambda: traced.lower(lowering_platforms=platforms)
    from jax._src.interpreters import mlir

    changed = traced
    if calls:
        changed = copy.copy(traced)
        changed._lojax = None
        changed._params = {**traced._params, "jaxpr": _Rewrite().rewritten(traced.jaxpr)}
        rules = (*rules, *((own, _rule(name)) for name, own in _primitives().items()))
    parameters = mlir.LoweringParameters(override_lowering_rules=rules)
    return lambda: changed.lower(lowering_platforms=platforms, _private_parameters=parameters)


@cache
def _primitives() -> Mapping[str, Any]:
    """Stand-ins for the primitives that JAX lowers only for devices that are there, by name."""
    from jax._src import callback
    from jax.extend.core import Primitive

    made = {name: Primitive(name) for name in ("io_callback", "pure_callback")}
    for primitive in made.values():
        primitive.multiple_results = True
    made["io_callback"].def_effectful_abstract_eval(callback.io_callback_abstract_eval)
    made["pure_callback"].def_abstract_eval(callback.pure_callback_abstract_eval)
    return made


@cache
def _rule(name: str) -> Callable[..., Any]:
    """JAX's lowering of the primitive that ``name`` stands in for."""
    from jax._src import callback

    lower = getattr(callback, f"{name}_lowering")

    def rule(context: Any, *operands: Any, sharding: Any, **parameters: Any) -> Any:
        if sharding is not None and getattr(context.module_context.axis_context, "num_devices", 1) > 1:
            raise UnsupportedError(
                f"{name} with sharding= is not supported", fix="omit it: the first device of the mesh makes the call"
            )
        return lower(context, *operands, sharding=None, **parameters)

    return rule


class _Rewrite:
    """The same jaxprs, each once."""

    def __init__(self) -> None:
        from jax._src import callback, debugging

        self._effects = {
            callback._OrderedIOEffect: callback._IOEffect,
            debugging.ordered_debug_effect: debugging.debug_effect,
        }
        self._made: dict[int, tuple[Any, Any]] = {}  # by identity, with the key to keep it alive

    def rewritten(self, value: Any) -> Any:
        """A jaxpr, or a parameter that may have some inside."""
        if isinstance(value, tuple | list):
            parts = [self.rewritten(v) for v in value]
            if all(a is b for a, b in zip(parts, value, strict=True)):
                return value
            return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
        if not (hasattr(value, "eqns") or hasattr(value, "jaxpr")):
            return value
        if id(value) not in self._made:
            made = value
            if _calls_python(value):
                closed = hasattr(value, "jaxpr")
                made = value.replace(jaxpr=self._open(value.jaxpr)) if closed else self._open(value)
            self._made[id(value)] = value, made
        return self._made[id(value)][1]

    def _open(self, jaxpr: Any) -> Any:
        return jaxpr.replace(eqns=[self._equation(e) for e in jaxpr.eqns], effects=self._unordered(jaxpr.effects))

    def _equation(self, equation: Any) -> Any:
        parameters = {k: self.rewritten(v) for k, v in equation.params.items()}
        name = equation.primitive.name
        if name in _CALLS:
            if "ordered" in parameters:
                parameters["ordered"] = False
            if "effect" in parameters:
                parameters["effect"] = self._effects.get(parameters["effect"], parameters["effect"])
        primitive = _primitives().get(name, equation.primitive)
        effects = self._unordered(equation.effects)
        return equation.replace(primitive=primitive, params=parameters, effects=effects)

    def _unordered(self, effects: Any) -> Any:
        return type(effects)(self._effects.get(e, e) for e in effects)


def _calls_python(jaxpr: Any) -> bool:
    """Whether a jaxpr, or one inside it, calls Python."""
    from shardc.frontends.jax.effects import equations

    return any(e.primitive.name in _CALLS for e in equations(jaxpr))
